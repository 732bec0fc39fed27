// SPDX-License-Identifier: Apache-2.0
//
// How PyTorch's CUDA reductions (sum, mean, norm) split their work, as far as memory depends on it.
//
// A reduction with few outputs and many inputs for each is spread over several thread blocks; these
// meet in a buffer in device memory, which for the bias gradient of a linear layer is larger than
// the gradient it sums: [2048, 4096] in bf16 needs 64 MiB.
#pragma once

#include <cstdint>
#include <span>

#include "model/catalogue.h"
#include "predict/tensor.h"

namespace headroom::predict {

struct ReductionScratch {
  int64_t buffer = 0;      // bytes; 0 when one block suffices for every output
  int64_t semaphores = 0;  // bytes
};

// The scratch of reducing `dims` of `input` with accumulators of `accumulator_size` bytes.
ReductionScratch PlanReduction(const Tensor& input, std::span<const int> dims,
                               int64_t accumulator_size, const Gpu& gpu);

// Threads an SM of this compute capability holds; 0 is never returned.
int MaxThreadsPerMultiprocessor(const Gpu& gpu);

}  // namespace headroom::predict
