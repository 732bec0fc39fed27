// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <csignal>

namespace headroom::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void Handle(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptScope::InterruptScope()
    : before_interrupt_(std::signal(SIGINT, &Handle)),
      before_terminate_(std::signal(SIGTERM, &Handle)) {}

InterruptScope::~InterruptScope() {
  std::signal(SIGINT, before_interrupt_);
  std::signal(SIGTERM, before_terminate_);
}

bool InterruptScope::Requested() { return interrupted != 0; }

}  // namespace headroom::cli
