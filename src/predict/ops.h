// SPDX-License-Identifier: Apache-2.0
//
// The ATen operators that models are written in, shape-only.
//
// Each allocates what PyTorch's CUDA kernel allocates (outputs, scratch), records what autograd
// saves (tools/autograd/derivatives.yaml) and, in backward, allocates what its derivative formula
// does. Under autocast each casts its inputs by the op lists of aten/src/ATen/autocast_mode.h.
// Shapes that do not fit together are bugs of the caller and fail a check.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "predict/tensor.h"

namespace headroom::predict {

// ---- Views (ops_view.cc): allocate only where PyTorch copies ----

Tensor Detach(const Tensor& x);
Tensor View(const Tensor& x, const Shape& shape);     // one -1 is inferred; must not need a copy
Tensor Reshape(const Tensor& x, const Shape& shape);  // a view where strides allow, else a copy
Tensor Transpose(const Tensor& x, int dim0, int dim1);
Tensor T(const Tensor& x);  // 2-D
Tensor Permute(const Tensor& x, std::initializer_list<int> dims);
Tensor Unsqueeze(const Tensor& x, int dim);
Tensor Squeeze(const Tensor& x, int dim);
Tensor Expand(const Tensor& x, const Shape& shape);  // -1 keeps a size
Tensor Select(const Tensor& x, int dim, int64_t index);
Tensor Slice(const Tensor& x, int dim, int64_t start, int64_t end);
std::vector<Tensor> Split(const Tensor& x, int64_t size, int dim);
std::vector<Tensor> SplitSizes(const Tensor& x, std::span<const int64_t> sizes, int dim);
std::vector<Tensor> Unbind(const Tensor& x, int dim);  // ops_unbind.cc
// repeat_interleave(repeats, dim) with a number of repeats: always a copy.
Tensor RepeatInterleave(const Tensor& x, int64_t repeats, int dim);
Tensor Contiguous(const Tensor& x);  // x itself when it already is
Tensor Clone(const Tensor& x);       // contiguous copy
// A copy of `x` laid out as `like`.
Tensor CloneLike(const Tensor& x, const Tensor& like);
Tensor Cat(std::span<const Tensor> tensors, int dim);

// ---- Factories (ops_factory.cc) ----

Tensor EmptyLike(const Tensor& x);
Tensor EmptyLike(const Tensor& x, DType dtype);
Tensor Zeros(Runtime& runtime, const Shape& shape, DType dtype);
Tensor ZerosLike(const Tensor& x);
Tensor Arange(Runtime& runtime, int64_t count, DType dtype = DType::kInt64);
// tensor.to("cuda") of host data.
Tensor FromHost(Runtime& runtime, const Shape& shape, DType dtype);

// ---- Casts ----

Tensor ToCopy(const Tensor& x, DType dtype);
Tensor To(const Tensor& x, DType dtype);  // x itself when it already has the dtype
// What autocast hands to an op of its 16-bit list; outside autocast, x itself.
Tensor AutocastToLower(const Tensor& x);
// And to one of its fp32 list.
Tensor AutocastToFloat(const Tensor& x);

// ---- Element-wise (ops_elementwise.cc); broadcasting and type promotion as in PyTorch ----

Tensor Add(const Tensor& a, const Tensor& b);
Tensor Sub(const Tensor& a, const Tensor& b);
Tensor Mul(const Tensor& a, const Tensor& b);
Tensor Div(const Tensor& a, const Tensor& b);
// a.add_(b): the sum in the memory of `a`.
Tensor AddInPlace(const Tensor& a, const Tensor& b);
Tensor AddScalar(const Tensor& x);  // the scalar's value decides nothing here
Tensor MulScalar(const Tensor& x);
Tensor DivScalar(const Tensor& x);
Tensor Neg(const Tensor& x);
Tensor Pow(const Tensor& x, double exponent);
Tensor Rsqrt(const Tensor& x);
Tensor Tanh(const Tensor& x);
Tensor Sigmoid(const Tensor& x);
Tensor Relu(const Tensor& x);
Tensor Gelu(const Tensor& x);  // both forms: the same memory
Tensor Silu(const Tensor& x);
Tensor Cos(const Tensor& x);
Tensor Sin(const Tensor& x);
Tensor Compare(const Tensor& a, const Tensor& b);  // bool; also and/or/isnan of two
Tensor CompareScalar(const Tensor& x);             // bool
Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor MaskedFill(const Tensor& x, const Tensor& mask);
// An element-wise op outside autograd: one output of `dtype`.
Tensor Elementwise(const char* name, std::span<const Tensor> inputs, DType dtype);
// The engine's sum of two gradients.
Tensor AddOutOfPlace(const Tensor& a, const Tensor& b);
DType PromoteTypes(DType a, DType b);

// ---- Reductions (ops_reduce.cc) ----

Tensor Sum(const Tensor& x, std::span<const int> dims, bool keepdim);
Tensor SumAll(const Tensor& x);
Tensor Mean(const Tensor& x, int dim, bool keepdim);

// ---- Matrix products (ops_matmul.cc) ----

Tensor Mm(const Tensor& a, const Tensor& b);
Tensor Bmm(const Tensor& a, const Tensor& b);
Tensor Addmm(const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor Matmul(const Tensor& a, const Tensor& b);
// self + scale * (a @ b), of batches; `self` wants no gradient (ops_baddbmm.cc).
Tensor Baddbmm(const Tensor& self, const Tensor& a, const Tensor& b);
// torch.nn.functional.linear; an undefined bias is none.
Tensor LinearOp(const Tensor& x, const Tensor& weight, const Tensor& bias);

// ---- Neural network ops (ops_nn.cc) ----

Tensor EmbeddingOp(const Tensor& weight, const Tensor& indices);
Tensor LayerNormOp(const Tensor& x, const Tensor& weight, const Tensor& bias);
// x itself when `probability` is 0 or the model is not training.
Tensor Dropout(const Tensor& x, double probability);
// `dtype` set: softmax(x, dim, dtype=…).
Tensor Softmax(const Tensor& x, std::optional<DType> dtype = std::nullopt);
// A scalar, whatever the reduction; logits [rows, classes], targets [rows].
Tensor CrossEntropy(const Tensor& logits, const Tensor& targets);

// ---- Indices and sums along them (ops_index.cc) ----

// torch.full, ones, tensor(number, device="cuda").
Tensor Full(Runtime& runtime, const Shape& shape, DType dtype);
// cumsum over one dimension, outside autograd; int64 of whole numbers.
Tensor CumSum(const Tensor& x);
// x[rows, columns]: one vector of x's last dimension for each pair of indices.
Tensor IndexRows(const Tensor& x, const Tensor& rows, const Tensor& columns);
// x[index]: a row of x for each number of `index`, of any shape.
Tensor IndexFirst(const Tensor& x, const Tensor& index);
// x[..., [index], ...]: a list as index copies what a slice of one would show.
Tensor TakeIndex(const Tensor& x, int dim);

// ---- Gather and repeat (ops_gather.cc) ----

Tensor Gather(const Tensor& x, const Tensor& index);   // gather(x, dim, index) of any dim
Tensor RepeatFirst(const Tensor& x, int64_t repeats);  // repeat(repeats, 1, …)

// ---- Element-wise against a number (ops_scalar.cc) ----

Tensor WhereScalar(const Tensor& condition, const Tensor& x);  // where(condition, x, number)
Tensor Clamp(const Tensor& x);                                 // clamp(number, number)

// ---- In place (ops_inplace.cc): nodes without memory of their own ----

Tensor MulScalarInPlace(const Tensor& x);  // x *= number
Tensor DivScalarInPlace(const Tensor& x);  // x /= number

// ---- Convolution (ops_conv.cc) ----

// conv1d and conv2d without dilation or groups: x [batch, channels, …], weight [out, channels, …].
Tensor Convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride,
                   int64_t padding);

// ---- Attention (ops_attention.cc) ----

struct SdpaOptions {
  double dropout = 0;
  bool is_causal = false;
  bool enable_gqa = false;
};
// scaled_dot_product_attention over [batch, heads, sequence, head_dim]; an undefined mask is none.
// Picks the backend as PyTorch does on the runtime's GPU. With enable_gqa keys and values have
// fewer heads than queries.
Tensor ScaledDotProductAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& mask, const SdpaOptions& options);
// Its math backend (ops_attention_math.cc); `mask` is added to the scores.
Tensor MathAttention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                     const SdpaOptions& options);
// convert_boolean_attn_mask: where(mask, 0.0, scalar_tensor(-inf)) of a boolean mask.
Tensor AdditiveMask(const Tensor& mask, DType dtype);

}  // namespace headroom::predict
