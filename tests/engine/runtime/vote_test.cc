#include "engine/runtime/vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/base/monotonic_time.h"
#include "engine/runtime/answer_text.h"
#include "engine/runtime/memo.h"
#include "tests/engine/runtime/held_generator.h"

namespace lm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RequestSpec Spec(int32_t votes, bool wants_first_choices = false) {
  RequestSpec spec{.text = "?", .wants_first_choices = wants_first_choices};
  spec.options.constraint = {AnswerConstraint::Kind::kChoices, R"(["yes","no","perhaps"])"};
  spec.options.vote = votes;
  return spec;
}

bool IsDone(const std::shared_ptr<Request>& request) {
  return request->WaitFor(absl::ZeroDuration());
}

class VoteTest : public testing::Test {
 protected:
  std::shared_ptr<Request> Submit(RequestSpec spec) {
    return SubmitRequest(generator_, std::move(spec)).value();
  }
  Generation Count(std::initializer_list<const char*> texts, bool wants_first_choices = false) {
    std::vector<Generation> ballots;
    for (const char* text : texts) ballots.push_back({.text = text});
    return CountVotes(Spec(static_cast<int32_t>(texts.size()), wants_first_choices), ballots);
  }

  HeldGenerator generator_;
};

TEST_F(VoteTest, TheMostHaveIt) {
  EXPECT_EQ(Count({"yes"}).text, "yes");
  EXPECT_EQ(Count({"yes", "no", "no"}).text, "no");
  EXPECT_EQ(Count({"perhaps", "yes", "no", "yes"}).text, "yes");
  const Generation tie = Count({"no", "yes", "perhaps", "yes", "no"});
  EXPECT_EQ(tie.status.message(), "a tie: 'no' and 'yes' have 2 of 5 votes each");
}

TEST_F(VoteTest, SharesStandForProbabilities) {
  const Generation shares = Count({"yes", "no", "yes", "yes"}, /*wants_first_choices=*/true);
  ASSERT_EQ(shares.first_choices.size(), 2);
  EXPECT_EQ(shares.first_choices[0].text, "no");
  EXPECT_NEAR(std::exp(shares.first_choices[0].logprob), 0.25, 1e-6);
  EXPECT_EQ(shares.first_choices[1].text, "yes");
  EXPECT_NEAR(std::exp(shares.first_choices[1].logprob), 0.75, 1e-6);
  EXPECT_TRUE(Count({"yes", "no"}, true).status.ok());
}

TEST_F(VoteTest, ASharesFractionIsKnownHoweverManyBallotsSaidSomething) {
  for (int counted = 1; counted <= kMostVotes; ++counted) {
    for (int said = 0; said <= counted; ++said) {
      const double fraction = static_cast<double>(said) / counted;
      const float logprob = static_cast<float>(std::log(fraction));
      for (int asked : {counted, kMostVotes}) {
        ASSERT_DOUBLE_EQ(ShareOfVotes(std::exp(double{logprob}), asked), fraction)
            << said << "/" << counted << " of " << asked;
      }
    }
  }
}

TEST_F(VoteTest, EachBallotIsDrawnAnew) {
  RequestSpec spec = Spec(3, /*wants_first_choices=*/true);
  spec.options.seed = 5;
  const std::shared_ptr<Request> request = Submit(spec);
  ASSERT_EQ(generator_.asked.size(), 3);
  std::set<uint64_t> seeds;
  for (const auto& ballot : generator_.asked) {
    EXPECT_EQ(ballot->spec().options.temperature, 1);
    EXPECT_EQ(ballot->spec().options.vote, 0);
    EXPECT_FALSE(ballot->spec().wants_first_choices);
    seeds.insert(ballot->spec().options.seed);
  }
  EXPECT_THAT(seeds, ElementsAre(15, 16, 17));  // those of seed 6 begin at 18
  generator_.Say(2, "yes");
  generator_.Say(0, "no");
  EXPECT_FALSE(IsDone(request));
  generator_.Say(1, "yes");
  ASSERT_TRUE(IsDone(request));
  EXPECT_EQ(request->result().first_choices.size(), 2);
  EXPECT_EQ(request->result().tokens_in, 30);
  EXPECT_EQ(request->result().tokens_cached, 24);
  EXPECT_EQ(request->result().tokens_out, 6);

  spec.options.temperature = 0.5;
  Submit(spec)->Cancel();
  EXPECT_EQ(generator_.asked.back()->spec().options.temperature, 0.5);
}

