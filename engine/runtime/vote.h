// A vote: a request that is sent many times, each time to be answered by chance, and whose answer
// is what most of these say. For models that do not tell how probable their answers are.
//
//   spec.options.vote = 5;
//   ASSIGN_OR_RETURN(std::shared_ptr<Request> request, SubmitRequest(generator, std::move(spec)));
//
// The ballots are generations of the same generator at the temperature of the options, 1 where that
// is 0, with a seed each. Where one fails, so does the vote: nothing is made up for it.
#ifndef LM_ENGINE_RUNTIME_VOTE_H_
#define LM_ENGINE_RUNTIME_VOTE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/generator.h"
#include "engine/runtime/remembered_answer.h"
#include "engine/runtime/request.h"

namespace lm {

// InvalidArgument where a vote is asked for of what has none: only one of `choices` can be said by
// many.
absl::Status CheckVote(const RequestSpec& spec);

// Generator::Submit; where options.vote asks for one, a vote. REQUIRES: CheckVote(spec) is OK.
absl::StatusOr<std::shared_ptr<Request>> SubmitRequest(
    Generator& generator, RequestSpec spec, std::shared_ptr<RequestListener> listener = nullptr);

// The vote's answer: the text that most have, FailedPrecondition where several do. With
// wants_first_choices, instead of a text, those that were said, in the order of their bytes, with
// their shares as probabilities. Numbers of tokens are sums. REQUIRES: all ballots are OK.
Generation CountVotes(const RequestSpec& spec, absl::Span<const Generation> ballots);

// Whether a vote can have had this answer, as Generator::CanBeAnswer.
bool CanBeVote(const RequestSpec& spec, const RememberedAnswer& answer);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_VOTE_H_
