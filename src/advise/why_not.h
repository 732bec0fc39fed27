// SPDX-License-Identifier: Apache-2.0
//
// Why a change does not help, from where the bytes are at the peaks of two trials.
#pragma once

#include <string>

#include "advise/workbench.h"

namespace headroom {

// One line for a change that lowers `lowers` and after which the run needs no less. REQUIRES: both
// were measured, or `changed` was refused.
std::string WhyNot(const Trial& asked, const Trial& changed, Component lowers);

}  // namespace headroom
