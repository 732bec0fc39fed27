// SPDX-License-Identifier: Apache-2.0
#include "child_process.h"

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <iterator>

#include "base/format.h"

namespace headroom::cli {
namespace {

constexpr int kHeld[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

}  // namespace

SignalGate::SignalGate() {
  sigemptyset(&held_);
  for (const int signal : kHeld) sigaddset(&held_, signal);
  // SIGCHLD that is ignored, as some parents leave it, would lose the exit code.
  std::signal(SIGCHLD, SIG_DFL);
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

SignalGate::~SignalGate() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::optional<SignalGate::Signal> SignalGate::Wait(double seconds) const {
  const double whole = std::floor(std::max(0.0, seconds));
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(whole);
  limit.tv_nsec = static_cast<long>((std::max(0.0, seconds) - whole) * 1e9);
  siginfo_t info{};
  const int number = sigtimedwait(&held_, &info, &limit);
  if (number < 0) return std::nullopt;
  return Signal{number, info.si_code == SI_KERNEL};
}

bool AsksToStop(int signal) {
  constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  return std::ranges::find(kStops, signal) != std::end(kStops);
}

Result<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command,
                                         const SignalGate& gate) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<char*> words;
  // posix_spawn takes char* and changes nothing behind it.
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&attributes, &gate.mask_before());
  // main ignores it, and what is ignored stays so through exec.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, words[0], nullptr, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0) {
    return Error::BadInput(
        Format("{} cannot be started: {}", command.front(), std::strerror(failure)));
  }
  return ChildProcess(pid);
}

bool ChildProcess::HasEnded() {
  int status = 0;
  for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0;
       pid = ::waitpid(-1, &status, WNOHANG)) {
    if (pid != pid_) continue;
    ended_ = true;
    ended_by_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    exit_code_ = ended_by_ != 0 ? 128 + ended_by_ : WEXITSTATUS(status);
  }
  return ended_;
}

void ChildProcess::Forward(SignalGate::Signal signal) const {
  // What a terminal sends, the command has had as well: it is in our process group.
  if (ended_ || signal.number == SIGCHLD || signal.from_terminal) return;
  ::kill(pid_, signal.number);
}

}  // namespace headroom::cli
