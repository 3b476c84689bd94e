// CUDA's driver as it was before any runtime that this is built with.
extern "C" int cuInit(unsigned /*flags*/) { return 0; }
extern "C" int cuDriverGetVersion(int* version) {
  *version = 11000;
  return 0;
}
