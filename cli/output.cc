// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "version.h"

namespace headroom::cli {
namespace {

constexpr int kWidest = 110;
constexpr int kWithoutTerminal = 80;

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// POSIX: the first of the three that is set and not empty decides.
bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(Environment(name));
    if (value.empty()) continue;
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

// POSIX: what a user puts into COLUMNS comes before what the terminal says of itself.
int WidthOf(int descriptor, int narrowest) {
  const std::string_view columns = Environment("COLUMNS");
  int width = 0;
  std::from_chars(columns.data(), columns.data() + columns.size(), width);
  winsize size{};
  if (width <= 0 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  return width > 0 ? std::clamp(width, narrowest, kWidest) : kWithoutTerminal;
}

// What a user's file holds must not move the cursor or start a second line.
std::string OneLine(std::string_view message) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  return line;
}

}  // namespace

Result<TextStyle> StyleOf(const Arguments& arguments) {
  return StyleOf(arguments, STDOUT_FILENO, kTableColumns);
}

Result<TextStyle> StyleOf(const Arguments& arguments, int descriptor, int narrowest) {
  const std::string when = arguments.Value("--color").value_or("auto");
  constexpr std::string_view kChoices[] = {"auto", "always", "never"};
  if (std::ranges::find(kChoices, when) == std::end(kChoices)) {
    return Error::BadInput(Format("--color {}: choose auto, always or never", when));
  }
  const bool terminal = ::isatty(descriptor) == 1;
  const bool able = terminal && Environment("NO_COLOR").empty() && Environment("TERM") != "dumb";
  TextStyle style;
  style.colour = when == "always" || (when == "auto" && able);
  style.unicode = LocaleIsUtf8() && (terminal || when == "always");
  style.width = WidthOf(descriptor, narrowest);
  return style;
}

Result<bool> Write(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno != EINTR) {
      return Error::Internal(
          Format("writing to {} failed: {}",
                 descriptor == STDOUT_FILENO ? "standard output" : "standard error",
                 std::strerror(errno)));
    }
  }
  return true;
}

ExitCode Print(std::string_view text, ExitCode code) {
  const Result<bool> written = Write(STDOUT_FILENO, text);
  return written.ok() ? code : Fail("", written.error());
}

std::string Generator() { return Format("headroom {}", kVersion); }

ExitCode Fail(std::string_view command, const Error& error) {
  Warn(command, error.message);
  return ExitCodeOf(error.code);
}

void Warn(std::string_view command, std::string_view message) {
  const std::string_view space = command.empty() ? "" : " ";
  // Where standard error is closed there is nobody to tell.
  (void)Write(STDERR_FILENO, Format("headroom{}{}: {}\n", space, command, OneLine(message)));
}

}  // namespace headroom::cli
