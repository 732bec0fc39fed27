// SPDX-License-Identifier: Apache-2.0
//
// What a byte of GPU memory is for. The same words stand in code, command line, JSON and HTML;
// docs/glossary.md defines each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom {

// The first eight are held by tensors or library workspaces inside the allocator and sum to the
// allocated total; with kCache they sum to reserved; with kContext to the device total.
enum class Component : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,  // forward results that backward needs, 16-bit weight copies of autocast included
  kTemporaries,  // scratch inside an op, gradients of activations, foreach and unscaling copies
  kInputs,       // token ids, labels, masks, the model's buffers
  kKvCache,
  kWorkspace,  // cuBLAS and cuDNN scratch
  kCache,      // reserved by the allocator and not allocated: free blocks, fragmentation
  kContext,    // CUDA context and libraries, outside the allocator
};
inline constexpr int kComponentCount = 10;
// Those that a MemoryEvent can carry; kCache and kContext are derived totals.
inline constexpr int kAllocatedComponentCount = 8;

// "weights", "gradients", …, "kv_cache", …
std::string_view Name(Component component);
std::optional<Component> ParseComponent(std::string_view name);

// What an activation or temporary holds: a second word, for reports and advice.
enum class Kind : uint8_t {
  kOther,
  kAttention,        // q, k, v and the attention output
  kAttentionScores,  // materialised batch x heads x seq x seq
  kLogitsLoss,       // logits, their fp32 copies, log-probabilities and their gradients
  kDropoutMask,
  kDropout,
  kNorm,
  kMlp,
  kEmbedding,
  kResidual,
  kCast,      // 16-bit copies made by autocast
  kPosition,  // rotary tables, position ids, causal masks
  kRouting,   // mixture-of-experts router and dispatch
  kForeach,   // temporaries of multi-tensor optimizer and clipping kernels
  kLora,
  kCollective,  // buffers of all-gather, reduce-scatter and all-reduce
};
inline constexpr int kKindCount = 16;

std::string_view Name(Kind kind);
std::optional<Kind> ParseKind(std::string_view name);

}  // namespace headroom
