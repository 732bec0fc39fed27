// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/cpu_ops.h"

#include <array>

#include "base/check.h"

namespace headroom::engine::cpu {
namespace {

using Function = void (*)(const OpCall&);

// In the order of graph::OpKind.
constexpr std::array<Function, 24> kFunctions = {
    RunEmbedding,
    RunEmbeddingBackward,
    RunLinear,
    RunLinearBackwardInput,
    RunLinearBackwardWeight,
    RunNorm,
    RunNormBackward,
    RunAttention,
    RunAttentionBackward,
    RunRope,
    RunRopeBackward,
    RunActivation,
    RunActivationBackward,
    RunGlu,
    RunGluBackward,
    RunAdd,
    RunDropout,
    RunDropoutBackward,
    RunSelectRows,
    RunSelectRowsBackward,
    RunCrossEntropy,
    RunLinearLoss,
    RunGradNorm,
    RunUpdate,
};
static_assert(kFunctions.size() == static_cast<size_t>(graph::OpKind::kUpdate) + 1);

}  // namespace

void RunCpuOp(const OpCall& call) {
  const auto kind = static_cast<size_t>(call.kind);
  HEADROOM_CHECK(kind < kFunctions.size(), "an op the CPU does not have");
  kFunctions[kind](call);
}

}  // namespace headroom::engine::cpu
