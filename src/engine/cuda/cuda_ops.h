// SPDX-License-Identifier: Apache-2.0
//
// The ops of graph/op.h on CUDA: each puts kernels on a stream and returns. Storage is float32,
// float16 or bfloat16, sums are float32; a result depends on the operands alone, to the bit.
//
// An op that WorkspaceOf (workspace.h) gives room has that as its last scratch. What changes from
// step to step is read on the device, so that a captured graph sees it; of the host's StepScalars
// only `training` and whether micro_step is 0 decide what is launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/op_call.h"

namespace headroom::engine::cuda {

class GemmLibrary;
class AttentionLibrary;
struct AttentionPlan;

// A piece of a gradient or of a parameter: one block's work.
struct TableChunk {
  uint32_t entry = 0;
  uint32_t count = 0;
  int64_t start = 0;
};
// The operands of one parameter of kUpdate; of kGradNorm only the gradient.
struct TableEntry {
  std::byte* gradient = nullptr;
  std::byte* weight = nullptr;
  std::byte* m = nullptr;
  std::byte* v = nullptr;
  std::byte* copy = nullptr;
  float* m_scales = nullptr;
  float* v_scales = nullptr;
  DType gradient_type{};
  DType weight_type{};
  DType copy_type{};
  DType state_type{};
};
// Elements of one chunk; a multiple of the quantised block.
inline constexpr int64_t kTableChunk = 1 << 14;
// Blocks of columns that one sum over rows has at most.
inline constexpr int64_t kCounters = 4096;
// In device memory, made before the first step, for kGradNorm and kUpdate alone.
struct OpTable {
  const TableEntry* entries = nullptr;
  const TableChunk* chunks = nullptr;
  int64_t chunk_count = 0;
};

// Of an op that a library runs; else there is no plan.
struct AttentionLaunch {
  AttentionLibrary* library = nullptr;
  const AttentionPlan* plan = nullptr;
  int64_t* seeds = nullptr;  // in device memory
};
// Whose mask, and of which part of the batch.
struct SeedRequest {
  uint32_t stream = 0;
  uint32_t chunk = 0;
};

struct Launch {
  cudaStream_t stream = nullptr;
  const StepScalars* scalars = nullptr;  // in device memory
  // Maps and middles of both 8-bit quantisers: 4 x 256 floats in device memory.
  const float* quantiser_maps = nullptr;
  // Zeroes in device memory, which kernels leave as zeroes.
  uint32_t* counters = nullptr;
  // Of StepScalars.halt, for kUpdate alone: the loss, and whether an update was halted.
  const float* loss = nullptr;
  uint32_t* halted = nullptr;
  GemmLibrary* gemm = nullptr;
  bool tf32 = false;
  OpTable table;
  AttentionLaunch attention;
};

// REQUIRES: operands in device memory, as graph/op.h lists them.
void RunCudaOp(const OpCall& call, const Launch& launch);

void RunElementwise(const OpCall& call, const Launch& launch);
void RunRope(const OpCall& call, const Launch& launch);
void RunSelectRows(const OpCall& call, const Launch& launch);
void RunEmbedding(const OpCall& call, const Launch& launch);
void RunEmbeddingBackward(const OpCall& call, const Launch& launch);
void RunNorm(const OpCall& call, const Launch& launch);
void RunNormBackward(const OpCall& call, const Launch& launch);
void RunAttention(const OpCall& call, const Launch& launch);
void RunAttentionBackward(const OpCall& call, const Launch& launch);
void RunLinear(const OpCall& call, const Launch& launch);
void RunLinearBackwardInput(const OpCall& call, const Launch& launch);
void RunLinearBackwardWeight(const OpCall& call, const Launch& launch);
void RunLinearLoss(const OpCall& call, const Launch& launch);
void RunCrossEntropy(const OpCall& call, const Launch& launch);
void RunGradNorm(const OpCall& call, const Launch& launch);
void RunUpdate(const OpCall& call, const Launch& launch);

// Cross-entropy of some rows of logits; row_losses has room for a float of each.
void CrossEntropyRows(const OpCall& call, const Launch& launch, const TensorView& logits,
                      const TensorView& labels, int64_t first_label, const TensorView& loss,
                      float* row_losses);
// out[column] (+)= the sum over rows of x; `room` has kSumParts * columns floats. Rows whose
// index is not `wanted` are left out, where there are indices.
void SumRows(const Launch& launch, const TensorView& x, const TensorView& out, int64_t out_row,
             bool add, float* room, const TensorView& index = {}, int64_t wanted = 0);
// Whether the tensor-core kernels take this attention; else the general ones do.
bool RunFlashAttention(const OpCall& call, const Launch& launch);
bool RunFlashAttentionBackward(const OpCall& call, const Launch& launch, const float* delta);
// Whether products of matrices took it: where the workspace has room for its scores.
bool RunProductAttention(const OpCall& call, const Launch& launch);
bool RunProductAttentionBackward(const OpCall& call, const Launch& launch, const float* delta);

void SetScalars(const StepScalars& scalars, StepScalars* device, cudaStream_t stream);

// A seed and an offset for each request, of the scalars' seed, step and micro-step. All in device
// memory.
void SetDropoutSeeds(const StepScalars* scalars, const SeedRequest* requests, int64_t count,
                     int64_t* seeds, cudaStream_t stream);

inline TensorView Operand(std::span<const TensorView> operands, size_t position) {
  return position < operands.size() ? operands[position] : TensorView{};
}
inline std::byte* WorkspaceOf(const OpCall& call) {
  return call.scratch.empty() ? nullptr : call.scratch.back().data;
}
inline bool AddsToWeight(const OpCall& call) {
  return call.step.micro_step > 0 || call.attributes.accumulate;
}

}  // namespace headroom::engine::cuda
