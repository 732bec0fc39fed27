// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/dropout.h"

#include "base/check.h"

namespace headroom::engine {

DropoutMask MaskOf(const OpCall& call) {
  const float rate = call.attributes.dropout;
  if (!call.step.training || rate == 0) return {};
  HEADROOM_CHECK(rate > 0 && rate < 1, "a dropout rate outside [0, 1)");
  HEADROOM_CHECK(call.step.micro_step < (1 << 16), "more than 65536 micro-steps in one step");
  return {.key = call.step.seed,
          .micro_step = static_cast<uint32_t>(call.step.micro_step),
          .step = static_cast<uint32_t>(call.step.step),
          .stream = call.attributes.stream,
          .threshold = DropThreshold(rate),
          .scale = DropScale(DropThreshold(rate))};
}

}  // namespace headroom::engine
