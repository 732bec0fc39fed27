// SPDX-License-Identifier: Apache-2.0
//
// OpObserver: told what a run computes, kernel by kernel, while Predict plays it.
//
// A kernel is one launch on the GPU (a foreach or fused optimizer step counts as one). Its work is
// what it cannot do without: every operand read once, every result written once, and the arithmetic
// in between. Nobody is told, and nothing is computed, without an observer.
//
//   x [8, 16] bf16 @ w [16, 4] -> 2 * 8 * 16 * 4 = 1024 FLOP, reads 384 B, writes 64 B
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace headroom {

// The three classes of Ivanov et al., "Data Movement Is All You Need" (arXiv 2007.00072).
enum class OpClass : uint8_t {
  kContraction,    // products of matrices and batches of them, convolutions, fused attention
  kNormalization,  // a reduction, often with a map behind it: softmax, layer norm, sums, norms
  kElementwise,    // everything else: activations, dropout, residuals, copies, casts, optimizers
};
inline constexpr int kOpClassCount = 3;
std::string_view Name(OpClass op_class);  // "contraction", "normalization", "elementwise"

struct OpWork {
  OpClass op_class = OpClass::kElementwise;
  double flops = 0;  // a multiplication and an addition are two; a function such as exp is one
  double read = 0;   // bytes
  double written = 0;
  DType dtype = DType::kFloat32;  // of the operands: decides which units compute
};

struct Op {
  const char* name;         // "aten::addmm"; "optimizer.step"
  std::string_view module;  // "bert.encoder.layer.3.output.dense"; of its forward, in backward too
  std::string_view phase;   // "forward", "backward", "optimizer", "data"
  OpWork work;
  // Launched by autograd's engine, in C++; else by the model's Python, which recomputing runs too.
  bool from_engine = false;
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void OnOp(const Op& op) = 0;
};

}  // namespace headroom
