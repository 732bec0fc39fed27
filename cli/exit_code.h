// SPDX-License-Identifier: Apache-2.0
//
// What headroom tells the shell.
#pragma once

#include "base/result.h"

namespace headroom::cli {

enum class ExitCode : int {
  kOk = 0,             // done, or the run fits
  kDoesNotFit = 1,     // the plan was made, and does not fit the device
  kBadInput = 2,       // a file, flag or value of the user's
  kInternal = 3,       // a failure of ours or of the system's
  kInterrupted = 130,  // ended on Ctrl-C, as a shell reports it
};

constexpr ExitCode ExitCodeOf(ErrorCode code) {
  return code == ErrorCode::kInternal ? ExitCode::kInternal : ExitCode::kBadInput;
}

}  // namespace headroom::cli
