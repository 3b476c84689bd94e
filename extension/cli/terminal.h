// What the terminal shows: a line that is written over, numbers as people read them, tables.
#ifndef LM_EXTENSION_CLI_TERMINAL_H_
#define LM_EXTENSION_CLI_TERMINAL_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lm::cli {

// A line on stderr, in the program's name.
void Say(absl::string_view message);

// One line on stderr that each Show replaces; nothing where stderr is no terminal. Gone with it.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { Clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void Show(const std::string& text);
  void Clear();

 private:
  const bool terminal_;
  bool shown_ = false;
};

// "[=====>    ]", `share` of it in [0, 1].
std::string Bar(double share, int width);
std::string Duration(double seconds);  // "45 s", "3:20", "1:02:00"
std::string Bytes(double bytes);       // "639 MB"
std::string Count(double number);      // "596M"
std::string Fixed(double number, int digits);

// As many bytes of it, at most, as are whole characters.
std::string Beginning(absl::string_view text, size_t bytes);

// Columns as wide as their widest cell, two blanks between them; numbers to the right. Cells may
// come from anywhere: nothing in them commands the terminal.
std::string Table(std::vector<std::vector<std::string>> rows);

}  // namespace lm::cli

#endif  // LM_EXTENSION_CLI_TERMINAL_H_
