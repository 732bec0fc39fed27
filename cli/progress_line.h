// SPDX-License-Identifier: Apache-2.0
//
// ProgressLine: one line on stderr that says how far long work is, a few times a second; where
// stderr is no terminal, nothing. It is gone with the object.
#pragma once

#include <chrono>
#include <string>

namespace headroom::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows what `text()` returns, which is asked only when the line is due.
  template <typename Text>
  void Show(const Text& text) {
    if (IsDue()) Write(text());
  }
  void Clear();

 private:
  bool IsDue() const;
  void Write(const std::string& text);

  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace headroom::cli
