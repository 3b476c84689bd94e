#include "tests/engine/runtime/scripted_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {

std::vector<int32_t> Bytes(const std::string& text) {
  std::vector<int32_t> tokens;
  for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

void Script::Pause() {
  absl::MutexLock lock(&mutex);
  paused = true;
}

void Script::Resume() {
  absl::MutexLock lock(&mutex);
  paused = false;
}

void Script::AwaitForward(int64_t entered) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (forwards.load() < entered) {
    ASSERT_LT(absl::Now(), deadline) << "the model was not called " << entered << " times";
    absl::SleepFor(absl::Microseconds(100));
  }
}

std::string Script::violation() const {
  absl::MutexLock lock(&mutex);
  return first_violation;
}

void Script::Violate(const std::string& what) {
  absl::MutexLock lock(&mutex);
  if (first_violation.empty()) first_violation = what;
}

ScriptedModel::ScriptedModel(std::shared_ptr<Script> script)
    : script_(std::move(script)), states_(script_->num_states) {
  constexpr int64_t kBlockBytes = kKvBlockTokens * sizeof(Slot);
  cache_.classes.push_back({.num_blocks = script_->num_blocks, .block_bytes = kBlockBytes});
  for (int64_t window : script_->windows) {
    cache_.classes.push_back(
        {.window = window, .num_blocks = script_->num_blocks, .block_bytes = kBlockBytes});
  }
  for (const CacheClass& c : cache_.classes) {
    slots_.emplace_back(int64_t{c.num_blocks} * kKvBlockTokens);
  }
  cache_.whole_sequences = script_->whole_sequences;
  cache_.num_states = script_->num_states;
  if (script_->num_states > 0) cache_.state_bytes = sizeof(State);
}

const int32_t* ScriptedModel::Blocks(const StepSequence& sequence, size_t cache_class) const {
  return step_.tables.blocks[cache_class].data() + sequence.first_block;
}

ScriptedModel::Slot& ScriptedModel::At(const int32_t* blocks, int32_t position,
                                       size_t cache_class) {
  return slots_[cache_class][int64_t{blocks[position / kKvBlockTokens]} * kKvBlockTokens +
                             position % kKvBlockTokens];
}

// False when it was cancelled.
bool ScriptedModel::Linger(const std::atomic<bool>& cancel) {
  const absl::Time end = absl::Now() + script_->step_time;
  for (;;) {
    if (cancel.load(std::memory_order_relaxed)) return false;
    ++script_->looks;
    {
      absl::MutexLock lock(&script_->mutex);
      const bool held = script_->paused || script_->forwards > script_->most_forwards;
      if (!held && absl::Now() >= end) return true;
    }
    absl::SleepFor(absl::Microseconds(50));
  }
}

// What a step that did not end leaves behind.
void ScriptedModel::Spoil() {
  for (const StepSequence& s : step_.tables.sequences) {
    for (size_t c = 0; c < slots_.size(); ++c) {
      for (int32_t p = s.first_position; p < s.context(); ++p) {
        At(Blocks(s, c), p, c) = {.token = -2, .position = -2, .owner = -1, .value = 99};
      }
    }
  }
}

void ScriptedModel::SpoilUnwanted(absl::Span<float> logits) {
  const std::vector<uint64_t>& wanted = step_.wanted_logits;
  ++(wanted.empty() ? script_->all_logits : script_->some_logits);
  if (wanted.empty()) return;
  if (static_cast<int32_t>(wanted.size()) != (vocab_size() + 63) / 64)
    script_->Violate("a mask of another length");
  for (int32_t token = 0; token < vocab_size(); ++token) {
    if (wanted[token / 64] == 0) logits[token] = std::numeric_limits<float>::quiet_NaN();
  }
}

