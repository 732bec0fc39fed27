// SPDX-License-Identifier: Apache-2.0
//
// The table of architectures; each is defined in its own file. See docs/adding_an_architecture.md.
#pragma once

#include "predict/model.h"

namespace headroom::predict {

extern const Architecture kBert;
extern const Architecture kGpt2;
extern const Architecture kLlama;

}  // namespace headroom::predict
