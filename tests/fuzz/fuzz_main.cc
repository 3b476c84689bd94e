// Runs a fuzz target over mutations of its seeds:
//
//   FUZZER [--inputs N | --seconds N] [--seed S] [--first I]
//   FUZZER FILE...                                    # inputs that are to be repeated
//
// Without --seconds input I of a seed is the same in every run and on every machine. A crash, an
// input that takes some 20 seconds of processor time, and memory beyond a gibibyte end the program;
// the input is then in fuzz_failure.bin, in the current folder.
//
// Where the libraries are built with -fsanitize-coverage=trace-pc (g++ has it), inputs that reach
// code that none before them has reached are mutated further, like seeds; then an input depends on
// those before it, and only the file repeats it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
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

constexpr uint64_t kDefaultInputs = 50000;
constexpr uint64_t kDefaultSeed = 0x6c6d;
constexpr int kMostSeconds = 20;  // of processor time, for 64 inputs
constexpr long kMostResidentKib = 1 << 20;
constexpr size_t kLongestInput = 64 << 10;

// The places of the code that were reached by this input, and by any: by a hash of two that follow
// one another, as a power of two of how often.
constexpr size_t kNumEdges = 1 << 16;
uint8_t reached_now[kNumEdges];  // no std::array: the callback must not call what calls it
uint8_t reached[kNumEdges];
bool in_target = false, any_reached = false;
uintptr_t last_place = 0;

const std::vector<uint8_t>* current_input = nullptr;
uint64_t current_number = 0;
int start_folder = AT_FDCWD;  // a target may go to another

// The random numbers of one input.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t number) : seed_(seed + number) {}
  // Uniform in [0, n). REQUIRES: n > 0.
  uint64_t Below(uint64_t n) { return RandomBits(seed_, counter_++) % n; }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

// Numbers that sit on edges.
uint64_t Interesting(Dice* dice) {
  const uint64_t power = uint64_t{1} << dice->Below(64);
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

// [begin, end) of what stands between a bracket or quote and the one that closes it, both included;
// of a random one. Empty where there is none.
std::pair<size_t, size_t> Enclosed(const std::string& text, Dice* dice) {
  const size_t from = text.empty() ? 0 : dice->Below(text.size());
  const size_t begin = text.find_first_of("{[(\"'", from);
  if (begin == std::string::npos) return {0, 0};
  const char open = text[begin];
  const char close = open == '{' ? '}' : open == '[' ? ']' : open == '(' ? ')' : open;
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == close && (i > begin || open != close)) {
      if (open == close || --depth == 0) return {begin, i + 1};
    } else if (text[i] == open) {
      ++depth;
    }
  }
  return {0, 0};
}

void Mutate(const std::vector<std::string>& corpus, const std::vector<std::string>& words,
            Dice* dice, std::string* input) {
  const size_t place = input->empty() ? 0 : dice->Below(input->size());
  const std::string& other = corpus[dice->Below(corpus.size())];
  switch (dice->Below(input->empty() ? 1 : 10)) {
    case 0:  // insert a piece of another
      input->insert(place, other, dice->Below(other.size() + 1), dice->Below(64));
      return;
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
      if (dice->Below(4) == 0) input->resize(place);
      return;
    case 5: {  // copy a piece over another
      const std::string piece = input->substr(dice->Below(input->size()), dice->Below(64));
      input->replace(place, piece.size(), piece);
      return;
    }
    case 6: {  // a number of 1, 2, 4 or 8 bytes
      const uint64_t number = Interesting(dice);
      const size_t width = std::min<size_t>(size_t{1} << dice->Below(4), input->size() - place);
      std::memcpy(input->data() + place, &number, width);
      return;
    }
    case 7: {  // a number in digits
      const size_t digit = input->find_first_of("0123456789", place);
      const size_t at = digit == std::string::npos ? place : digit;
      const size_t end = std::min(input->find_first_not_of("0123456789", at), input->size());
      input->replace(at, end - at, std::to_string(Interesting(dice)));
      return;
    }
    case 8:  // a word of the language
      if (!words.empty()) input->insert(place, words[dice->Below(words.size())]);
      return;
    default: {  // an enclosed part of this or another in place of one of this, or within it
      const auto [begin, end] = Enclosed(*input, dice);
      const std::string& source = dice->Below(2) == 0 ? *input : other;
      const auto [first, last] = Enclosed(source, dice);
      const std::string part = source.substr(first, last - first);
      const size_t replaced = dice->Below(4) == 0 ? 0 : end - begin;
      input->replace(begin + (replaced == 0 && end > begin), replaced, part);
    }
  }
}

std::string InputOf(const std::vector<std::string>& corpus, const std::vector<std::string>& words,
                    size_t num_seeds, uint64_t seed, uint64_t number) {
  if (number < num_seeds) return corpus[number];  // the seeds themselves come first
  Dice dice(seed, number);
  std::string input = corpus[dice.Below(corpus.size())];
  for (uint64_t n = 1 + dice.Below(4); n > 0; --n) Mutate(corpus, words, &dice, &input);
  if (input.size() > kLongestInput) input.resize(kLongestInput);
  return input;
}

