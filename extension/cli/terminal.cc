#include "extension/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"
#include "engine/base/printed.h"
#include "engine/base/utf8.h"

namespace lm::cli {
namespace {

size_t Columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string WithUnit(double number, double thousand, const char* blank,
                     const std::vector<const char*>& units) {
  size_t unit = 0;
  while (number >= thousand && unit + 1 < units.size()) {
    number /= thousand;
    ++unit;
  }
  return absl::StrCat(Fixed(number, number < 10 && unit > 0 ? 1 : 0), blank, units[unit]);
}

// Characters, not bytes: what follows the first byte of one is not counted.
size_t Width(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

bool IsNumber(absl::string_view cell) {
  return !cell.empty() && (absl::ascii_isdigit(cell[0]) || (cell[0] == '-' && cell.size() == 1));
}

}  // namespace

void Say(absl::string_view message) {
  std::fprintf(stderr, "sqlite-lm: %s\n", std::string(message).c_str());
}

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

void StatusLine::Show(const std::string& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", Beginning(text, Columns() - 1).c_str());
  std::fflush(stderr);
  shown_ = true;
}

void StatusLine::Clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

std::string Bar(double share, int width) {
  const int done = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  std::string bar(done, '=');
  if (done < width) bar += '>';
  bar.resize(width, ' ');
  return absl::StrCat("[", bar, "]");
}

std::string Duration(double seconds) {
  const int whole = static_cast<int>(std::min(seconds, 1e9) + 0.5);
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return Printed("%d:%02d", whole / 60, whole % 60);
  return Printed("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string Bytes(double bytes) {
  return WithUnit(bytes, 1000, " ", {"B", "kB", "MB", "GB", "TB"});
}
std::string Count(double number) { return WithUnit(number, 1000, "", {"", "k", "M", "B", "T"}); }
std::string Fixed(double number, int digits) { return Printed("%.*f", digits, number); }

std::string Beginning(absl::string_view text, size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  text = text.substr(0, bytes);
  return std::string(text.substr(0, text.size() - IncompleteUtf8Suffix(text)));
}

std::string Table(std::vector<std::vector<std::string>> rows) {
  for (std::vector<std::string>& row : rows) {
    for (std::string& cell : row) cell = Printable(cell);
  }
  std::vector<size_t> widths;
  std::vector<bool> numbers;
  for (size_t r = 0; r < rows.size(); ++r) {
    widths.resize(std::max(widths.size(), rows[r].size()));
    numbers.resize(widths.size(), true);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      widths[c] = std::max(widths[c], Width(rows[r][c]));
      if (r > 0 && !rows[r][c].empty() && !IsNumber(rows[r][c])) numbers[c] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - Width(row[c]), ' ');
      if (c > 0) line += "  ";
      line += numbers[c] ? blanks + row[c] : row[c] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace lm::cli