void ScriptedModel::CheckStep() {
  StepIndex index;
  const absl::Status status = IndexStep(&step_.tables, &index);
  if (!status.ok()) return script_->Violate(std::string(status.message()));
  std::set<int32_t> states;
  for (size_t c = 0; c < slots_.size(); ++c) {
    if (index.last_block[c] >= cache_.classes[c].num_blocks) {
      return script_->Violate("no such block");
    }
    std::map<int32_t, int> writers;
    for (const StepSequence& s : step_.tables.sequences) {
      if (s.num_tokens < 1) script_->Violate("a sequence without tokens");
      if (s.context() > script_->context_length) script_->Violate("longer than the context");
      for (int32_t b = s.first_position / kKvBlockTokens; b <= (s.context() - 1) / kKvBlockTokens;
           ++b) {
        if (writers[Blocks(s, c)[b]]++ > 0) script_->Violate("two sequences write one block");
      }
    }
    // Nobody reads a block in the step in which another sequence writes it.
    for (const StepSequence& s : step_.tables.sequences) {
      for (int32_t b = 0; b < s.first_position / kKvBlockTokens; ++b) {
        if (writers.contains(Blocks(s, c)[b])) {
          script_->Violate("a block is read while it is written");
        }
      }
    }
  }
  for (const StepSequence& s : step_.tables.sequences) {
    if ((s.state >= 0) != cache_.recurrent() || s.state >= cache_.num_states) {
      script_->Violate("no such state");
    }
    if (s.state >= 0 && !states.insert(s.state).second) script_->Violate("two have one state");
  }
  script_->most_rows =
      std::max(script_->most_rows.load(), static_cast<int32_t>(step_.tables.tokens.size()));
  script_->most_adapted =
      std::max(script_->most_adapted.load(), static_cast<int32_t>(step_.adapted.size()));
  script_->most_logits =
      std::max(script_->most_logits.load(),
               static_cast<int32_t>(step_.logit_rows.size() + step_.samples.size()));
}

// The state before the sequence's first token of the step, from its keys and values; a recurrent
// model's own must be the same.
uint64_t ScriptedModel::ReadContext(const StepSequence& s) {
  uint64_t state = 0;
  if (cache_.whole_sequences) {
    if (s.first_position > 0) script_->Violate("a part of a text");
    for (int32_t i = 0; i < s.num_tokens; ++i) {
      state = RandomBits(state, step_.tables.tokens[s.first_row + i]);
    }
    return state;
  }
  for (int32_t p = 0; p < s.first_position; ++p) {
    const Slot& slot = At(Blocks(s), p);
    if (slot.position != p) {
      script_->Violate(absl::StrCat("position ", p, " reads position ", slot.position));
    }
    if (slot.adapters != AdaptersOf(s.first_row)) script_->Violate("keys of other adapters");
    state = RandomBits(state, slot.value);
  }
  if (cache_.recurrent() && s.first_position > 0) {
    const State& own = states_[s.state];
    if (own.tokens != s.first_position || own.value != state) {
      script_->Violate(
          absl::StrCat("at ", s.first_position, " the state is one of ", own.tokens, " tokens"));
    }
  }
  return state;
}

// A digest of the row's adapters; 0: it has none.
uint64_t ScriptedModel::AdaptersOf(int32_t row) const {
  uint64_t digest = 0;
  for (const AdaptedRows& run : step_.adapted) {
    if (row < run.begin || row >= run.end) continue;
    for (const AdapterUse& use : run.adapters) {
      digest = RandomBits(digest, static_cast<uint64_t>(1000 + use.scale * 100) * 64 + use.adapter);
    }
  }
  return digest;
}

// Looks at what a token at `position` sees of each window.
void ScriptedModel::ReadWindows(const StepSequence& s, int32_t position) {
  for (size_t c = 1; c < slots_.size(); ++c) {
    const int64_t window = cache_.classes[c].window;
    for (int64_t p = std::max<int64_t>(position - window + 1, 0); p <= position; ++p) {
      if (Blocks(s, c)[p / kKvBlockTokens] < 0) {
        return script_->Violate(absl::StrCat("position ", p, " is gone at ", position));
      }
      const Slot& slot = At(Blocks(s, c), static_cast<int32_t>(p), c);
      if (slot.position != p || slot.value != At(Blocks(s), static_cast<int32_t>(p)).value) {
        return script_->Violate(absl::StrCat("position ", p, " of a window reads position ",
                                             slot.position, " at ", position));
      }
    }
  }
}

void ScriptedModel::CheckOwner(const StepSequence& s, int32_t owner) {
  for (size_t c = 0; c < slots_.size(); ++c) {
    for (int32_t b = 0; b < BlocksFor(s.context()); ++b) {
      const int64_t block = Blocks(s, c)[b];
      for (int32_t i = 0; block >= 0 && i < kKvBlockTokens; ++i) {
        const Slot& slot = slots_[c][block * kKvBlockTokens + i];
        if (slot.owner != -1 && slot.owner != owner) script_->Violate("another owner's data");
      }
    }
  }
}

