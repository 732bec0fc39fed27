// SPDX-License-Identifier: Apache-2.0
//
// Matrix products: aten/src/ATen/native/{Linear,LinearAlgebra}.cpp and
// aten/src/ATen/native/cuda/Blas.cpp, PyTorch 2.11.0. Gradients come in the alphabetical order of
// the argument names: mat1, mat2, self.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// The product of two matrices (or batches of them), outside autograd.
Tensor Product(const char* name, const Tensor& a, const Tensor& b) {
  HEADROOM_CHECK(a.size(-1) == b.size(-2), "matrices that do not multiply");
  Runtime& runtime = a.runtime();
  const OpScope op(runtime, name);
  Shape shape = a.shape();
  shape[-1] = b.size(-1);
  Tensor out = Empty(runtime, shape, a.dtype());
  runtime.EnsureCublasWorkspace(Runtime::Gemm::kPlain);
  ReportProduct(name, a, b, out);
  return out;
}

// Whether the last two dimensions are stored column by column.
bool IsColumnMajor(const Shape& sizes, const Shape& strides) {
  return strides[-2] == 1 && strides[-1] == sizes[-2];
}

// mm_mat1_backward and mm_mat2_backward of FunctionsManual.cpp: the gradient comes in the layout of
// its operand.
Tensor GradOfLeft(const Tensor& grad, const Tensor& right, const Shape& sizes,
                  const Shape& strides) {
  if (IsColumnMajor(sizes, strides)) return T(Product("aten::mm", right, T(grad)));
  return Product("aten::mm", grad, T(right));
}
Tensor GradOfRight(const Tensor& grad, const Tensor& left, const Shape& sizes,
                   const Shape& strides) {
  if (IsColumnMajor(sizes, strides)) return T(Product("aten::mm", T(grad), left));
  return Product("aten::mm", T(left), grad);
}

struct SavedOperands {
  SavedTensor left;
  SavedTensor right;
  Shape left_sizes, left_strides, right_sizes, right_strides;

  SavedOperands(const GradRecorder& record, size_t first, const Tensor& a, const Tensor& b)
      : left(record.SaveIf(record.Needs(first + 1), a)),
        right(record.SaveIf(record.Needs(first), b)),
        left_sizes(a.shape()),
        left_strides(a.strides()),
        right_sizes(b.shape()),
        right_strides(b.strides()) {}

  // The gradients of both operandsin the given order. Both operands are
  // unpacked before, and live until the node is done.
  enum class Order { kLeftFirst, kRightFirst };
  std::pair<Tensor, Tensor> Gradients(const Tensor& grad, Order order) const {
    const Tensor a = left.defined() ? left.Unpack() : Tensor();
    const Tensor b = right.defined() ? right.Unpack() : Tensor();
    Tensor of_left;
    Tensor of_right;
    const auto left_gradient = [&] {
      if (b.defined()) of_left = GradOfLeft(grad, b, left_sizes, left_strides);
    };
    if (order == Order::kLeftFirst) left_gradient();
    if (a.defined()) of_right = GradOfRight(grad, a, right_sizes, right_strides);
    if (order == Order::kRightFirst) left_gradient();
    return {of_left, of_right};
  }
};

}  // namespace

Tensor Mm(const Tensor& left, const Tensor& right) {
  const Tensor b = AutocastToLower(right);
  const Tensor a = AutocastToLower(left);
  GradRecorder record(a.runtime(), "MmBackward0", {a, b});
  const SavedOperands saved(record, 0, a, b);
  return record.Finish(Product("aten::mm", a, b), [saved](Grads& grads) -> Grads {
    auto [of_a, of_b] = saved.Gradients(grads[0], SavedOperands::Order::kRightFirst);
    return {of_a, of_b};
  });
}

