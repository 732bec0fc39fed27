// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C as a request: what runs asks for it, and ends where it leaves nothing half done.
#pragma once

namespace headroom::cli {

// While it lives, Ctrl-C and SIGTERM ask to end; a second one ends the program as usual.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Whether somebody has asked.
  static bool Requested();

 private:
  void (*before_interrupt_)(int);
  void (*before_terminate_)(int);
};

}  // namespace headroom::cli
