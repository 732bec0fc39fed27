// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by cuBLASLt, which is opened at run time: a program that was built with CUDA
// starts on a machine without it.
//
// The algorithm of a shape is chosen once: the one that is known of an earlier run, else cuBLASLt's
// first proposal, or the fastest of several while set_tuning(true). It stays the same afterwards,
// so that results stay the same to the bit.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/cuda/algorithm_store.h"
#include "engine/op_call.h"

namespace headroom::engine::cuda {

// Rows of storage, `turned` when the matrix meant is their transpose.
struct GemmMatrix {
  TensorView rows;
  bool turned = false;

  GemmMatrix Turned() const { return {rows, !turned}; }
};

// Several products at once; the distances from one to the next are in elements.
struct GemmBatch {
  int64_t count = 1;
  int64_t left = 0;
  int64_t right = 0;
  int64_t out = 0;
};

// Which operand's sums over k come with a product: a bias's gradient, where that operand is dy.
enum class SumsOf : uint8_t { kNone, kLeft, kRight };

// out[m, n] (+)= left[m, k] * right[k, n] + bias[n]
struct GemmProblem {
  GemmMatrix left;
  GemmMatrix right;
  TensorView out;
  TensorView bias = {};
  TensorView sums = {};  // [m] or [n], of out's type
  SumsOf sums_of = SumsOf::kNone;
  GemmBatch batch = {};
  bool add = false;
  bool tf32 = false;
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

class GemmLibrary {
 public:
  // Fails with one line where the library is missing.
  static Result<std::unique_ptr<GemmLibrary>> Open();
  ~GemmLibrary();

  // Of cuBLASLt, as 130100.
  int64_t version() const;

  // Takes these for their shapes in place of choosing, where cuBLASLt finds that they can compute
  // them; what was known before counts for shapes that are not among them. REQUIRES: nothing was
  // multiplied yet.
  void Know(AlgorithmStore known);
  // Adds what each shape so far is multiplied by.
  void AddChosen(AlgorithmStore& to) const;
  // Of those, what was timed here.
  const AlgorithmStore& timed() const { return timed_; }

  void set_tuning(bool tuning) { tuning_ = tuning; }
  // On the stream; what cuBLASLt cannot do is a bug of the caller. REQUIRES: no sums.
  void Multiply(const GemmProblem& problem, cudaStream_t stream);
  // With sums, in one pass over the operand. False, and nothing was done, where cuBLASLt has no
  // algorithm for both that is faster than two kernels.
  bool MultiplyWithSums(const GemmProblem& problem, cudaStream_t stream);

 private:
  struct Algorithm;
  struct Functions;
  struct Plan;
  struct Shapes;
  GemmLibrary();

  Plan& PlanOf(const GemmProblem& problem, cudaStream_t stream);
  void Describe(const GemmProblem& problem, Plan& plan) const;
  // Whether the shape's algorithm is known and can compute it.
  bool TakeKnown(const GemmProblem& problem, const GemmShape& shape, Plan& plan) const;
  void Choose(const GemmProblem& problem, Plan& plan, cudaStream_t stream) const;
  // cuBLAS's status.
  int Run(const GemmProblem& problem, const Plan& plan, const Algorithm& algorithm,
          cudaStream_t stream) const;

  std::unique_ptr<Functions> functions_;
  std::unique_ptr<Shapes> shapes_;
  AlgorithmStore known_;
  AlgorithmStore timed_;
  bool tuning_ = false;
};

}  // namespace headroom::engine::cuda