Tensor Bmm(const Tensor& left, const Tensor& right) {
  const Tensor b = AutocastToLower(right);
  const Tensor a = AutocastToLower(left);
  GradRecorder record(a.runtime(), "BmmBackward0", {a, b});
  const SavedTensor saved_a = record.SaveIf(record.Needs(1), a);
  const SavedTensor saved_b = record.SaveIf(record.Needs(0), b);
  return record.Finish(Product("aten::bmm", a, b), [saved_a, saved_b](Grads& grads) -> Grads {
    const Tensor left_value = saved_a.defined() ? saved_a.Unpack() : Tensor();
    const Tensor right_value = saved_b.defined() ? saved_b.Unpack() : Tensor();
    Tensor of_b;
    if (left_value.defined()) of_b = Product("aten::bmm", Transpose(left_value, 1, 2), grads[0]);
    Tensor of_a;
    if (right_value.defined()) of_a = Product("aten::bmm", grads[0], Transpose(right_value, 1, 2));
    return {of_a, of_b};
  });
}

Tensor Addmm(const Tensor& self, const Tensor& left, const Tensor& right) {
  const Tensor b = AutocastToLower(right);
  const Tensor a = AutocastToLower(left);
  const Tensor bias = AutocastToLower(self);
  GradRecorder record(a.runtime(), "AddmmBackward0", {bias, a, b});
  const SavedOperands saved(record, 1, a, b);
  const OpScope op(a.runtime(), "aten::addmm");
  Tensor out = Empty(a.runtime(), {a.size(0), b.size(1)}, a.dtype());
  a.runtime().EnsureCublasWorkspace(Runtime::Gemm::kFusedBias);
  ReportProduct("aten::addmm", a, b, out);
  const bool needs_bias = record.Needs(0);
  return record.Finish(std::move(out), [saved, needs_bias](Grads& grads) -> Grads {
    auto [of_a, of_b] = saved.Gradients(grads[0], SavedOperands::Order::kLeftFirst);
    // The bias's gradient is the whole one; the engine sums it to the bias's shape.
    return {needs_bias ? grads[0] : Tensor(), of_a, of_b};
  });
}

// at::matmul: matrices go to mm; a batch against a matrix is folded into one mm when the matrix
// wants no batch of its own; equal batches go to bmm.
Tensor Matmul(const Tensor& left, const Tensor& right) {
  const Tensor b = AutocastToLower(right);
  const Tensor a = AutocastToLower(left);
  if (a.rank() == 2 && b.rank() == 2) return Mm(a, b);
  if (b.rank() == 2) {
    // should_fold, with gradients: always for a batched left operand.
    Shape shape = a.shape();
    shape[-1] = b.size(1);
    return View(Mm(Reshape(a, {-1, a.size(-1)}), b), shape);
  }
  Shape batch;
  for (int dim = 0; dim < a.rank() - 2; ++dim) batch.Append(std::max(a.size(dim), b.size(dim)));
  const auto flat = [&](const Tensor& x) {
    Shape expanded = batch;
    expanded.Append(x.size(-2));
    expanded.Append(x.size(-1));
    return Reshape(Expand(x, expanded), {batch.NumElements(), x.size(-2), x.size(-1)});
  };
  Shape shape = batch;
  shape.Append(a.size(-2));
  shape.Append(b.size(-1));
  const Tensor flat_a = flat(a);
  const Tensor flat_b = flat(b);
  return View(Bmm(flat_a, flat_b), shape);
}

Tensor LinearOp(const Tensor& input, const Tensor& full_weight, const Tensor& full_bias) {
  // The casts come in the order in which the compiled call evaluates its arguments: the last first.
  const Tensor bias = AutocastToLower(full_bias);
  const Tensor weight = AutocastToLower(full_weight);
  const Tensor x = AutocastToLower(input);
  if (!bias.defined()) return Matmul(x, T(weight));
  if (x.rank() == 2) return Addmm(bias, x, T(weight));
  // _flatten_nd_linear
  const Tensor rows = Reshape(x, {-1, x.size(-1)});
  Shape shape = x.shape();
  shape[-1] = weight.size(0);
  return View(Addmm(bias, rows, T(weight)), shape);
}

}  // namespace headroom::predict
