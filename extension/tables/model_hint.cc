#include "extension/tables/model_hint.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/printable.h"
#include "extension/memo/memo_file.h"

namespace lm {
namespace {

std::string Strayed(const ModelInfo& info) {
  return absl::StrCat("the model '", Printable(info.name), "' was made for one thing",
                      info.purpose.text.empty() ? "" : ": ", info.purpose.text,
                      ". It was asked for something else, and its words mean nothing there; name "
                      "another model, in LM_MODEL or temp.lm_models");
}

}  // namespace

std::string ModelHint(Connection& connection, const Generator& generator) {
  std::vector<std::string> hints;
  if (const std::shared_ptr<MemoFile> file = connection.MemoInUse()) {
    hints.push_back(file->Trouble());
  }
  if (connection.HasStrayed(generator)) hints.push_back(Strayed(generator.info()));
  if (const std::string& why = generator.info().device_reason; !why.empty()) {
    hints.push_back(absl::StrCat("device 'auto' is the CPU here: ", why));
  }
  hints.push_back(connection.note());
  hints.push_back(connection.SchemaHint());
  std::erase(hints, "");
  return absl::StrJoin(hints, "; ");
}

}  // namespace lm