// Computes the tokens and what may be picked of at once, as a queue would come to it.
absl::Status ScriptedModel::Begin(ModelStep step) {
  script_->begun_behind += is_picked_;
  step_ = std::move(step);
  for (int32_t& token : step_.tables.tokens) {
    if (token >= 0) continue;
    if (!is_picked_ || ~token >= static_cast<int32_t>(stand_ins_.size())) {
      script_->Violate("a token that nothing picks");
    } else {
      token = stand_ins_[~token];
    }
  }
  for (const CacheOp& op : step_.cache_ops) {
    const absl::Status status = ApplyCacheOp(op);
    if (!status.ok()) return status;
  }
  CheckStep();
  if (!step_.logit_rows.empty() || !step_.hidden_rows.empty() || cache_.recurrent()) {
    script_->Violate("a step that is queued has results");
  }
  if (!script_->violation().empty()) return absl::InternalError(script_->violation());
  if (script_->throw_in > 0 && --script_->throw_in == 0) throw std::bad_alloc();
  for (int32_t token : step_.tables.tokens) {
    if (token == script_->error_token) return absl::InternalError("the device failed");
  }
  begun_.clear();
  auto sample = step_.samples.begin();
  for (const StepSequence& s : step_.tables.sequences) {
    uint64_t state = ReadContext(s);
    const int32_t owner =
        s.first_position == 0 ? step_.tables.tokens[s.first_row] : At(Blocks(s), 0).token;
    for (int32_t i = 0; i < s.num_tokens; ++i) {
      ComputeToken(s, i, owner, &state);
      if (sample == step_.samples.end() || sample->row != s.first_row + i) continue;
      begun_.emplace_back(vocab_size());
      Logits(Blocks(s), s.first_position + i, state, absl::MakeSpan(begun_.back()));
      ++sample;
    }
    if (script_->tenants) CheckOwner(s, owner);
  }
  if (sample != step_.samples.end()) script_->Violate("fewer samples than wanted");
  return absl::OkStatus();
}

absl::Status ScriptedModel::Pick(std::vector<SamplingRow> samples,
                                 std::vector<uint64_t> wanted_logits) {
  is_picked_ = true;
  picked_ = {};
  stand_ins_.clear();
  step_.wanted_logits = std::move(wanted_logits);
  for (const SamplingRow& sample : samples) {
    const auto row = std::find_if(step_.samples.begin(), step_.samples.end(),
                                  [&](const SamplingRow& s) { return s.row == sample.row; });
    if (row == step_.samples.end()) return absl::InternalError("a row that has not begun");
    std::vector<float> logits = begun_[row - step_.samples.begin()];
    SpoilUnwanted(absl::MakeSpan(logits));
    picked_.tokens.push_back(SampleToken(logits, sample));
    const bool late = script_->late_each > 0 && ++num_picked_ % script_->late_each == 0;
    picked_.late.push_back(late || !picked_.tokens.back().ok());
    stand_ins_.push_back(picked_.late.back() ? 0 : *picked_.tokens.back());
  }
  return absl::OkStatus();
}

absl::Status ScriptedModel::Await(const std::atomic<bool>& cancel, StepResults* results) {
  if (!is_picked_) script_->Violate("nothing was picked");
  ++script_->forwards;
  is_picked_ = false;
  if (!Linger(cancel)) {
    ++script_->cancelled_forwards;
    return absl::CancelledError("cancelled");
  }
  *results = std::move(picked_);
  return absl::OkStatus();
}

void ScriptedModel::ComputeToken(const StepSequence& s, int32_t i, int32_t owner, uint64_t* state) {
  const int32_t p = s.first_position + i;
  const int32_t token = step_.tables.tokens[s.first_row + i];
  const uint64_t adapters = AdaptersOf(s.first_row + i);
  const uint64_t value = RandomBits(*state, token + 1000 * p) + adapters;
  for (size_t c = 0; c < slots_.size(); ++c) {
    At(Blocks(s, c), p, c) = {token, p, owner, value, adapters};
  }
  ReadWindows(s, p);
  *state = RandomBits(*state, value);
}

