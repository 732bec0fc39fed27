// SPDX-License-Identifier: Apache-2.0
//
// FrameFacts: what one frame of a call stack gives away, as a set of flags.
//
// The rules are a table of names (frame_facts.cc). A user's own function never decides: only exact
// names of PyTorch's and the Hugging Face libraries' functions, and C++ symbols, count.
//
//   torch/nn/modules/linear.py:134:forward            kForward | kLinear
//   torch::autograd::Engine::thread_main(…)           kEngine
//   train.py:88:profile_memory_forward_fullstep       nothing
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::observe {

enum class FrameFact : uint64_t {
  kPython = 1ULL << 0,
  // What is being done.
  kEngine = 1ULL << 1,          // autograd runs a node
  kAccumulateGrad = 1ULL << 2,  // autograd stores a gradient
  kOptimizerStep = 1ULL << 3,
  kOptimizerState = 1ULL << 4,  // creates state that stays
  kClip = 1ULL << 5,            // clipping and unscaling of gradients
  kZeroGrad = 1ULL << 6,
  kLoad = 1ULL << 7,      // weights come to the device
  kData = 1ULL << 8,      // a batch comes to the device
  kForward = 1ULL << 9,   // inside a module's forward
  kReducer = 1ULL << 10,  // DistributedDataParallel's gradient buckets
  kEvaluation = 1ULL << 11,
  kSave = 1ULL << 12,
  kGenerate = 1ULL << 13,
  // What the memory is.
  kWorkspace = 1ULL << 14,
  kMask = 1ULL << 15,
  kLoss = 1ULL << 16,
  kAttention = 1ULL << 17,
  kRotary = 1ULL << 18,
  kLora = 1ULL << 19,
  kKvCache = 1ULL << 20,
  kAutocast = 1ULL << 21,
  kActivationFunction = 1ULL << 22,
  kNorm = 1ULL << 23,
  kEmbedding = 1ULL << 24,
  kDropout = 1ULL << 25,
  kLinear = 1ULL << 26,
  kRouting = 1ULL << 27,
  kModeling = 1ULL << 28,  // a file that defines a model
  kMlp = 1ULL << 29,
  kPlumbing = 1ULL << 30,      // wrappers that say nothing to a reader: _call_impl, decorators
  kAllocator = 1ULL << 31,     // the allocator itself and the unwinder
  kBackwardCall = 1ULL << 32,  // Python on its way into autograd
};

using FrameFacts = uint64_t;

constexpr bool Has(FrameFacts facts, FrameFact fact) {
  return (facts & static_cast<uint64_t>(fact)) != 0;
}

FrameFacts FactsOf(std::string_view name, std::string_view filename);

// "mm" of "at::_ops::mm::call(…)", or "".
std::string_view OpOf(std::string_view name);
// "AddmmBackward0" of "torch::autograd::generated::AddmmBackward0::apply(…)", or "".
std::string_view BackwardNodeOf(std::string_view name);
// "modeling_gpt2.py" of "/x/y/modeling_gpt2.py".
std::string_view BaseName(std::string_view filename);

}  // namespace headroom::observe
