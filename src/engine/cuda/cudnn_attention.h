// SPDX-License-Identifier: Apache-2.0
//
// Attention by a library: cuDNN's fused kernels, where it serves an op and its workspace fits into
// the scratch that the plan gives the op. Elsewhere the kernels of attention.cu and
// flash_attention.cu serve, which take every op.
//
//   auto library = OpenCudnn(0, 90, why);                       // null: not on this machine
//   auto plan = library->Plan(call);                    // before the first step; says why not
//   library->Run(**plan, call, seeds, stream);          // can be captured
//
// The mask of dropout is cuDNN's own, of a seed in device memory: forward and backward agree when
// both run here, with equal seeds. Backward is deterministic, which takes the gradient of the
// scores as workspace; so it runs by some sequences at a time (CudnnSequences), and forward too
// where there is dropout, for the mask depends on the position in such a chunk.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/op_call.h"

namespace headroom::engine::cuda {

struct AttentionPlan {
  virtual ~AttentionPlan() = default;
  std::string op;               // its kind, type, shape, strides and masks, for messages
  int64_t workspace_bytes = 0;  // what cuDNN asks for
  int64_t chunks = 1;           // the batch is run in as many parts of equal size
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  virtual std::string version() const = 0;  // "cuDNN 9.19.0"
  // Of kAttention or kAttentionBackward, with dropout where call.step.training says so; made once
  // for equal shapes. The error says which op is not served, and why.
  virtual Result<const AttentionPlan*> Plan(const OpCall& call) = 0;
  // `seeds`: for each chunk a seed and an offset in device memory; unused without dropout.
  virtual void Run(const AttentionPlan& plan, const OpCall& call, int64_t* seeds,
                   cudaStream_t stream) = 0;
};

// libcudnn.so.9 where the loader finds it, for the current GPU, of this number and compute
// capability: 90. Null without it, or when it cannot be used; then `why` says so. A process has one
// for each GPU, to its end: a plan takes a second to compile.
std::shared_ptr<AttentionLibrary> OpenCudnn(int device, int capability, std::string& why);

}  // namespace headroom::engine::cuda