absl::Status ScriptedModel::Run(ModelStep step, const std::atomic<bool>& cancel,
                                StepResults* results) {
  is_picked_ = false;
  step_ = std::move(step);
  results->late.clear();
  results->cache_ops_left = std::exchange(step_.cache_ops, {});
  while (!results->cache_ops_left.empty()) {
    RETURN_IF_ERROR(ApplyCacheOp(results->cache_ops_left.front()));
    results->cache_ops_left.erase(results->cache_ops_left.begin());
  }
  results->logits.assign(step_.logit_rows.size() * vocab_size(), 0);
  results->tokens.clear();
  results->hidden.assign(step_.hidden_rows.size() * kHiddenSize, 0);
  ++script_->forwards;
  CheckStep();
  if (!script_->violation().empty()) return absl::InternalError(script_->violation());
  std::vector<uint64_t> begin;
  for (const StepSequence& s : step_.tables.sequences) begin.push_back(ReadContext(s));
  Spoil();
  if (!Linger(cancel)) {
    ++script_->cancelled_forwards;
    return absl::CancelledError("cancelled");
  }
  if (script_->throw_in > 0 && --script_->throw_in == 0) throw std::bad_alloc();
  for (int32_t token : step_.tables.tokens) {
    if (token == script_->error_token) return absl::InternalError("the device failed");
  }
  auto wanted = step_.logit_rows.begin();
  auto wanted_hidden = step_.hidden_rows.begin();
  auto sample = step_.samples.begin();
  absl::Span<float> logits = absl::MakeSpan(results->logits);
  absl::Span<float> hidden = absl::MakeSpan(results->hidden);
  for (size_t n = 0; n < begin.size(); ++n) {
    const StepSequence& s = step_.tables.sequences[n];
    uint64_t state = begin[n];
    const int32_t owner =
        s.first_position == 0 ? step_.tables.tokens[s.first_row] : At(Blocks(s), 0).token;
    for (int32_t i = 0; i < s.num_tokens; ++i) {
      const int32_t p = s.first_position + i;
      const int32_t token = step_.tables.tokens[s.first_row + i];
      ComputeToken(s, i, owner, &state);
      const bool read = wanted != step_.logit_rows.end() && *wanted == s.first_row + i;
      const bool sampled = sample != step_.samples.end() && sample->row == s.first_row + i;
      std::vector<float> row(read || sampled ? vocab_size() : 0);
      if (!row.empty()) {
        Logits(Blocks(s), p, state, absl::MakeSpan(row));
        SpoilUnwanted(absl::MakeSpan(row));
      }
      if (sampled) results->tokens.push_back(SampleToken(row, *sample++));
      if (read) {
        std::copy(row.begin(), row.end(), logits.begin());
        logits.remove_prefix(vocab_size());
        ++wanted;
      }
      if (wanted_hidden != step_.hidden_rows.end() && *wanted_hidden == s.first_row + i) {
        for (int32_t n = 0; n < kHiddenSize; ++n) {
          hidden[n] = token == script_->nan_token ? std::numeric_limits<float>::quiet_NaN()
                                                  : static_cast<float>(RandomUniform(state, n));
        }
        hidden.remove_prefix(kHiddenSize);
        ++wanted_hidden;
      }
    }
    if (cache_.recurrent()) states_[s.state] = {s.context(), owner, state};
    if (script_->tenants) CheckOwner(s, owner);
  }
  if (!logits.empty()) script_->Violate("fewer logit rows than room");
  if (sample != step_.samples.end()) script_->Violate("fewer samples than wanted");
  if (!hidden.empty()) script_->Violate("fewer hidden rows than room");
  return absl::OkStatus();
}

absl::Span<char> ScriptedModel::BlockMemory(int32_t cache_class, int32_t block) {
  ++script_->blocks_shown;
  Slot* const first = &slots_[cache_class][int64_t{block} * kKvBlockTokens];
  return {reinterpret_cast<char*>(first), kKvBlockTokens * sizeof(Slot)};
}

absl::Span<char> ScriptedModel::StateMemory(int32_t slot) {
  if (states_.empty()) return {};
  return {reinterpret_cast<char*>(&states_[slot]), sizeof(State)};
}

absl::StatusOr<std::vector<float>> ScriptedModel::ApplyHead(bool ranks,
                                                            absl::Span<const float> pooled) {
  std::vector<float> result(pooled.begin(), pooled.end());
  if (ranks) std::reverse(result.begin(), result.end());
  return result;
}