TEST_F(VoteTest, OneFailureIsTheVotes) {
  const std::shared_ptr<Request> request = Submit(Spec(3));
  generator_.Say(0, "yes");
  generator_.asked[1]->Finish({.status = absl::UnavailableError("gone"), .tokens_out = 7});
  EXPECT_TRUE(generator_.asked[2]->cancelled());
  EXPECT_FALSE(IsDone(request));  // what that took is not known yet
  generator_.asked[2]->Finish({.status = absl::CancelledError(), .tokens_in = 10, .tokens_out = 3});
  ASSERT_TRUE(IsDone(request));
  EXPECT_EQ(request->result().status.message(), "gone");
  EXPECT_EQ(request->result().tokens_in, 20);
  EXPECT_EQ(request->result().tokens_out, 2 + 7 + 3);
}

TEST_F(VoteTest, OfDrawsThatFailTheFirstOnesFailureIsTold) {
  const std::shared_ptr<Request> request = Submit(Spec(3));
  generator_.asked[2]->Finish({.status = absl::OutOfRangeError("third"), .tokens_out = 7});
  EXPECT_FALSE(generator_.asked[0]->cancelled());  // what it takes would depend on who is quicker
  generator_.asked[1]->Finish({.status = absl::OutOfRangeError("second"), .tokens_out = 7});
  generator_.Say(0, "yes");
  ASSERT_TRUE(IsDone(request));
  EXPECT_EQ(request->result().status.message(), "second");
  EXPECT_EQ(request->result().tokens_out, 2 + 7 + 7);
}

TEST_F(VoteTest, WhoLeavesTakesTheBallotsAlong) {
  const std::shared_ptr<Request> request = Submit(Spec(2));
  generator_.Say(0, "yes");
  request->Cancel();
  ASSERT_TRUE(IsDone(request));
  EXPECT_TRUE(absl::IsCancelled(request->result().status));
  EXPECT_TRUE(generator_.asked[1]->cancelled());
  generator_.Say(1, "yes");
}

TEST_F(VoteTest, WhereThereIsNoRoomForAllThereIsNoVote) {
  generator_.room = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(SubmitRequest(generator_, Spec(3)).status()));
  for (const auto& ballot : generator_.asked) EXPECT_TRUE(ballot->cancelled());
}

TEST_F(VoteTest, TheBallotsDeadlinesAreKept) {
  RequestSpec spec = Spec(2);
  spec.options.timeout_ms = 1;
  const std::shared_ptr<Request> request = Submit(spec);
  generator_.asked[1]->set_deadline(MonotonicTime::InfinitePast());
  EXPECT_FALSE(IsDone(request));
  EXPECT_FALSE(generator_.asked[0]->abandoned());
  ASSERT_TRUE(generator_.asked[1]->abandoned());
  generator_.asked[1]->Finish({.status = generator_.asked[1]->AbandonedStatus()});
  EXPECT_TRUE(generator_.asked[0]->cancelled());
  generator_.Say(0, "yes");  // it was quicker than that
  ASSERT_TRUE(IsDone(request));
  EXPECT_THAT(std::string(request->result().status.message()), HasSubstr("timeout_ms = 1"));
}

TEST_F(VoteTest, WhatIsGeneratedWholeCanBeVotedFor) {
  RequestSpec spec = Spec(3);
  EXPECT_TRUE(CheckDrawn(spec).ok());
  spec.options.constraint = {};
  EXPECT_TRUE(CheckDrawn(spec).ok());
  spec.stream = true;
  EXPECT_FALSE(CheckDrawn(spec).ok());
  spec = Spec(3);
  spec.embed = Pooling::kMean;
  EXPECT_FALSE(CheckDrawn(spec).ok());
  spec.options.vote = 0;
  EXPECT_TRUE(CheckDrawn(spec).ok());
}

