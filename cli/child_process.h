// SPDX-License-Identifier: Apache-2.0
//
// A command of the user's that runs beside us: started as a shell would, signals passed on, its
// exit code kept.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace headroom::cli {

// The signals that end or steer a command are held back in this thread while a SignalGate lives,
// and come out of Wait instead.
class SignalGate {
 public:
  SignalGate();
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  struct Signal {
    int number = 0;
    bool from_terminal = false;  // the whole foreground group got it
  };
  // A signal, or nullopt after `seconds` without one.
  std::optional<Signal> Wait(double seconds) const;

  const sigset_t& mask_before() const { return before_; }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

// Whether the signal asks to stop (INT, TERM, HUP, QUIT).
bool AsksToStop(int signal);

class ChildProcess {
 public:
  // Fails when the program cannot be started, saying why. Descendants whose parent ends become
  // ours, so that they are still found.
  static Result<ChildProcess> Start(const std::vector<std::string>& command,
                                    const SignalGate& gate);

  pid_t pid() const { return pid_; }
  // Collects every process of ours that has ended. True once the command itself has.
  bool HasEnded();
  // As a shell says it: the exit code, or 128 and the signal. REQUIRES: HasEnded().
  int exit_code() const { return exit_code_; }
  // The signal that ended it, or 0.
  int ended_by() const { return ended_by_; }
  void Forward(SignalGate::Signal signal) const;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = 0;
  bool ended_ = false;
  int exit_code_ = 0;
  int ended_by_ = 0;
};

}  // namespace headroom::cli
