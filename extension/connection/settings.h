// What temp.lm_settings holds: a connection's defaults.
#ifndef LM_EXTENSION_CONNECTION_SETTINGS_H_
#define LM_EXTENSION_CONNECTION_SETTINGS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/model/model.h"
#include "extension/host/sqlite_value.h"

namespace lm {

// A value type; a setting that is absent has its default.
struct Settings {
  std::optional<std::string> model;           // a name of lm_models, or a path
  std::optional<int64_t> threads;             // of the CPU
  std::optional<std::string> device;          // "cpu", "cuda", ...
  std::optional<int64_t> kv_bytes;            // cap of a model's KV cache
  std::optional<std::string> kv_type;         // "auto", "f16", "int16", "int8", "f32"
  std::optional<std::string> pack_cache;      // the folder of packed weights; default: none
  std::optional<std::string> prefix_store;    // the folder of stored prefixes; default: none
  std::optional<int64_t> prefix_store_bytes;  // what it may hold
  std::optional<std::string> memo;            // the file that keeps answers; default: memory only
  std::optional<int64_t> memo_bytes;          // what it may hold
  std::optional<std::string> salt;            // whose prefix cache; default: this database's own
  std::optional<std::string> lookahead;       // "on", "off"; default: on
  std::optional<std::string> network;         // "on", "off": whether models elsewhere may be asked
  std::optional<std::string> system;          // the system prompt of calls that give none
  // generate()'s options that are set, by their names: what the options of a call do not say.
  std::map<std::string, Cell, std::less<>> options;

  static constexpr std::array<absl::string_view, 30> kKeys = {"model",
                                                              "threads",
                                                              "device",
                                                              "kv_bytes",
                                                              "kv_type",
                                                              "pack_cache",
                                                              "prefix_store",
                                                              "prefix_store_bytes",
                                                              "memo",
                                                              "memo_bytes",
                                                              "salt",
                                                              "lookahead",
                                                              "network",
                                                              "system",
                                                              "max_tokens",
                                                              "temperature",
                                                              "top_k",
                                                              "top_p",
                                                              "min_p",
                                                              "seed",
                                                              "repeat_penalty",
                                                              "thinking",
                                                              "thinking_tokens",
                                                              "on_overflow",
                                                              "on_error",
                                                              "timeout_ms",
                                                              "max_seconds",
                                                              "max_total_tokens",
                                                              "max_cost",
                                                              "speculate"};

  // The value of a key; monostate where it is not set.
  // REQUIRES: key is one of kKeys.
  Cell Get(absl::string_view key) const;
  // What holds where it is not set; monostate for none, and for `salt`, which the connection knows.
  static Cell Default(absl::string_view key);

  // Sets a key, or, with monostate, gives it its default back. InvalidArgument for an unknown key,
  // a wrong type or a value out of range; all are named. FailedPrecondition for a device that is
  // not to be had here.
  absl::Status Set(absl::string_view key, const Cell& value);

  // `options` as ParseGenerationOptions takes them; empty where there are none.
  std::string OptionsJson() const;

  // How a model is loaded that says nothing else itself.
  ModelOptions LoadingOptions() const;

 private:
  absl::Status SetOption(absl::string_view key, const Cell& value);
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_SETTINGS_H_