// The text that is given is that of the first who said so.
TEST_F(VoteTest, FreeTextsAreOneWhereTheirWordsAre) {
  auto count = [](AnswerConstraint constraint, std::vector<const char*> texts) {
    std::vector<Generation> ballots;
    for (const char* text : texts) ballots.push_back({.text = text});
    RequestSpec spec = Spec(static_cast<int32_t>(texts.size()));
    spec.options.constraint = std::move(constraint);
    const Generation answer = CountVotes(spec, ballots);
    return answer.status.ok() ? answer.text : std::string(answer.status.message());
  };
  EXPECT_EQ(count({}, {"London", " Paris.", "paris", "**PARIS**", "London"}), " Paris.");
  EXPECT_EQ(count({}, {"London", "Paris"}), "a tie: 'London' and 'Paris' have 1 of 2 votes each");
  EXPECT_EQ(count({}, {"a", "b", "c", "d", "e"}),
            "a tie: 'a' and 'b' and 'c' and 2 others have 1 of 5 votes each");
  const AnswerConstraint object{AnswerConstraint::Kind::kSchema, R"({"type":"object"})"};
  EXPECT_EQ(count(object, {R"({"a":2})", R"({"a": 1})", R"({"a":1})"}), R"({"a": 1})");
  const AnswerConstraint regex{AnswerConstraint::Kind::kRegex, "[A-z.]+"};
  EXPECT_EQ(count(regex, {"A", "a.", "a", "a"}), "a");
}

TEST_F(VoteTest, TheSharesOfAllThatWasSaidComeWithTheAnswer) {
  auto shares = [](std::vector<const char*> texts) {
    std::vector<Generation> ballots;
    for (const char* text : texts) ballots.push_back({.text = text});
    RequestSpec spec = Spec(static_cast<int32_t>(texts.size()));
    spec.options.constraint = {};
    std::map<std::string, double> found;
    for (const FirstChoice& one : CountVotes(spec, ballots).first_choices) {
      found[one.text] = std::round(1e4 * std::exp(one.logprob)) / 1e4;
    }
    return found;
  };
  using Shares = std::map<std::string, double>;
  EXPECT_EQ(shares({"London", " Paris.", "paris", "**PARIS**", "London"}),
            (Shares{{"London", 0.4}, {" Paris.", 0.6}}));
  EXPECT_EQ(shares({"a", "b", "A!"}), (Shares{{"a", 0.6667}, {"b", 0.3333}}));
  EXPECT_EQ(shares({"a", "b"}), (Shares{{"a", 0.5}, {"b", 0.5}}));  // a tie
  EXPECT_EQ(shares({"a"}), (Shares{{"a", 1}}));
}

TEST_F(VoteTest, AnAnswerThatWasCutSaysSo) {
  RequestSpec spec = Spec(2);
  spec.options.constraint = {};
  const std::vector<Generation> ballots = {{.text = "so far", .finish = FinishReason::kLength},
                                           {.text = "So far.", .finish = FinishReason::kStop}};
  EXPECT_EQ(CountVotes(spec, ballots).finish, FinishReason::kLength);
}

TEST_F(VoteTest, AVoteIsRememberedAsWhatItIs) {
  Memo memo(1 << 20, 1 << 20);
  const MemoAccess access = {"me"};
  auto ask = [&](const RequestSpec& spec) { return memo.Submit(generator_, spec, access).value(); };
  const std::shared_ptr<Request> vote = ask(Spec(1, /*wants_first_choices=*/true));
  const std::shared_ptr<Request> same = ask(Spec(1, true));
  ASSERT_EQ(generator_.asked.size(), 1);
  generator_.Say(0, "yes");
  EXPECT_TRUE(IsDone(vote) && IsDone(same));
  EXPECT_TRUE(ask(Spec(1, true))->result().remembered);
  RequestSpec seeded = Spec(1, true);
  seeded.options.seed = 1;
  for (const RequestSpec& other : {Spec(0, true), Spec(3, true), Spec(1), seeded}) {
    const size_t before = generator_.asked.size();
    const std::shared_ptr<Request> request = ask(other);
    EXPECT_GT(generator_.asked.size(), before);
    request->Cancel();
    for (size_t i = before; i < generator_.asked.size(); ++i) {
      generator_.asked[i]->Finish({.status = absl::CancelledError()});
    }
  }
}

