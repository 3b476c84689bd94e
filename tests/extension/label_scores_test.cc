// The probabilities of labels, beside those of a made-up model whose next bytes depend on what has
// been said: each point that it is asked at is one of the sum that makes them.
#include "extension/questions/label_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "extension/connection/connection.h"
#include "tests/engine/runtime/held_generator.h"

namespace lm {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

using Labels = std::vector<std::string>;
// What may be said next, "" for the end, and how probable it is.
using Choices = std::map<std::string, double>;
using Model = std::function<Choices(const std::string& said)>;

std::vector<double> Scores(const Labels& labels, const Model& model) {
  const auto generator = std::make_shared<HeldGenerator>();
  RowPrompt row;
  row.options = std::make_shared<CallOptions>(
      CallOptions{std::make_shared<ModelUse>(ModelUse{Session(generator, "")}), {}});
  const auto scores =
      ScoreLabels(row, labels, [&](RowPrompt asked) -> absl::StatusOr<std::optional<Generation>> {
        Generation answer;
        for (const auto& [text, share] : model(asked.begun)) {
          answer.first_choices.push_back({text, static_cast<float>(std::log(share))});
        }
        return answer;
      });
  EXPECT_TRUE(scores.ok()) << scores.status();
  return scores.ok() && scores->has_value() ? **scores : std::vector<double>();
}

TEST(LabelScoresTest, OneThatIsOverWhereAnotherGoesOnCountsItsEndOnce) {
  const Model model = [](const std::string& said) {
    return said.empty() ? Choices{{"", 0.6}, {"web server farm", 0.4}} : Choices();
  };
  EXPECT_THAT(Scores({"web server", "web server farm"}, model),
              ElementsAre(DoubleNear(0.6, 1e-6), DoubleNear(0.4, 1e-6)));
}

TEST(LabelScoresTest, BehindASharedTokenTheModelIsAskedAgain) {
  const Model model = [](const std::string& said) {
    if (said.empty()) return Choices{{"ref", 0.8}, {"other", 0.1}, {"never", 0.1}};
    EXPECT_EQ(said, "ref");
    return Choices{{"", 0.3}, {"und request", 0.1}};  // behind "und", which is given
  };
  EXPECT_THAT(Scores({"refund", "refund request", "other"}, model),
              ElementsAre(DoubleNear(0.8 / 0.9 * 0.75, 1e-6), DoubleNear(0.8 / 0.9 * 0.25, 1e-6),
                          DoubleNear(0.1 / 0.9, 1e-6)));
}

// Random labels over few letters, many of them beginnings of others; a token is one or two bytes,
// and what all have in common is given.
class MadeUpModel {
 public:
  MadeUpModel(Labels labels, uint32_t seed) : labels_(std::move(labels)), seed_(seed) {}

  Choices operator()(const std::string& said) const {
    const std::string given = Given(said);
    Choices choices;
    double sum = 0;
    auto add = [&](const std::string& text) {
      if (!choices.contains(text)) sum += choices[text] = Weight(given, text);
    };
    for (const std::string& label : labels_) {
      if (!absl::StartsWith(label, given)) continue;
      if (label == given) add("");
      for (size_t bytes : {1, 2}) {
        if (given.size() + bytes <= label.size()) {
          add(label.substr(said.size(), given.size() - said.size() + bytes));
        }
      }
    }
    for (auto& [text, share] : choices) share /= sum;
    return choices;
  }

  // Of each label, over all ways to spell it.
  std::vector<double> Exact() const {
    std::map<std::string, double> reached = {{"", 1}};
    std::vector<double> scores(labels_.size());
    for (size_t bytes = 0; bytes <= 20; ++bytes) {
      const std::map<std::string, double> points = reached;
      for (const auto& [said, share] : points) {
        if (said.size() != bytes) continue;
        for (const auto& [text, part] : (*this)(said)) {
          const std::string next = text.empty() ? Given(said) : said + text;
          const std::vector<size_t> members = Beginning(next);
          if (text.empty() || members.size() == 1) {
            const auto label = text.empty() ? std::find(labels_.begin(), labels_.end(), next)
                                            : labels_.begin() + members.front();
            scores[label - labels_.begin()] += share * part;
          } else {
            reached[next] += share * part;
          }
        }
      }
    }
    return scores;
  }

 private:
  std::vector<size_t> Beginning(const std::string& text) const {
    std::vector<size_t> members;
    for (size_t i = 0; i < labels_.size(); ++i) {
      if (absl::StartsWith(labels_[i], text)) members.push_back(i);
    }
    return members;
  }
  // What all that begin so begin with.
  std::string Given(const std::string& said) const {
    const std::vector<size_t> members = Beginning(said);
    std::string given = labels_[members.front()];
    for (size_t i : members) {
      while (!absl::StartsWith(labels_[i], given)) given.pop_back();
    }
    return given;
  }
  // No choice is so improbable that it is counted with another.
  double Weight(const std::string& given, const std::string& text) const {
    std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(given + "|" + text)) ^
                        seed_);
    return 1 + random() % 4;
  }

  Labels labels_;
  uint32_t seed_;
};

TEST(LabelScoresTest, AreThoseOfAllWaysToSpellThem) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    Labels labels;
    while (labels.size() < 2 + random() % 4) {
      std::string label;
      for (size_t bytes = 1 + random() % 6; bytes > 0; --bytes) label += "ab"[random() % 2];
      if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
    }
    const MadeUpModel model(labels, random());
    EXPECT_THAT(Scores(labels, model), Pointwise(DoubleNear(1e-5), model.Exact()))
        << testing::PrintToString(labels);
  }
}

}  // namespace
}  // namespace lm
