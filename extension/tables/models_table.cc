// temp.lm_models(name, path, options, architecture, parameters, quantisation, context, device,
//                bytes, status, constraints, pack_cache, device_reason)
//   the models of this connection, by name
//
//   INSERT INTO temp.lm_models(name, path) VALUES ('qwen', '/models/qwen2.5-0.5b-q8_0.gguf');
//   INSERT INTO temp.lm_models(name, path, options)
//     VALUES ('default', '/models/big.gguf', '{"threads":8,"kv_bytes":4000000000}');
//   SELECT generate('Hello', NULL, '{"model":"qwen"}'), generate('Hello');
//   UPDATE temp.lm_models SET path = '/models/qwen2.gguf' WHERE name = 'qwen';
//   DELETE FROM temp.lm_models WHERE name = 'qwen';
//   INSERT INTO temp.lm_models VALUES ('qwen', '/models/qwen2.5-0.5b-q8_0.gguf');
//   SELECT name, path, architecture, bytes FROM temp.lm_models;
//
// `path` may be the directory of a release as Hugging Face has it (engine/hf/hf_directory.h).
//
// A model may be elsewhere, behind servers of OpenAI's API (vLLM, SGLang, llama-server, Ollama, or
// hosted); `path` is then its address, or a JSON array of several:
//
//   INSERT INTO temp.lm_models(name, path, options)
//     VALUES ('fleet', 'http://gpu-1:8000/v1', '{"model":"Qwen3-32B","concurrency":64}');
//
// Options, all with defaults: model (the first that the server lists), dialect (auto, openai, vllm,
// sglang, llama-server, trtllm, ollama), key_env (an environment variable that has the key),
// headers and extra (objects: of every request; null in extra takes away what it would have),
// check, concurrency (16, of each server), rpm and tpm (requests and tokens a minute, of prompts
// and answers), affinity_header (a header that tells a gateway the system prompt, by a number, so
// that its rows go to one server), timeout_ms (600000), retries (4), context_length, price_in and
// price_out (of a million tokens: lm_stats.cost, lm_explain), tokenizer, pooling ("rank": it is a
// reranker, whose scores lm_rank and lm_top_k take, and writes no text).
//
// tokenizer is a file or directory with the model's tokenizer, as `path` of a model here would be;
// no weights are read. With it everything that counts tokens is exact (lm_tokenize, lm_chunks,
// lm_summarize, lm_agg, lm_explain), and a prompt that is too long for context_length is found out
// before it is sent. Without it lm_token_count, lm_chunks, lm_summarize and lm_agg ask the server,
// where that has an API for it; else the last three take a byte for a token, and lm_token_count is
// an error. lm_explain guesses. A prompt that a server refuses as too long is cut as on_overflow
// says, by whole characters, and sent again. lm_logprobs needs a model here.
//
// Constraints are asked for in the server's own way, after a first question that shows whether it
// keeps to them, and every answer is held to them here; lm_if and lm_score need its logprobs, or
// {"vote": 5} of a call. What the rows say is sent there: nothing else ever is but that question,
// and only to addresses that stand in this table.
//
// Writing a row sends nothing: rows are written by each connection that a program opens, whether it
// asks the model then or not, servers are paid by the request, and may be down. The first question
// of a kind of constraint is asked when the first row needs it. With {"check":true} in the options
// all are asked at once, while the row is written:
//
//   INSERT INTO temp.lm_models(name, path, options)
//     VALUES ('fleet', 'http://gpu-1:8000/v1', '{"model":"Qwen3-32B","check":true}');
//   SELECT status, constraints FROM temp.lm_models WHERE name = 'fleet';
//
// What the servers say against it (no such model, a wrong key) is the INSERT's error. Where none
// answers the row is written all the same, and status says why; it takes no longer than 10 seconds
// to connect, 30 for the list of models, a minute for the questions, and can be interrupted. status
// is 'ready' once the model is in use; constraints is JSON: for each kind 'kept', or why the server
// is not believed in it, or null while nothing is known.
//
// A model of the hub is downloaded when its row is written, once for all processes of this user:
//
//   INSERT INTO temp.lm_models(name, path) VALUES ('qwen', 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0');
//
// hf:owner/name, a quantisation (in upper or lower case; unless given Q4_K_M, else Q8_0) or a file
// behind a colon, and a revision behind an @ where it is not main. It goes to
// $LM_CACHE/hf/owner/name (else $XDG_CACHE_HOME/sqlite-lm, ~/.cache/sqlite-lm) and stays there; a
// file that is put there by other means is as good. A download that was cut short goes on where it
// was; a file without the size and the SHA-256 that the hub tells is refused. lm_downloads shows
// how far it is, and so does the terminal. $HF_TOKEN is sent to the hub only, which is $HF_ENDPOINT
// where that is set; where the hub leads to other hosts, LM_HOSTS must allow them too.
//
// The columns from `options` on are hidden: SELECT * and INSERT without names mean the first two.
// A row is checked when it is written: the file must open as a GGUF, and `options` be a JSON object
// of device, threads, kv_bytes, kv_type, pack_cache and context_length, which go before
// lm_settings, lora, draft, and price_in and price_out, what a million tokens of prompts and of
// answers are to cost here (for max_cost, lm_explain and lm_stats.cost). The model is loaded at its
// first use. Until then the columns from `architecture` on are NULL; reading them loads nothing;
// writing them is refused. Names belong to the connection, weights to the process: two connections
// that name one file share its weights. The last one to let go frees them.
//
// lora has adapters (LoRA, as GGUF) that rows may be computed with, over the same weights:
//
//   INSERT INTO temp.lm_models(name, path, options) VALUES ('qwen', '/models/qwen3-4b.gguf',
//     '{"lora":[{"name":"sql","path":"sql-lora.gguf","scale":0},
//               {"name":"tone","path":"tone-lora.gguf"}]}');
//   SELECT generate(body, NULL, '{"model":"qwen","lora":[{"name":"sql"}]}') FROM notes;
//
// A path that is not absolute is seen from the model's folder. scale (1) says how much of an
// adapter a call has that says nothing of lora, 0 none. A call that does has the adapters it names
// and no others, each as much as the call's own scale (1) says; [] is the model as it is. Rows with
// different adapters decode together; each has the bytes that it has alone, and finds the prefixes
// of its own adapters only. `bytes` counts the adapters. A row with other adapters for the same
// file loads the file once more.
//
// draft names a smaller model of the same vocabulary, which guesses what this one says: several
// guesses are checked in one step, where that is quicker (the option `speculate` of a call), and
// answers are the same. It has a KV cache of its own, an eighth of this one's.
//
//   INSERT INTO temp.lm_models(name, path, options)
//     VALUES ('large', '/models/qwen2.5-7b.gguf', '{"draft":"qwen2.5-0.5b.gguf"}');
//
// The row 'default' is there before it is written, where $LM_MODEL or a model beside the library
// provides it; an INSERT of that name takes its place, and DELETE gives it back. Changes follow
// transactions.
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/remote/hub_reference.h"
#include "engine/remote/remote_generator.h"
#include "extension/binding/snapshot_table.h"
#include "extension/connection/check_model.h"
#include "extension/connection/hub_model.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

