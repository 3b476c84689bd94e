// Of many texts with scores the best ones.
//
//   BestTexts best(3);
//   best.Add(0.7, "a");
//   best.Add(0.9, "b");
//   for (const BestTexts::Scored& one : best.Take()) ...   // b, a
#ifndef LM_EXTENSION_QUESTIONS_BEST_TEXTS_H_
#define LM_EXTENSION_QUESTIONS_BEST_TEXTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lm {

class BestTexts {
 public:
  struct Scored {
    double score;
    std::string text;
    int64_t number;  // of those that were added
  };

  explicit BestTexts(int64_t most) : most_(most) {}

  void Add(double score, std::string text);
  // The best first; of equal scores the earlier one is the better.
  std::vector<Scored> Take();

 private:
  int64_t most_;
  int64_t added_ = 0;
  std::vector<Scored> heap_;  // the worst at its front
};

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_BEST_TEXTS_H_