TEST_F(VoteTest, AForgedVoteIsNone) {
  const RequestSpec shares = Spec(2, /*wants_first_choices=*/true);
  const float half = std::log(0.5F);
  const RememberedAnswer split{.first_choices = {{"no", half}, {"yes", half}}};
  EXPECT_TRUE(CanBeVote(shares, split));
  EXPECT_FALSE(CanBeVote(Spec(2), split));
  // An answer stands among all that was said, and has the most.
  const std::vector<FirstChoice> two = {{"no", std::log(0.6F)}, {"yes", std::log(0.4F)}};
  EXPECT_TRUE(CanBeVote(Spec(5), {.text = "no", .first_choices = two}));
  EXPECT_FALSE(CanBeVote(Spec(5), {.text = "yes", .first_choices = two}));
  EXPECT_FALSE(CanBeVote(Spec(5), {.text = "perhaps", .first_choices = two}));
  EXPECT_FALSE(CanBeVote(Spec(5), {.text = "no"}));
  EXPECT_FALSE(CanBeVote(Spec(2), {.text = "no", .first_choices = split.first_choices}));
  auto said = [](const char* text, FinishReason finish = FinishReason::kStop) {
    return RememberedAnswer{.text = text, .finish = finish, .first_choices = {{text, 0}}};
  };
  EXPECT_TRUE(CanBeVote(Spec(2), said("no")));
  EXPECT_FALSE(CanBeVote(Spec(2), said("maybe")));
  EXPECT_FALSE(CanBeVote(Spec(2), said("no", FinishReason::kLength)));
  EXPECT_FALSE(CanBeVote(shares, {.text = "no"}));
  EXPECT_FALSE(CanBeVote(shares, {.first_choices = {{"no", half}}}));
  EXPECT_FALSE(CanBeVote(shares, {.first_choices = {{"no", half}, {"maybe", half}}}));
  EXPECT_FALSE(CanBeVote(shares, {.first_choices = {{"no", half}, {"yes", NAN}}}));
  RequestSpec text = Spec(2);
  text.options.constraint = {AnswerConstraint::Kind::kRegex, "[0-9]+"};
  EXPECT_TRUE(CanBeVote(text, said("42")));
  EXPECT_FALSE(CanBeVote(text, said("four")));
  EXPECT_FALSE(CanBeVote(text, said("42", FinishReason::kLength)));
  text.options.constraint = {};
  EXPECT_TRUE(CanBeVote(text, said("four", FinishReason::kLength)));
  EXPECT_FALSE(CanBeVote(text, said("four", FinishReason::kError)));
  EXPECT_FALSE(CanBeVote(text, split));
}

RequestSpec Samples(int32_t n, int32_t best_of) {
  RequestSpec spec = Spec(0);
  spec.options.n = n;
  spec.options.best_of = best_of;
  return spec;
}

TEST_F(VoteTest, TheBestSamplesAreTheMostProbable) {
  const std::vector<Generation> drawn = {
      {.text = "no", .finish = FinishReason::kStop, .mean_logprob = -2, .tokens_in = 5},
      {.text = "yes", .finish = FinishReason::kStop, .mean_logprob = -1, .tokens_in = 5},
      {.text = "perhaps", .finish = FinishReason::kStop, .mean_logprob = -1, .tokens_in = 5}};
  EXPECT_EQ(PickSamples(Samples(3, 0), drawn).text, R"(["no","yes","perhaps"])");
  EXPECT_EQ(PickSamples(Samples(2, 3), drawn).text, R"(["yes","perhaps"])");
  EXPECT_EQ(PickSamples(Samples(0, 3), drawn).text, "yes");
  EXPECT_EQ(PickSamples(Samples(0, 3), drawn).tokens_in, 15);
}

