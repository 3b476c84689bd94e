// Runs a fuzz target over mutations of its seeds: FUZZER [ITERATIONS [FIRST]], or FUZZER FILE... to
// repeat inputs. Iteration i is the same in every run and on every machine. Before each, its number
// goes into a buffer that a crash prints, so that "FUZZER 1 <number>" repeats it.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/random.h"
#include "tests/fuzz/fuzz_target.h"

namespace lm {
namespace {

constexpr uint64_t kDefaultIterations = 50000;
constexpr uint64_t kSeed = 0x6c6d;

uint64_t current_iteration = 0;

// The random numbers of one iteration.
class Dice {
 public:
  explicit Dice(uint64_t iteration) : iteration_(iteration) {}
  // Uniform in [0, n). REQUIRES: n > 0.
  uint64_t Below(uint64_t n) { return RandomBits(kSeed + iteration_, counter_++) % n; }

 private:
  uint64_t iteration_;
  uint64_t counter_ = 0;
};

// Numbers that sit on edges.
uint64_t Interesting(Dice* dice) {
  uint64_t power = uint64_t{1} << dice->Below(64);
  switch (dice->Below(4)) {
    case 0:
      return power;
    case 1:
      return power - 1;
    case 2:
      return ~power;
    default:
      return dice->Below(64);
  }
}

void Mutate(const std::vector<std::string>& seeds, Dice* dice, std::string* input) {
  const size_t place = input->empty() ? 0 : dice->Below(input->size());
  switch (dice->Below(input->empty() ? 1 : 7)) {
    case 0: {  // insert a piece of a seed
      const std::string& seed = seeds[dice->Below(seeds.size())];
      const size_t from = dice->Below(seed.size() + 1);
      input->insert(place, seed, from, dice->Below(64));
      return;
    }
    case 1:
      (*input)[place] ^= static_cast<char>(1 << dice->Below(8));
      return;
    case 2:
      (*input)[place] = static_cast<char>(dice->Below(256));
      return;
    case 3:
      input->erase(place, dice->Below(32));
      return;
    case 4:
      input->resize(place);
      return;
    case 5: {  // copy a piece over another
      const std::string piece = input->substr(dice->Below(input->size()), dice->Below(64));
      input->replace(place, piece.size(), piece);
      return;
    }
    default: {  // a number of 1, 2, 4 or 8 bytes
      const uint64_t number = Interesting(dice);
      const size_t width = std::min<size_t>(size_t{1} << dice->Below(4), input->size() - place);
      std::memcpy(input->data() + place, &number, width);
    }
  }
}

std::string InputOf(const std::vector<std::string>& seeds, uint64_t iteration) {
  Dice dice(iteration);
  std::string input = seeds[iteration % seeds.size()];
  if (iteration < seeds.size()) return input;  // the seeds themselves come first
  for (uint64_t n = 1 + dice.Below(4); n > 0; --n) Mutate(seeds, &dice, &input);
  return input;
}

void Run(const std::string& input) {
  // A copy of exactly that size, so that a sanitizer sees every read beyond it.
  std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// Only calls that a signal handler may make.
void PrintIteration(int signal) {
  char text[64] = "crashed in iteration ";
  size_t length = std::strlen(text);
  char digits[20];
  int count = 0;
  uint64_t left = current_iteration;
  do {
    digits[count++] = static_cast<char>('0' + left % 10);
    left /= 10;
  } while (left > 0);
  while (count > 0) text[length++] = digits[--count];
  text[length++] = '\n';
  if (write(STDERR_FILENO, text, length) < 0) _exit(2);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

int Main(int argc, char** argv) {
  for (int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS}) std::signal(signal, PrintIteration);
  char* end = nullptr;
  uint64_t iterations = argc > 1 ? std::strtoull(argv[1], &end, 10) : kDefaultIterations;
  if (end != nullptr && *end != '\0') {  // not a number: files
    for (int i = 1; i < argc; ++i) {
      std::ifstream file(argv[i], std::ios::binary);
      if (!file) {
        std::cerr << "cannot read " << argv[i] << "\n";
        return 1;
      }
      Run(std::string{std::istreambuf_iterator<char>(file), {}});
    }
    return 0;
  }
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const std::vector<std::string> seeds = FuzzSeeds();
  for (uint64_t i = 0; i < iterations; ++i) {
    current_iteration = first + i;
    Run(InputOf(seeds, current_iteration));
  }
  std::cout << iterations << " inputs from " << seeds.size() << " seeds\n";
  return 0;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) { return lm::Main(argc, argv); }
