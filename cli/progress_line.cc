// SPDX-License-Identifier: Apache-2.0
#include "progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace headroom::cli {

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::Clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

bool ProgressLine::IsDue() const {
  constexpr auto kEvery = std::chrono::milliseconds(200);
  return terminal_ && std::chrono::steady_clock::now() - last_ >= kEvery;
}

void ProgressLine::Write(const std::string& text) {
  last_ = std::chrono::steady_clock::now();
  std::fputs(("\r" + text + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace headroom::cli
