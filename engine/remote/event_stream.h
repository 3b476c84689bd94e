// The events of a text/event-stream, of which only `data` matters here.
#ifndef LM_ENGINE_REMOTE_EVENT_STREAM_H_
#define LM_ENGINE_REMOTE_EVENT_STREAM_H_

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lm {

class EventStream {
 public:
  // event(data), a bool, for each event that these bytes complete; false ends it: so does Append.
  template <typename Event>
  bool Append(absl::string_view bytes, Event event) {
    for (char c : bytes) {
      if (c != '\n') {
        line_.push_back(c);
        continue;
      }
      if (absl::EndsWith(line_, "\r")) line_.pop_back();
      absl::string_view line = line_;
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

 private:
  std::string line_;
  std::string data_;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_EVENT_STREAM_H_