// The row that is there unless it is written.
constexpr int64_t kImplicitDefault = 0;

class ModelsTable : public WritableTable {
 public:
  enum Column {
    kName,
    kPath,
    kOptions,
    kArchitecture,
    kStatus = 9,
    kConstraints,
    kPackCache,
    kDeviceReason,
    kNumColumns
  };

  using WritableTable::WritableTable;

  const char* name() const override { return "lm_models"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_models(name TEXT, path TEXT, options TEXT HIDDEN, "
           "architecture TEXT HIDDEN, parameters INTEGER HIDDEN, quantisation TEXT HIDDEN, "
           "context INTEGER HIDDEN, device TEXT HIDDEN, bytes INTEGER HIDDEN, "
           "status TEXT HIDDEN, constraints TEXT HIDDEN, pack_cache TEXT HIDDEN, "
           "device_reason TEXT HIDDEN)";
  }
  int num_writable() const override { return kArchitecture; }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    if (connection().names().Find("default") == nullptr) {
      absl::StatusOr<std::string> path = FindDefaultModel();
      if (path.ok()) rows.push_back(RowOf({kImplicitDefault, "default", *path, ""}));
    }
    for (const NamedModel& model : connection().names().models()) rows.push_back(RowOf(model));
    return rows;
  }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell> cells, OnConflict on_conflict) override {
    ASSIGN_OR_RETURN(NamedModel model, ModelOf(cells));
    ModelNames names = connection().names();
    model.rowid = names.NextRowid();
    const int64_t rowid = model.rowid;
    if (const NamedModel* namesake = names.Find(model.name)) {
      if (on_conflict == OnConflict::kIgnore) return 0;
      if (on_conflict == OnConflict::kReplace) names.Remove(namesake->rowid);
    }
    RETURN_IF_ERROR(Put(std::move(names), std::move(model)));
    return rowid;
  }

  absl::Status Update(int64_t rowid, absl::Span<const Cell> cells,
                      OnConflict on_conflict) override {
    if (rowid == kImplicitDefault) return Insert(cells, on_conflict).status();
    ASSIGN_OR_RETURN(NamedModel model, ModelOf(cells));
    model.rowid = rowid;
    ModelNames names = connection().names();
    const NamedModel* namesake = names.Find(model.name);
    if (namesake != nullptr && namesake->rowid != rowid) {
      if (on_conflict == OnConflict::kIgnore) return absl::OkStatus();
      if (on_conflict == OnConflict::kReplace) names.Remove(namesake->rowid);
    }
    return Put(std::move(names), std::move(model));
  }

  absl::Status Delete(int64_t rowid) override {
    // It is there as long as it is not written.
    if (rowid == kImplicitDefault) return absl::OkStatus();
    ModelNames names = connection().names();
    names.Remove(rowid);
    connection().SetNames(std::move(names));
    return absl::OkStatus();
  }

  std::shared_ptr<const void> Save() const override {
    return std::make_shared<const ModelNames>(connection().names());
  }
  void Restore(const void* saved) override {
    connection().SetNames(*static_cast<const ModelNames*>(saved));
  }

 private:
  // Puts the model into `names`, which become the connection's. Checks it, where it wants that.
  absl::Status Put(ModelNames names, NamedModel model) {
    RETURN_IF_ERROR(names.Put(model));
    ModelNames before = connection().names();
    connection().SetNames(names);
    absl::StatusOr<std::string> status = CheckModel(connection(), model.name);
    if (!status.ok()) {
      connection().SetNames(std::move(before));
      return status.status();
    }
    if (status->empty()) return absl::OkStatus();
    model.status = *std::move(status);
    RETURN_IF_ERROR(names.Put(std::move(model)));
    connection().SetNames(std::move(names));
    return absl::OkStatus();
  }

  SnapshotRow RowOf(const NamedModel& model) {
    const bool downloaded = !model.source.empty();
    SnapshotRow row = {model.rowid, {model.name, downloaded ? model.source : model.path}};
    row.cells.push_back(model.options.empty() ? Cell() : Cell(model.options));
    absl::StatusOr<ModelSource> source =
        connection().names().Resolve(model.name, connection().settings());
    const Generator* generator = source.ok() ? connection().FindLoaded(*source) : nullptr;
    if (generator != nullptr) {
      const ModelInfo& info = generator->info();
      row.cells.insert(row.cells.end(),
                       {info.architecture, info.parameters, info.quantisation,
                        int64_t{info.context_length}, info.device, info.weight_bytes, "ready"});
      row.cells.push_back(ConstraintsOf(*generator));
      row.cells.push_back(info.pack_cache.empty() ? Cell() : Cell(info.pack_cache));
      row.cells.push_back(info.device_reason.empty() ? Cell() : Cell(info.device_reason));
    }
    row.cells.resize(kNumColumns);
    if (generator == nullptr && !model.status.empty()) row.cells[kStatus] = model.status;
    return row;
  }

  // {"choices":"kept","regex":null,...}: null where nothing is known yet.
  static Cell ConstraintsOf(const Generator& generator) {
    for (const std::shared_ptr<RemoteGenerator>& remote : RunningRemoteGenerators()) {
      if (remote.get() != &generator) continue;
      Json kinds = Json::MakeObject();
      for (const ConstraintProof& proof : remote->Proofs()) {
        kinds.Add(std::string(proof.kind), proof.words.empty() ? Json() : Json(proof.words));
      }
      return kinds.Dump();
    }
    return Cell();
  }

  // The columns that can be written.
  absl::StatusOr<NamedModel> ModelOf(absl::Span<const Cell> cells) {
    const auto* name = std::get_if<std::string>(&cells[kName]);
    const auto* path = std::get_if<std::string>(&cells[kPath]);
    const auto* options = std::get_if<std::string>(&cells[kOptions]);
    if (name == nullptr) return absl::InvalidArgumentError("name must be a text");
    if (path == nullptr) return absl::InvalidArgumentError("path must be a text");
    if (options == nullptr && !std::holds_alternative<std::monostate>(cells[kOptions])) {
      return absl::InvalidArgumentError("options must be a JSON object or NULL");
    }
    NamedModel model{0, *name, *path, options != nullptr ? *options : ""};
    if (IsHubReference(*path)) {
      ASSIGN_OR_RETURN(model.path, FetchHubModel(connection(), *path));
      model.source = *path;
    }
    return model;
  }
};

}  // namespace

int RegisterModels(const std::shared_ptr<Connection>& connection) {
  return RegisterWritableTable(connection, "lm_models", &MakeTable<ModelsTable>);
}

}  // namespace lm
