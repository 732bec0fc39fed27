// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cuda_ops.h"

#include "base/check.h"
#include "base/format.h"

namespace headroom::engine::cuda {
namespace {

using graph::OpKind;

void Dispatch(const OpCall& call, const Launch& launch) {
  switch (call.kind) {
    case OpKind::kEmbedding:
      return RunEmbedding(call, launch);
    case OpKind::kEmbeddingBackward:
      return RunEmbeddingBackward(call, launch);
    case OpKind::kLinear:
      return RunLinear(call, launch);
    case OpKind::kLinearBackwardInput:
      return RunLinearBackwardInput(call, launch);
    case OpKind::kLinearBackwardWeight:
      return RunLinearBackwardWeight(call, launch);
    case OpKind::kNorm:
      return RunNorm(call, launch);
    case OpKind::kNormBackward:
      return RunNormBackward(call, launch);
    case OpKind::kAttention:
      return RunAttention(call, launch);
    case OpKind::kAttentionBackward:
      return RunAttentionBackward(call, launch);
    case OpKind::kRope:
    case OpKind::kRopeBackward:
      return RunRope(call, launch);
    case OpKind::kActivation:
    case OpKind::kActivationBackward:
    case OpKind::kGlu:
    case OpKind::kGluBackward:
    case OpKind::kAdd:
    case OpKind::kDropout:
    case OpKind::kDropoutBackward:
      return RunElementwise(call, launch);
    case OpKind::kSelectRows:
    case OpKind::kSelectRowsBackward:
      return RunSelectRows(call, launch);
    case OpKind::kCrossEntropy:
      return RunCrossEntropy(call, launch);
    case OpKind::kLinearLoss:
      return RunLinearLoss(call, launch);
    case OpKind::kGradNorm:
      return RunGradNorm(call, launch);
    case OpKind::kUpdate:
      return RunUpdate(call, launch);
  }
}

}  // namespace

void RunCudaOp(const OpCall& call, const Launch& launch) {
  Dispatch(call, launch);
  const cudaError_t error = cudaPeekAtLastError();
  HEADROOM_CHECK(error == cudaSuccess, Format("{} could not be launched: {}", Name(call.kind),
                                              cudaGetErrorString(error)));
}

}  // namespace headroom::engine::cuda
