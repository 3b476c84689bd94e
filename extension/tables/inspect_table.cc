// lm_inspect(path [, tokens]): what a model file, or a Hugging Face directory, holds and what it
// takes to run it; loads nothing, and downloads nothing. A name of lm_models goes before a path
//   -> name, family, parameters, bytes, types, context, layers, hidden, vocabulary, tokenizer,
//      template, kv_bytes_per_token, state_bytes, memory_1, memory_16, memory_64, problem, note
//
//   SELECT family, parameters, memory_64, problem FROM lm_inspect('Qwen3-4B-Q4_K_M.gguf');
//   SELECT path, problem FROM files, lm_inspect(path);
//   SELECT memory_16 FROM lm_inspect('hf:Qwen/Qwen3-4B-GGUF:Q4_K_M');   -- once it is downloaded
//   SELECT name, memory_1 FROM lm_inspect('default');                   -- a name of lm_models
//
// One row. `problem` is NULL where the model can be loaded as far as the file's keys tell, and it
// has an embedding, else why not; what else a damaged file lacks is found when it is loaded. `note`
// tells what of the file is left out (the image and sound parts of a model that reads text too),
// else it is NULL. `types` is a JSON object: the bytes of the tensors of each type. `template` is
// what people call the chat template ("chatml", "llama3", ...; "jinja" for any other), NULL where
// the file has none and prompts go to the model as they are.
//
// The cache takes kv_bytes_per_token for every token of a row's prompt and answer that it shares
// with no other, and state_bytes for each row of a recurrent model; layers that see a window only
// take no more than that window. memory_1, memory_16 and memory_64 are the bytes of the weights, as
// the CPU lays them out (IQ1 to IQ3 take up to twice the file's), and of the cache for 1, 16 and 64
// rows of `tokens` tokens (2048, or the context where that is less) that share nothing: what must
// fit for these rows to run together. With less they wait for each other. Keys and values are those
// of lm_settings' kv_type and device.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/model/inspect_model.h"
#include "engine/remote/hub_reference.h"
#include "engine/remote/remote_options.h"
#include "extension/binding/table_function.h"
#include "extension/connection/absolute_path.h"
#include "extension/connection/hub_model.h"
#include "extension/host/aside.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

constexpr int64_t kRowTokens = 2048;
constexpr int64_t kMostRowTokens = INT32_MAX;

class InspectCursor : public TableCursor {
 public:
  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    cells_.clear();
    ASSIGN_OR_RETURN(const std::optional<std::string> path, args.Text(0));
    ASSIGN_OR_RETURN(const std::optional<int64_t> tokens, args.Integer(1));
    if (!path.has_value()) return absl::OkStatus();
    if (tokens.has_value() && (*tokens < 1 || *tokens > kMostRowTokens)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokens must be from 1 to ", kMostRowTokens, ", got ", *tokens));
    }
    ASSIGN_OR_RETURN(const std::string file, FileOf(*path));
    const ModelOptions loading = connection().settings().LoadingOptions();
    ASSIGN_OR_RETURN(const ModelReport report,
                     RunAside(connection().db(), [file, loading](std::atomic<bool>& cancel) {
                       return InspectModel(file, loading.kv_type, loading.device, cancel);
                     }));
    cells_ = CellsOf(report, tokens);
    return absl::OkStatus();
  }

  bool AtEnd() const override { return cells_.empty(); }

  absl::Status Next() override {
    cells_.clear();
    return absl::OkStatus();
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    ResultCell(context, cells_[column]);
    return absl::OkStatus();
  }

  int64_t rowid() const override { return 1; }

 private:
  // What `reference` means: a model of lm_models, by its name or what it was downloaded as, one of
  // the hub, or a path.
  absl::StatusOr<std::string> FileOf(const std::string& reference) const {
    const ModelNames& names = connection().names();
    const NamedModel* model = names.Find(reference);
    for (const NamedModel& other : names.models()) {
      if (model == nullptr && other.source == reference) model = &other;
    }
    std::string path = model != nullptr ? model->path : reference;
    if (model == nullptr && reference == "default") {
      ASSIGN_OR_RETURN(path, FindDefaultModel());
    }
    if (IsHubReference(path)) return FindHubModel(path);
    if (!IsRemotePath(path)) return PathFromHome(path);
    return absl::InvalidArgumentError(absl::StrCat(
        "'", Printable(reference), "' is on the network, and has no file here to look into"));
  }

  static std::vector<Cell> CellsOf(const ModelReport& report,
                                   const std::optional<int64_t>& tokens) {
    auto text = [](const std::string& t) { return t.empty() ? Cell() : Cell(t); };
    // What is not known is not 0.
    auto number = [](bool known, int64_t n) { return known ? Cell(n) : Cell(); };
    const bool read = report.file_bytes > 0, described = report.layers > 0;
    Json types = Json::MakeObject();
    for (const auto& [type, bytes] : report.types) types.Add(type, bytes);
    const int64_t length = tokens.value_or(std::min(kRowTokens, report.context_length));
    auto memory = [&](int64_t rows) { return number(described, report.MemoryFor(rows, length)); };
    return {report.name,
            text(report.architecture),
            number(read, report.parameters),
            number(read, report.file_bytes),
            read ? Cell(types.Dump()) : Cell(),
            number(described, report.context_length),
            number(described, report.layers),
            number(described, report.hidden),
            number(described, report.vocabulary),
            text(report.tokenizer),
            text(TemplateKind(report.chat_template)),
            number(described, report.kv_bytes_per_token()),
            number(described, report.state_bytes),
            memory(1),
            memory(16),
            memory(64),
            text(report.problem),
            text(report.note)};
  }

  std::vector<Cell> cells_;
};

constexpr TableFunctionSpec kInspectSpec = {
    .name = "lm_inspect",
    .columns =
        "name TEXT, family TEXT, parameters INTEGER, bytes INTEGER, types TEXT, "
        "context INTEGER, layers INTEGER, hidden INTEGER, vocabulary INTEGER, "
        "tokenizer TEXT, template TEXT, kv_bytes_per_token INTEGER, state_bytes INTEGER, "
        "memory_1 INTEGER, memory_16 INTEGER, memory_64 INTEGER, problem TEXT, "
        "note TEXT",
    .num_columns = 18,
    .arguments = {"path", "tokens"},
    .missing = "a path is missing: lm_inspect(path)",
    .estimated_rows = 1,
    .open = &MakeCursor<InspectCursor>,
};

}  // namespace

int RegisterInspect(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kInspectSpec);
}

}  // namespace lm