void ScriptedModel::Logits(const int32_t* blocks, int32_t position, uint64_t state,
                           absl::Span<float> row) {
  for (int32_t i = 0; i < vocab_size(); ++i) {
    row[i] = static_cast<float>(RandomUniform(state, i) * 8 - 4);
  }
  if (script_->nan_token < 0 && script_->says.empty()) return;
  std::vector<int32_t> context;
  for (int32_t p = 0; p <= position; ++p) context.push_back(At(blocks, p).token);
  for (const auto& [prompt, answer] : script_->says) {
    if (context.size() < prompt.size() ||
        !std::equal(prompt.begin(), prompt.end(), context.begin())) {
      continue;
    }
    const size_t said = context.size() - prompt.size();
    row[said < answer.size() ? answer[said] : kImEnd] = 100;
  }
  if (std::find(context.begin(), context.end(), script_->nan_token) != context.end()) {
    row[kVocabSize / 2] = std::numeric_limits<float>::quiet_NaN();
  }
}

absl::Status ScriptedModel::ApplyCacheOp(const CacheOp& op) {
  if (script_->block_errors > 0 && script_->block_errors-- > 0) {
    return absl::InternalError(op.kind == CacheOp::Kind::kZeroBlock ? "the clearing failed"
                                                                    : "the copy failed");
  }
  if (op.kind == CacheOp::Kind::kCopyState) {
    ++script_->state_copies;
    states_[op.to] = states_[op.from];
    return absl::OkStatus();
  }
  std::vector<Slot>& slots = slots_[op.cache_class];
  const auto to = slots.begin() + int64_t{op.to} * kKvBlockTokens;
  if (op.kind == CacheOp::Kind::kZeroBlock) {
    ++script_->zeroed;
    std::fill_n(to, kKvBlockTokens, Slot{});
    return absl::OkStatus();
  }
  ++script_->copies;
  if (op.from == op.to) script_->Violate("a block is copied to itself");
  std::copy_n(slots.begin() + int64_t{op.from} * kKvBlockTokens, op.tokens, to);
  return absl::OkStatus();
}

std::unique_ptr<Model> MakeScriptedModel(std::shared_ptr<Script> script,
                                         const std::string& chat_template) {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  // The byte alphabet of GPT-2: printable bytes stand for themselves, the others for U+0100 on.
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    AppendUtf8(printable ? byte : next++, &vocabulary.tokens.emplace_back());
  }
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"<|im_start|>", "<|im_end|>", "<s>"});
  while (vocabulary.tokens.size() < kVocabSize) {
    vocabulary.tokens.push_back(absl::StrCat("<|spare", vocabulary.tokens.size(), "|>"));
  }
  vocabulary.types.assign(kVocabSize, TokenType::kNormal);
  for (int32_t i = 256; i < kVocabSize; ++i) vocabulary.types[i] = TokenType::kControl;
  vocabulary.eos = kImEnd;
  vocabulary.suppressed = script->suppressed;
  vocabulary.chat_template = chat_template;
  auto chat = ChatTemplate::Create(vocabulary);
  EXPECT_TRUE(chat.ok()) << chat.status();
  auto tokenizer = Tokenizer::Create(vocabulary);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  ModelInfo info;
  info.name = "scripted";
  info.adapters = script->adapters;
  info.prefix_store = script->prefix_store;
  if (!info.prefix_store.empty()) {
    info.exact = true;
    info.identity = absl::StrCat("scripted ", script->num_states > 0);
    for (const int64_t window : script->windows) absl::StrAppend(&info.identity, " ", window);
  }
  return std::make_unique<Model>(std::move(info), *std::move(tokenizer), *std::move(chat),
                                 std::make_unique<ScriptedModel>(std::move(script)));
}

std::shared_ptr<Engine> StartScripted(std::shared_ptr<Script> script,
                                      const EngineOptions& options) {
  return Engine::Start(MakeScriptedModel(std::move(script)), options).value();
}

Generation Generate(Engine& engine, RequestSpec spec) {
  auto request = engine.Submit(std::move(spec));
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? Await(*request) : Generation{.status = request.status()};
}

Generation Await(const std::shared_ptr<Request>& request) {
  EXPECT_TRUE(request->WaitFor(absl::Seconds(30))) << "no answer";
  return request->result();
}

}  // namespace lm