TEST_F(VoteTest, OfSamplesThatAreNothingButReasoningTheOthersAreAnswers) {
  const GenerationOptions options;
  Generation none{.status = NoAnswerError(FinishReason::kLength, 7, options), .tokens_in = 5};
  const std::vector<Generation> drawn = {
      none, {.text = "no", .finish = FinishReason::kStop, .mean_logprob = -1, .tokens_in = 5}};
  EXPECT_EQ(PickSamples(Samples(2, 0), drawn).text, R"([null,"no"])");
  EXPECT_EQ(PickSamples(Samples(2, 2), drawn).text, R"(["no",null])");
  EXPECT_EQ(PickSamples(Samples(0, 2), drawn).text, "no");
  EXPECT_EQ(PickSamples(Samples(0, 2), drawn).tokens_in, 10);
  RequestSpec free = Spec(2);
  free.options.constraint = {};
  const Generation voted = CountVotes(free, drawn);
  EXPECT_EQ(voted.text, "no");
  ASSERT_EQ(voted.first_choices.size(), 1u);
  EXPECT_EQ(voted.first_choices[0].logprob, 0);
  // In a memo, too.
  auto can_be = [](RequestSpec spec, std::string text, Thinking thinking) {
    spec.options.constraint = {};
    spec.options.thinking = thinking;
    return CanBeDrawn(spec, {.text = std::move(text), .tokens_in = 6},
                      [](const RequestSpec&, const RememberedAnswer&) { return true; });
  };
  EXPECT_TRUE(can_be(Samples(2, 0), R"([null,"no"])", Thinking::kDrop));
  EXPECT_FALSE(can_be(Samples(2, 0), R"([null,"no"])", Thinking::kKeep));
  EXPECT_FALSE(can_be(Samples(2, 0), R"([null,null])", Thinking::kDrop));
}

// Numbers that a server wrote, and in the form that answers have: 0.00001 is no 1e-05.
TEST_F(VoteTest, NumbersOfServersCanBeRemembered) {
  auto can_be = [](RequestSpec spec, RememberedAnswer answer) {
    spec.options.constraint = {AnswerConstraint::Kind::kSchema, R"({"type":"number","minimum":0})"};
    answer.finish = FinishReason::kStop;
    return CanBeDrawn(spec, answer,
                      [](const RequestSpec&, const RememberedAnswer&) { return false; });
  };
  EXPECT_TRUE(can_be(Samples(2, 0), {.text = "[0.00001,1e-30]"}));
  EXPECT_TRUE(can_be(Samples(2, 0), {.text = "[48.85661412345679,2]"}));
  EXPECT_FALSE(can_be(Samples(2, 0), {.text = "[-1e-30,2]"}));
  auto voted = [](const char* text) {
    return RememberedAnswer{.text = text, .first_choices = {{text, 0}}};
  };
  EXPECT_TRUE(can_be(Spec(5), voted("48.85661412345679")));
  EXPECT_FALSE(can_be(Spec(5), voted("-48.85661412345679")));
}

TEST_F(VoteTest, ForgedSamplesAreNone) {
  auto can_be = [](const RequestSpec& spec, std::string text) {
    return CanBeDrawn(spec, {.text = std::move(text), .tokens_in = 6},
                      [](const RequestSpec&, const RememberedAnswer& one) {
                        return one.text == "yes" && one.tokens_in == 3;
                      });
  };
  EXPECT_TRUE(can_be(Samples(2, 0), R"(["yes","yes"])"));
  EXPECT_FALSE(can_be(Samples(3, 0), R"(["yes","yes"])"));
  EXPECT_FALSE(can_be(Samples(2, 0), R"(["yes","maybe"])"));
  EXPECT_FALSE(can_be(Samples(2, 0), R"(["yes",1])"));
  EXPECT_FALSE(can_be(Samples(2, 0), "yes"));
  EXPECT_TRUE(can_be(Samples(0, 2), "yes"));
  EXPECT_FALSE(can_be(Samples(0, 2), "no"));
  EXPECT_FALSE(can_be(Samples(0, 4), "yes"));
}

}  // namespace
}  // namespace lm
