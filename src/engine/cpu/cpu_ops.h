// SPDX-License-Identifier: Apache-2.0
//
// The ops of graph/op.h on the CPU. Storage is float32, float16 or bfloat16, arithmetic float32.
//
// An op writes its outputs and its scratch, and allocates nothing but, once per thread, the
// buffers of matrix products and attention. Its result depends on the operands alone, to the bit:
// neither on the number of threads nor on where the arena lies.
#pragma once

#include "engine/op_call.h"

namespace headroom::engine::cpu {

// REQUIRES: operands as graph/op.h lists them, with the shapes they stand for.
void RunCpuOp(const OpCall& call);

// With this many rows of logits in kLinearLoss's scratch, or a multiple, and a float32 dweight,
// loss and gradients have the bits that they have in one chunk.
inline constexpr int64_t kLossRows = 256;

// OpenBLAS promises no bits: what asks for them has to leave it out.
#if defined(HEADROOM_HAS_OPENBLAS)
inline constexpr bool kExactProducts = false;
#else
inline constexpr bool kExactProducts = true;
#endif

// The widest head of kAttention.
inline constexpr int64_t kMaxHeadDim = 256;

void RunEmbedding(const OpCall& call);
void RunEmbeddingBackward(const OpCall& call);
void RunLinear(const OpCall& call);
void RunLinearBackwardInput(const OpCall& call);
void RunLinearBackwardWeight(const OpCall& call);
void RunNorm(const OpCall& call);
void RunNormBackward(const OpCall& call);
void RunAttention(const OpCall& call);
void RunAttentionBackward(const OpCall& call);
void RunRope(const OpCall& call);
void RunRopeBackward(const OpCall& call);
void RunActivation(const OpCall& call);
void RunActivationBackward(const OpCall& call);
void RunGlu(const OpCall& call);
void RunGluBackward(const OpCall& call);
void RunAdd(const OpCall& call);
void RunDropout(const OpCall& call);
void RunDropoutBackward(const OpCall& call);
void RunSelectRows(const OpCall& call);
void RunSelectRowsBackward(const OpCall& call);
void RunCrossEntropy(const OpCall& call);
void RunLinearLoss(const OpCall& call);
void RunGradNorm(const OpCall& call);
void RunUpdate(const OpCall& call);

// Softmax cross-entropy of some rows: adds the loss to `loss`, and in training turns the logits
// into their gradient. Rows are summed in groups of kLossRows.
void CrossEntropyRows(const OpCall& call, const TensorView& logits, const TensorView& labels,
                      int64_t first_label, const TensorView& loss);

}  // namespace headroom::engine::cpu
