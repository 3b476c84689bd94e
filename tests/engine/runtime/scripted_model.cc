#include "tests/engine/runtime/scripted_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <new>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/random.h"
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
    : script_(std::move(script)), slots_(int64_t{script_->num_blocks} * kKvBlockTokens) {}

ScriptedModel::Slot& ScriptedModel::At(absl::Span<const int32_t> blocks, int32_t position) {
  return slots_[int64_t{blocks[position / kKvBlockTokens]} * kKvBlockTokens +
                position % kKvBlockTokens];
}

// False when it was cancelled.
bool ScriptedModel::Linger(const std::atomic<bool>& cancel) {
  const absl::Time end = absl::Now() + script_->step_time;
  for (;;) {
    if (cancel.load(std::memory_order_relaxed)) return false;
    {
      absl::MutexLock lock(&script_->mutex);
      const bool held = script_->paused || script_->forwards > script_->most_forwards;
      if (!held && absl::Now() >= end) return true;
    }
    absl::SleepFor(absl::Microseconds(50));
  }
}

// What a forward pass that did not end leaves behind.
void ScriptedModel::Spoil(const Batch& batch) {
  for (const SequenceSpan& s : batch.sequences) {
    for (int32_t i = 0; i < s.num_tokens; ++i) {
      At(s.blocks, s.first_position + i) = {.token = -2, .position = -2, .owner = -1, .value = 99};
    }
  }
}

void ScriptedModel::SpoilUnwanted(absl::Span<const uint64_t> wanted, absl::Span<float> logits) {
  ++(wanted.empty() ? script_->all_logits : script_->some_logits);
  if (wanted.empty()) return;
  if (wanted.size() != (kVocabSize + 63) / 64) script_->Violate("a mask of another length");
  for (int32_t token = 0; token < kVocabSize; ++token) {
    if (wanted[token / 64] == 0) logits[token] = std::numeric_limits<float>::quiet_NaN();
  }
}

void ScriptedModel::CheckBatch(const Batch& batch) {
  int32_t row = 0;
  std::map<int32_t, int> writers;
  for (const SequenceSpan& s : batch.sequences) {
    if (s.first_row != row || s.num_tokens < 1) script_->Violate("rows with gaps");
    row += s.num_tokens;
    const int32_t end = s.first_position + s.num_tokens;
    if (end > script_->context_length) script_->Violate("longer than the context");
    if (static_cast<int64_t>(s.blocks.size()) * kKvBlockTokens < end) {
      return script_->Violate("too few blocks");
    }
    for (int32_t block : s.blocks) {
      if (block < 0 || block >= script_->num_blocks) return script_->Violate("no such block");
    }
    for (int32_t b = s.first_position / kKvBlockTokens; b <= (end - 1) / kKvBlockTokens; ++b) {
      if (writers[s.blocks[b]]++ > 0) script_->Violate("two sequences write one block");
    }
  }
  // Nobody reads a block in the step in which another sequence writes it.
  for (const SequenceSpan& s : batch.sequences) {
    for (int32_t b = 0; b < s.first_position / kKvBlockTokens; ++b) {
      if (writers.contains(s.blocks[b])) script_->Violate("a block is read while it is written");
    }
  }
  if (row != static_cast<int32_t>(batch.tokens.size())) script_->Violate("rows not covered");
  script_->most_rows = std::max(script_->most_rows.load(), row);
  script_->most_logits =
      std::max(script_->most_logits.load(), static_cast<int32_t>(batch.logit_rows.size()));
}

