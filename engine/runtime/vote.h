// A vote: a request that is sent many times, each time to be answered by chance, and whose answer
// is what most of these say. For models that do not tell how probable their answers are.
//
//   spec.options.vote = 5;
//   ASSIGN_OR_RETURN(std::shared_ptr<Request> request, SubmitRequest(generator, std::move(spec)));
//
// The ballots are generations of the same generator at the temperature of the options, 1 where that
// is 0, with a seed each. Where one fails, so does the vote, once the others, which are given up,
// have ended: nothing is made up for it, and what all of them took is counted.
//
// So are options.n answers drawn, which are all given, and options.best_of, of which those are
// given whose tokens the model finds most probable, by the mean of their logprobs. The prompt is
// computed once in any case: what all of them share is prefilled before they part.
#ifndef LM_ENGINE_RUNTIME_VOTE_H_
#define LM_ENGINE_RUNTIME_VOTE_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/generator.h"
#include "engine/runtime/remembered_answer.h"
#include "engine/runtime/request.h"

namespace lm {

// InvalidArgument where a vote or several answers are asked for of what is not generated, or of
// what is wanted piece by piece.
absl::Status CheckDrawn(const RequestSpec& spec);

// Generator::Submit; where the options ask for a vote or for several answers, these. REQUIRES:
// CheckDrawn(spec) is OK.
absl::StatusOr<std::shared_ptr<Request>> SubmitRequest(
    Generator& generator, RequestSpec spec, std::shared_ptr<RequestListener> listener = nullptr);

// The vote's answer: the text that most have, FailedPrecondition where several do. Texts without a
// constraint are the same where their words are (engine/text/same_words.h), JSON where it says the
// same, others where they are equal; the answer is the one of them that was drawn first. In its
// first_choices is all that was said, each as it was first drawn, with its share as probability, in
// the order of what it says; where the spec wants_first_choices there is no text, and several may
// have the most. Numbers of tokens are sums. REQUIRES: all ballots are OK.
Generation CountVotes(const RequestSpec& spec, absl::Span<const Generation> ballots);

// A share of a vote's, or a sum of such, as the fraction that it was before it became a logarithm:
// of those of `asked` ballots that say something, however many these are. The same share where it
// is none.
double ShareOfVotes(double share, int32_t asked);

// Whether a vote can have had this answer, as Generator::CanBeAnswer.
bool CanBeVote(const RequestSpec& spec, const RememberedAnswer& answer);

// The answer of several: the options.n most probable, the first drawn first among equals, as a JSON
// array of texts, or of values where a schema says what they are; without n, the one. Without
// best_of, all in the order in which they are drawn. Numbers of tokens are sums. REQUIRES: as
// above.
Generation PickSamples(const RequestSpec& spec, absl::Span<const Generation> samples);

// Generator::CanBeAnswer of a request, whether its answer is drawn or not; `can_be_one` says it of
// one that is not.
bool CanBeDrawn(const RequestSpec& spec, const RememberedAnswer& answer,
                absl::FunctionRef<bool(const RequestSpec&, const RememberedAnswer&)> can_be_one);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_VOTE_H_
