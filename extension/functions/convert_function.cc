// lm_convert(source, destination, type [, options])   JSON: a model as a GGUF file of another type
//
//   SELECT lm_convert('/models/Qwen3-0.6B', '/models/qwen3-0.6b-q4.gguf', 'Q4_K_M');
//     {"tensors":311,"source_bytes":1192099840,"bytes":396705472}
//
//   -- How much worse is it? Perplexity of texts of one's own, before and after.
//   SELECT lm_convert('/models/Qwen3-0.6B', 'q4.gguf', 'Q4_K_M',
//                     json_object('texts', json_group_array(body))) FROM notes;
//     {..., "perplexity_before":14.2,"perplexity_after":14.9}
//
// source is the path of a GGUF file, or of a Hugging Face directory; type one of F32, F16, BF16,
// Q8_0, Q6_K, Q4_0, Q4_K_M. What is at the destination is never written over; the file appears
// there when all is done, and a conversion that fails or is interrupted leaves nothing. Where the
// connection may not ATTACH the destination, it may not write it either. Options: threads (0: all
// that this process may use); texts, an array: those of the perplexity, for which both models are
// loaded, one after the other; importance, an array of other texts: the source is run over them,
// and the weights that they multiply most are made more exact than others (an "importance matrix").
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_features.h"
#include "engine/base/json.h"
#include "engine/base/max_threads.h"
#include "engine/base/status_macros.h"
#include "engine/convert/convert_model.h"
#include "engine/convert/text_runs.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/absolute_path.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/host/aside.h"
#include "extension/host/ask_authorizer.h"

namespace lm {
namespace {

absl::StatusOr<std::string> Path(Call& call, int i, absl::string_view what) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, call.Text(i, what));
  if (!text.has_value() || text->empty() || text->find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(what, " must be the path of a file"));
  }
  return AbsolutePath(what, *text);
}

// The array of texts of that name; empty where there is none.
absl::StatusOr<std::vector<std::string>> Texts(const std::optional<std::string>& options,
                                               const std::string& name) {
  std::vector<std::string> texts;
  if (!options.has_value()) return texts;
  const std::optional<Json> json = Json::Parse(*options);
  const Json* const given = json ? json->Find(name) : nullptr;
  if (given == nullptr || given->is_null()) return texts;
  for (size_t i = 0; given->is_array() && i < given->size(); ++i) {
    const Json& text = given->array()[i];
    if (text.is_null()) continue;
    if (!text.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(name, "[", i, "] must be a text"));
    }
    texts.push_back(text.string());
  }
  if (!given->is_array()) return absl::InvalidArgumentError(name + " must be an array");
  return texts;
}

absl::Status Convert(Call& call) {
  if (StatementCall::IsWithinAnother()) {
    return absl::FailedPreconditionError(
        "it writes a file, which a SELECT given to another function or table may not");
  }
  ASSIGN_OR_RETURN(const std::string source, Path(call, 0, "source"));
  ASSIGN_OR_RETURN(const std::string destination, Path(call, 1, "destination"));
  ASSIGN_OR_RETURN(const std::optional<std::string> type, call.Text(2, "type"));
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(3, "options"));
  ASSIGN_OR_RETURN(const OwnOptions own,
                   OwnOptions::Take(json, {"texts", "importance", "threads"}));
  RETURN_IF_ERROR(own.CheckNoOthers());
  ASSIGN_OR_RETURN(int64_t threads, own.Integer("threads", 0, 0, kMaxThreads));
  if (threads == 0) threads = AvailableCpus();
  const int num_threads = static_cast<int>(threads);
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, Texts(json, "texts"));
  ASSIGN_OR_RETURN(const std::vector<std::string> samples, Texts(json, "importance"));
  sqlite3* const db = call.connection().db();
  RETURN_IF_ERROR(CheckMayAttach(db, destination));
  RETURN_IF_ERROR(CheckConversion(destination, type.value_or("")));
  std::optional<double> before, after;
  auto measure = [&](const std::string& path, std::optional<double>* perplexity) -> absl::Status {
    if (texts.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(*perplexity,
                     RunAside(db, [path, texts, num_threads](std::atomic<bool>& cancel) {
                       return MeasurePerplexity(path, texts, num_threads, cancel);
                     }));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(measure(source, &before));
  Importance importance;
  if (!samples.empty()) {
    ASSIGN_OR_RETURN(importance,
                     RunAside(db, [source, samples, num_threads](std::atomic<bool>& cancel) {
                       return MeasureImportance(source, samples, num_threads, cancel);
                     }));
  }
  ASSIGN_OR_RETURN(const ConvertReport made,
                   ConvertModel(source, destination, type.value_or(""), num_threads, importance,
                                [&](const std::string& path) { return measure(path, &after); }));
  Json report = Json::MakeObject();
  report.Add("tensors", made.tensors);
  report.Add("source_bytes", made.source_bytes);
  report.Add("bytes", made.bytes);
  if (before.has_value()) report.Add("perplexity_before", *before);
  if (after.has_value()) report.Add("perplexity_after", *after);
  ResultJson(call.context(), report.Dump());
  return absl::OkStatus();
}

}  // namespace

int RegisterConvert(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Convert>(connection, {"lm_convert", 3, 4, kDirectOnly | kReturnsJson});
}

}  // namespace lm
