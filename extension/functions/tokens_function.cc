// lm_token_count(text [, options])   INTEGER: how many tokens the model is fed for a text
// lm_tokenize(text [, options])      JSON: those tokens' ids, BOS included where the model adds one
// lm_detokenize(ids [, options])     TEXT: what a JSON array of ids stands for
//
//   SELECT lm_token_count('How much is the fish?');
//   SELECT lm_tokenize('Hello');
//   SELECT lm_detokenize(lm_tokenize('Hello'));                          -- Hello
//   SELECT id FROM notes WHERE lm_token_count(body) > 900;
//   SELECT lm_token_count('Hello', '{"model":"/models/qwen.gguf"}');
//
//   CREATE VIEW long_notes AS SELECT * FROM notes WHERE lm_token_count(body) > 900;
//   CREATE INDEX notes_by_tokens ON notes(lm_token_count(body));
//
// Without options these are functions of their text and of the connection's model, and views,
// triggers, generated columns and indexes of a database may use them. An index or a stored column
// keeps what was said by the model of the connection that wrote the row. After another model has
// become the default, REINDEX: until then queries that use the index miss rows or find others, and
// DELETE says that the database is malformed. Whoever writes such a table, or runs integrity_check,
// must have loaded this extension, with that model. To be safe from all that, keep the count in a
// column of your own.
//
// A model on the network (lm_models) has these where its option tokenizer says in which file its
// tokens are; lm_token_count asks a llama-server, vLLM or SGLang without it, too, a request a call.
//
// The text is taken as it is: it is not put into the chat template (lm_render shows that), and
// "<|im_end|>" in it is ten characters, not a control token. NULL gives NULL, and so does what is
// no text where the options' on_error says so. Control tokens stand for no text; bytes that form no
// character become U+FFFD.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/text/detokenizer.h"
#include "extension/batch/row_answer.h"
#include "extension/binding/scalar_function.h"
#include "extension/functions/functions.h"
#include "extension/host/flat_array.h"

namespace lm {
namespace {

// Calls `result` with the text of argument 0, unless that is NULL; an error is the row's failure.
// None of the options of argument 1 may be an answer's; without them the settings' on_error does
// not count, for indexes are to say the same whatever that is.
absl::Status OfText(
    Call& call, absl::string_view what,
    absl::FunctionRef<absl::Status(const std::string& text, const CallOptions& options)> result) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(1, "options"));
  RETURN_IF_ERROR(CheckNoneOfAnswers(json));
  ASSIGN_OR_RETURN(const CallOptions options, call.Options(json));
  const absl::StatusOr<std::optional<std::string>> text = call.Text(0, what);
  absl::Status status = text.ok() ? result(**text, options) : text.status();
  if (status.ok() || absl::IsCancelled(status) || !json.has_value()) return status;
  return ResultAnswer(call.context(), {.generation = {.status = std::move(status)}},
                      options.generation.on_error);
}

absl::Status TokenCount(Call& call) {
  return OfText(call, "text", [&call](const std::string& text, const CallOptions& options) {
    const absl::StatusOr<int64_t> tokens =
        options.generator().CountTokens({.task = Task::kScore, .prompt = text});
    if (tokens.ok()) sqlite3_result_int64(call.context(), *tokens);
    return tokens.status();
  });
}

absl::Status Tokenize(Call& call) {
  return OfText(call, "text",
                [&call](const std::string& text, const CallOptions& options) -> absl::Status {
                  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, options.tokenizer());
                  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer->EncodePlain(text));
                  ResultJson(call.context(), absl::StrCat("[", absl::StrJoin(ids, ","), "]"));
                  return absl::OkStatus();
                });
}

std::string Shown(const ArrayElement& element) {
  if (element.kind == ArrayElement::Kind::kNull) return "null";
  if (element.kind != ArrayElement::Kind::kString) return element.text;
  return absl::StrCat("the string '", Printable(absl::string_view(element.text).substr(0, 64)),
                      "'");
}

absl::StatusOr<std::string> TextOfIds(const std::string& ids, const CallOptions& options) {
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, options.tokenizer());
  Detokenizer detokenizer(tokenizer);
  const std::string wanted = absl::StrCat("a token from 0 to ", tokenizer->size() - 1);
  std::string text;
  RETURN_IF_ERROR(ReadFlatArray(
      ids, "ids", wanted, [&](int64_t index, const ArrayElement& element) -> absl::Status {
        bool integer = element.kind == ArrayElement::Kind::kInteger;
        if (!integer || element.integer < 0 || element.integer >= tokenizer->size()) {
          return absl::InvalidArgumentError(
              absl::StrCat("ids[", index, "] must be ", wanted, ", got ", Shown(element)));
        }
        text += detokenizer.Append(static_cast<int32_t>(element.integer));
        return absl::OkStatus();
      }));
  text += detokenizer.Finish();
  if (tokenizer->PutsSpaceFirst() && !text.empty() && text.front() == ' ') text.erase(0, 1);
  return text;
}

absl::Status Detokenize(Call& call) {
  return OfText(call, "ids",
                [&call](const std::string& ids, const CallOptions& options) -> absl::Status {
                  ASSIGN_OR_RETURN(const std::string text, TextOfIds(ids, options));
                  ResultText(call.context(), text);
                  return absl::OkStatus();
                });
}

}  // namespace

int RegisterTokens(const std::shared_ptr<Connection>& connection) {
  // With options they may name any file as a model: that is not for what a database brings along.
  int code = RegisterScalar<&TokenCount>(connection, {"lm_token_count", 1, 1, kPure});
  if (code != SQLITE_OK) return code;
  code = RegisterScalar<&TokenCount>(connection, {"lm_token_count", 2, 2, kDirectOnly});
  if (code != SQLITE_OK) return code;
  code = RegisterScalar<&Tokenize>(connection, {"lm_tokenize", 1, 1, kPure | kReturnsJson});
  if (code != SQLITE_OK) return code;
  code = RegisterScalar<&Tokenize>(connection, {"lm_tokenize", 2, 2, kDirectOnly | kReturnsJson});
  if (code != SQLITE_OK) return code;
  code = RegisterScalar<&Detokenize>(connection, {"lm_detokenize", 1, 1, kPure});
  if (code != SQLITE_OK) return code;
  return RegisterScalar<&Detokenize>(connection, {"lm_detokenize", 2, 2, kDirectOnly});
}

}  // namespace lm