// Whether the input reached what none before it has.
bool TakeReached() {
  bool is_new = false;
  if (!any_reached) return false;
  for (size_t i = 0; i < kNumEdges; ++i) {
    if (reached_now[i] == 0) continue;
    const int count = reached_now[i];
    const uint8_t bit = count < 4 ? 1 << (count - 1) : count < 16 ? 8 : count < 128 ? 16 : 32;
    is_new |= (reached[i] & bit) == 0;
    reached[i] |= bit;
    reached_now[i] = 0;
  }
  return is_new;
}

void StartClock() {
  const itimerval patience = {{0, 0}, {kMostSeconds, 0}};
  setitimer(ITIMER_PROF, &patience, nullptr);
}

void Run(const std::string& input) {
  // A copy of exactly that size, so that a sanitizer sees every read beyond it.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  current_input = &bytes;
  last_place = 0;
  in_target = true;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  in_target = false;
  current_input = nullptr;
}

// Only calls that a signal handler may make.
void KeepInput(int signal) {
  char text[80] = "failed at input ";
  size_t length = std::strlen(text);
  char digits[20];
  int count = 0;
  uint64_t left = current_number;
  do {
    digits[count++] = static_cast<char>('0' + left % 10);
    left /= 10;
  } while (left > 0);
  while (count > 0) text[length++] = digits[--count];
  const char* what = signal == SIGPROF ? ", which does not end\n" : "\n";
  while (*what != '\0') text[length++] = *what++;
  if (write(STDERR_FILENO, text, length) < 0) _exit(2);
  const int file = openat(start_folder, "fuzz_failure.bin", O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file >= 0 && current_input != nullptr) {
    if (write(file, current_input->data(), current_input->size()) < 0) _exit(2);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

struct Arguments {
  uint64_t inputs = kDefaultInputs, seconds = 0, seed = kDefaultSeed, first = 0;
  std::vector<std::string> files;
};

// False where they are none.
bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    uint64_t* value = name == "--inputs"    ? &arguments->inputs
                      : name == "--seconds" ? &arguments->seconds
                      : name == "--seed"    ? &arguments->seed
                      : name == "--first"   ? &arguments->first
                                            : nullptr;
    if (value == nullptr) {
      if (name.rfind("--", 0) == 0) return false;
      arguments->files.push_back(name);
      continue;
    }
    if (++i == argc) return false;
    char* end = nullptr;
    *value = std::strtoull(argv[i], &end, 10);
    if (end == argv[i] || *end != '\0') return false;
  }
  return true;
}

int RunFiles(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::cerr << "cannot read " << path << "\n";
      return 1;
    }
    StartClock();
    Run(std::string{std::istreambuf_iterator<char>(file), {}});
  }
  return 0;
}

int Main(int argc, char** argv) {
  start_folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  for (int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS, SIGPROF}) {
    std::signal(signal, KeepInput);
  }
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::cerr << "usage: " << argv[0]
              << " [--inputs N | --seconds N] [--seed S] [--first I] [FILE...]\n";
    return 2;
  }
  if (!arguments.files.empty()) return RunFiles(arguments.files);
  std::vector<std::string> corpus = FuzzSeeds();
  const std::vector<std::string> words = FuzzWords();
  const size_t num_seeds = corpus.size();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(arguments.seconds);
  uint64_t done = 0;
  for (; arguments.seconds > 0 ? std::chrono::steady_clock::now() < end : done < arguments.inputs;
       ++done) {
    current_number = arguments.first + done;
    if (done % 64 == 0) StartClock();
    std::string input = InputOf(corpus, words, num_seeds, arguments.seed, current_number);
    Run(input);
    if (TakeReached() && done >= num_seeds) corpus.push_back(std::move(input));
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  size_t seed_bytes = 0;
  for (size_t i = 0; i < num_seeds; ++i) seed_bytes += corpus[i].size();
  std::cout << done << " inputs from " << num_seeds << " seeds of " << seed_bytes << " bytes and "
            << words.size() << " words; " << corpus.size() - num_seeds << " reached something new; "
            << usage.ru_maxrss / 1024 << " MiB\n";
  if (usage.ru_maxrss > kMostResidentKib) {
    std::cerr << "it took " << usage.ru_maxrss << " KiB of memory, of " << kMostResidentKib << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lm

// Called by code that is built with -fsanitize-coverage=trace-pc, at each block.
extern "C" __attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc() {
  if (!lm::in_target) return;
  lm::any_reached = true;
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  uint8_t& count = lm::reached_now[((place >> 1) ^ lm::last_place) % lm::kNumEdges];
  if (count < 255) ++count;
  lm::last_place = place >> 2;
}

int main(int argc, char** argv) { return lm::Main(argc, argv); }
