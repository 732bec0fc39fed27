// SPDX-License-Identifier: Apache-2.0
//
// OpWork: what an op cannot do without, by its kind, its shapes and its dtypes: the arithmetic, and
// the traffic of a kernel that reads every operand once and writes every result once.
//
//   linear, x [8, 16] bf16, weight [4, 16]     2 * 8 * 16 * 4 = 1024 FLOP, reads 384 B, writes 64 B
//
// A multiplication and an addition are two FLOP, a function such as exp is one. What a fused op
// keeps to itself is no traffic: the scores of attention, the logits of a linear_loss. Caches are
// not modelled, and no figure is fitted to a measurement.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "graph/graph.h"

namespace headroom::graph {

struct OpWork {
  double flops = 0;
  double read = 0;  // bytes
  double written = 0;
  DType dtype = DType::kFloat32;  // of the first operand: decides which units compute

  double bytes() const { return read + written; }
};

// Where an op stands in a window of gradient accumulation: the first micro-step writes the
// gradients of weights, a later one reads them too, and adds.
enum class Micro : uint8_t { kFirst, kLater };

// REQUIRES: the op is one of the graph's, which Verify() accepts. An input's lengths are not known
// here: sequences count as full.
OpWork WorkOf(const Graph& graph, const Op& op, Micro micro = Micro::kFirst);

}  // namespace headroom::graph
