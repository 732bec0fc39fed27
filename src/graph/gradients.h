// SPDX-License-Identifier: Apache-2.0
//
// Gradient rules: the backward pass of a forward graph.
//
//   forward  y = linear(x, W)          backward  dW = dy^T x      (first: x may end here)
//                                                dx = dy W
//
// Each op of the forward list, last first, appends the ops of its gradients. What they read of the
// forward pass stays alive until then, or is computed again:
//
//   kNone    everything is kept
//   kCheap   outputs of norms and activation functions are computed again from their inputs
//   kBlock   of each layer only what the next one reads is kept; its forward ops run once more
//
// Dropout follows from counters, so that what is computed again has the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "graph/graph.h"

namespace headroom::graph {

enum class Recompute : uint8_t { kNone, kCheap, kBlock };
std::string_view Name(Recompute recompute);  // "none", "cheap", "block"
std::optional<Recompute> ParseRecompute(std::string_view name);

struct BackwardOptions {
  Recompute recompute = Recompute::kNone;
  DType weight_gradients = DType::kFloat32;
  // Whether several micro-steps add to the weights' gradients before the optimizer runs. Where one
  // alone makes a step, gradients have no place until backward writes them.
  bool accumulates = true;
};

// Appends the backward pass and gives every parameter its gradient. REQUIRES: the list is a forward
// pass that ends in a loss, and every parameter is read by it.
void AppendBackward(Graph& graph, const BackwardOptions& options);

}  // namespace headroom::graph
