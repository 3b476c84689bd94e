// The events of a text/event-stream, of which only `data` matters here. (Lines end in LF, CR or
// both, and a byte order mark may stand before the first:
// https://html.spec.whatwg.org/#parsing-an-event-stream)
#ifndef LM_ENGINE_REMOTE_EVENT_STREAM_H_
#define LM_ENGINE_REMOTE_EVENT_STREAM_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lm {

class EventStream {
 public:
  // event(data), a bool, for each event that these bytes complete; false ends it: so does Append.
  template <typename Event>
  bool Append(absl::string_view bytes, Event event) {
    for (char c : bytes) {
      // Of CR LF the LF ends nothing.
      if (std::exchange(after_cr_, c == '\r') && c == '\n') continue;
      if (c != '\n' && c != '\r') {
        line_.push_back(c);
        continue;
      }
      absl::string_view line = line_;
      if (std::exchange(is_first_, false)) absl::ConsumePrefix(&line, kByteOrderMark);
      if (line.empty() && !data_.empty() && !event(std::exchange(data_, ""))) return false;
      if (absl::ConsumePrefix(&line, "data:")) {
        absl::ConsumePrefix(&line, " ");
        if (!data_.empty()) data_.push_back('\n');
        data_.append(line.data(), line.size());
      }
      line_.clear();
    }
    return true;
  }

  // The bytes of the event that is not complete.
  size_t held() const { return line_.size() + data_.size(); }

 private:
  static constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

  bool is_first_ = true;
  bool after_cr_ = false;
  std::string line_;
  std::string data_;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_EVENT_STREAM_H_