absl::Status ScriptedModel::Forward(const Batch& batch, const std::atomic<bool>& cancel,
                                    absl::Span<float> logits) {
  ++script_->forwards;
  CheckBatch(batch);
  if (!script_->violation().empty()) return absl::InternalError(script_->violation());
  Spoil(batch);
  if (!Linger(cancel)) {
    ++script_->cancelled_forwards;
    return absl::CancelledError("cancelled");
  }
  if (script_->throw_in > 0 && --script_->throw_in == 0) throw std::bad_alloc();
  for (int32_t token : batch.tokens) {
    if (token == script_->error_token) return absl::InternalError("the device failed");
  }
  auto wanted = batch.logit_rows.begin();
  auto wanted_hidden = batch.hidden_rows.begin();
  absl::Span<float> hidden = batch.hidden;
  for (const SequenceSpan& s : batch.sequences) {
    uint64_t state = 0;
    for (int32_t p = 0; p < s.first_position; ++p) {
      const Slot& slot = At(s.blocks, p);
      if (slot.position != p) {
        script_->Violate(absl::StrCat("position ", p, " reads position ", slot.position));
      }
      state = RandomBits(state, slot.value);
    }
    const int32_t owner = s.first_position == 0 ? batch.tokens[s.first_row] : At(s.blocks, 0).token;
    for (int32_t i = 0; i < s.num_tokens; ++i) {
      const int32_t p = s.first_position + i;
      const int32_t token = batch.tokens[s.first_row + i];
      const uint64_t value = RandomBits(state, token + 1000 * p);
      At(s.blocks, p) = {token, p, owner, value};
      state = RandomBits(state, value);
      if (wanted != batch.logit_rows.end() && *wanted == s.first_row + i) {
        Logits(s.blocks, p, state, logits.subspan(0, kVocabSize));
        SpoilUnwanted(batch.wanted_logits, logits.subspan(0, kVocabSize));
        logits.remove_prefix(kVocabSize);
        ++wanted;
      }
      if (wanted_hidden != batch.hidden_rows.end() && *wanted_hidden == s.first_row + i) {
        for (int32_t n = 0; n < kHiddenSize; ++n) {
          hidden[n] = token == script_->nan_token ? std::numeric_limits<float>::quiet_NaN()
                                                  : static_cast<float>(RandomUniform(state, n));
        }
        hidden.remove_prefix(kHiddenSize);
        ++wanted_hidden;
      }
    }
    if (!script_->tenants) continue;
    for (int32_t b : s.blocks) {
      for (int32_t i = 0; i < kKvBlockTokens; ++i) {
        const Slot& slot = slots_[int64_t{b} * kKvBlockTokens + i];
        if (slot.owner != -1 && slot.owner != owner) script_->Violate("another owner's data");
      }
    }
  }
  if (!logits.empty()) script_->Violate("fewer logit rows than room");
  if (!hidden.empty()) script_->Violate("fewer hidden rows than room");
  return absl::OkStatus();
}

void ScriptedModel::Logits(absl::Span<const int32_t> blocks, int32_t position, uint64_t state,
                           absl::Span<float> row) {
  for (int32_t i = 0; i < kVocabSize; ++i) {
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

absl::Status ScriptedModel::CopyKvBlock(int32_t from, int32_t to, int32_t tokens) {
  if (script_->block_errors > 0 && script_->block_errors-- > 0) {
    return absl::InternalError("the copy failed");
  }
  ++script_->copies;
  if (from == to) script_->Violate("a block is copied to itself");
  std::copy_n(slots_.begin() + int64_t{from} * kKvBlockTokens, tokens,
              slots_.begin() + int64_t{to} * kKvBlockTokens);
  return absl::OkStatus();
}

absl::Status ScriptedModel::ZeroKvBlock(int32_t block) {
  if (script_->block_errors > 0 && script_->block_errors-- > 0) {
    return absl::InternalError("the clearing failed");
  }
  ++script_->zeroed;
  std::fill_n(slots_.begin() + int64_t{block} * kKvBlockTokens, kKvBlockTokens, Slot{});
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
  vocabulary.chat_template = chat_template;
  auto chat = ChatTemplate::Create(vocabulary);
  EXPECT_TRUE(chat.ok()) << chat.status();
  auto tokenizer = Tokenizer::Create(vocabulary);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  ModelInfo info;
  info.name = "scripted";
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
