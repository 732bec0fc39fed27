// SPDX-License-Identifier: Apache-2.0
//
// Python tracebacks in a text: as the interpreter prints them, as IPython does, with log prefixes.
//
//   File "/x/train.py", line 88, in main            ("[rank0]:   File …" too)
//   File /x/train.py:88, in main(args)              IPython 8
//   /x/train.py in main(args)                       IPython 7, then "---> 88     code"
#pragma once

#include <string_view>
#include <vector>

#include "observe/oom_message.h"

namespace headroom::observe {

// The frames of the last traceback that ends in front of `text`'s end, outermost first. At most
// kMostFrames, the innermost.
std::vector<TracebackFrame> LastTraceback(std::string_view text);

inline constexpr size_t kMostFrames = 1000;

}  // namespace headroom::observe
