// MessageShape: how a conversation is told to a chat template so that none of its texts is lost.
//
// Templates differ in what they read: many drop a role that they do not know, or any system message
// but the first; some have no place for a system prompt at all; some write nothing of a content
// that is a text and no list of parts, or the other way round. So a template is tried with a word
// in the place of each text, and the first shape is taken in which all of them come out.
//
//   absl::StatusOr<MessageShape> shape = FindShape(messages, render);
//   render(ShapeMessages(messages, *shape));
#ifndef LM_ENGINE_TEXT_CHAT_MESSAGE_SHAPE_H_
#define LM_ENGINE_TEXT_CHAT_MESSAGE_SHAPE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "engine/text/chat/chat_template.h"

namespace lm {

struct MessageShape {
  enum class Contents : uint8_t {
    kAsGiven,
    kTexts,       // a list of nothing but texts is one text, with a line end between each two
    kParts,       // a text is a list of one part
    kUsersParts,  // likewise, but not a system's
  };
  enum class Systems : uint8_t {
    kAsGiven,
    kOneInFront,  // those that the conversation begins with are one message, others go as below
    kWithUsers,   // in front of the next message of a user, with an empty line between them
  };
  Contents contents = Contents::kAsGiven;
  Systems systems = Systems::kAsGiven;
  bool developer_is_system = false;  // the role

  bool IsAsGiven() const {
    return contents == Contents::kAsGiven && systems == Systems::kAsGiven && !developer_is_system;
  }
};

// nullopt where the conversation has no such shape: no user speaks after a system. Unfinished where
// it is interrupted (base/checkpoint.h).
std::optional<std::vector<ChatMessage>> ShapeMessages(absl::Span<const ChatMessage> messages,
                                                      const MessageShape& shape);

// What a template makes of messages; FailedPrecondition where it refuses them.
using RenderMessages =
    std::function<absl::StatusOr<std::string>(absl::Span<const ChatMessage> messages)>;

// The first shape in which each text is written, or, where there is none and the template refuses
// the conversation as it is, that one, for the sake of its words. InvalidArgument, naming the
// message, where a text is lost; Cancelled where it is interrupted. White space is no text, and
// what an assistant says beside its tool calls need not be written.
absl::StatusOr<MessageShape> FindShape(absl::Span<const ChatMessage> messages,
                                       const RenderMessages& render);

// Whether all contents are texts, and stand in what was rendered as they are. False where it is
// interrupted.
bool WritesAll(absl::Span<const ChatMessage> messages, absl::string_view rendered);

// The shapes of conversations that were asked for lately. Thread-safe.
class ShapeMemory {
 public:
  // All of a conversation that its shape can depend on: roles, kinds of contents, names of other
  // members. Empty where that is too long to be remembered.
  static std::string NameOf(absl::Span<const ChatMessage> messages);

  std::optional<absl::StatusOr<MessageShape>> Find(absl::string_view name) const;
  void Remember(absl::string_view name, const absl::StatusOr<MessageShape>& shape);

 private:
  mutable absl::Mutex mutex_;
  HashMap<std::string, absl::StatusOr<MessageShape>> shapes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_MESSAGE_SHAPE_H_
