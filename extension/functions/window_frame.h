// Whether a window function that answers row by row is called over a frame in which it can.
//
//   RETURN_IF_ERROR(CheckFrames("SELECT lm_map(body) OVER (ORDER BY id) FROM notes", "lm_map"));
//   // InvalidArgument: ... write OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING)
//
// SQLite tells a window function nothing of its frame, and computes one value for all peers of a
// RANGE or GROUPS frame, such as the default one: each of them would get the first one's answer.
#ifndef LM_EXTENSION_FUNCTIONS_WINDOW_FRAME_H_
#define LM_EXTENSION_FUNCTIONS_WINDOW_FRAME_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lm {

// OK where every call of `function` in the statement has a frame that begins with the current row
// and then goes forward by ROWS, and no FILTER. InvalidArgument, with the frame to write,
// otherwise.
absl::Status CheckFrames(absl::string_view sql, absl::string_view function);

// The error that says which frame to write, because of `why`.
absl::Status WrongFrame(absl::string_view why);

}  // namespace lm

#endif  // LM_EXTENSION_FUNCTIONS_WINDOW_FRAME_H_
