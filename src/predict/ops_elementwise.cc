// SPDX-License-Identifier: Apache-2.0
//
// Backward formulas: tools/autograd/derivatives.yaml, PyTorch 2.11.0. Where a node computes several
// gradients, the generated code does so in the alphabetical order of the argument names: "other"
// before "self".
#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

Shape BroadcastShape(std::span<const Tensor> inputs) {
  int rank = 0;
  for (const Tensor& input : inputs) rank = std::max(rank, input.rank());
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    int64_t size = 1;
    for (const Tensor& input : inputs) {
      const int dim = i - (rank - input.rank());
      if (dim < 0 || input.size(dim) == 1) continue;
      HEADROOM_CHECK(size == 1 || size == input.size(dim), "sizes that cannot be broadcast");
      size = input.size(dim);
    }
    shape.Append(size);
  }
  return shape;
}

// Stride of `input` along dimension `dim` of the broadcast shape; 0 where it is broadcast.
int64_t BroadcastStride(const Tensor& input, const Shape& shape, int dim) {
  const int own = dim - (shape.rank() - input.rank());
  if (own < 0 || (input.size(own) == 1 && shape[dim] != 1)) return 0;
  return input.strides()[own];
}

// TensorIterator::reorder_dimensions (aten/src/ATen/TensorIterator.cpp): which of two dimensions is
// the faster one, by the first input that tells; > 0 when `a` is the slower.
int CompareDims(std::span<const Tensor> inputs, const Shape& shape, int a, int b) {
  for (const Tensor& input : inputs) {
    const int64_t stride_a = BroadcastStride(input, shape, a);
    const int64_t stride_b = BroadcastStride(input, shape, b);
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a != stride_b) return stride_a < stride_b ? -1 : 1;
    if (shape[a] > shape[b]) return 1;
  }
  return 0;
}

// The layout of a new output: packed, in the order of the inputs' dimensions.
Shape OutputStrides(std::span<const Tensor> inputs, const Shape& shape) {
  const bool contiguous = std::all_of(inputs.begin(), inputs.end(),
                                      [](const Tensor& input) { return input.is_contiguous(); });
  if (contiguous) return ContiguousStrides(shape);
  std::array<int, Shape::kMaxRank> order{};
  for (int i = 0; i < shape.rank(); ++i) order[static_cast<size_t>(i)] = shape.rank() - 1 - i;
  for (int i = 1; i < shape.rank(); ++i) {
    int at = i;
    for (int before = i - 1; before >= 0; --before) {
      int& slow = order[static_cast<size_t>(before)];
      int& fast = order[static_cast<size_t>(at)];
      const int comparison = CompareDims(inputs, shape, slow, fast);
      if (comparison < 0) break;
      if (comparison > 0) {
        std::swap(slow, fast);
        at = before;
      }
    }
  }
  Shape strides = shape;
  int64_t stride = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    const int dim = order[static_cast<size_t>(i)];
    strides[dim] = stride;
    stride *= std::max<int64_t>(shape[dim], 1);
  }
  return strides;
}

// bool < integers < floats; within floats fp16 and bf16 meet in fp32.
int Category(DType dtype) { return dtype == DType::kBool ? 0 : IsFloatingPoint(dtype) ? 2 : 1; }

// at::result_type: a zero-dimensional tensor decides only by its category.
DType ResultType(std::span<const Tensor> inputs) {
  DType dims = DType::kBool;
  DType scalars = DType::kBool;
  for (const Tensor& input : inputs) {
    DType& of = input.rank() > 0 ? dims : scalars;
    of = PromoteTypes(of, input.dtype());
  }
  return Category(scalars) > Category(dims) ? scalars : dims;
}

Tensor Output(const char* name, std::span<const Tensor> inputs, DType dtype) {
  Runtime& runtime = inputs.front().runtime();
  const OpScope op(runtime, name);
  const Shape shape = BroadcastShape(inputs);
  Tensor out = EmptyStrided(runtime, shape, OutputStrides(inputs, shape), dtype);
  ReportMap(name, inputs, std::span(&out, 1));
  return out;
}

Tensor Output(const char* name, std::initializer_list<Tensor> inputs) {
  const std::span<const Tensor> all(inputs.begin(), inputs.size());
  return Output(name, all, ResultType(all));
}

// The products inside derivative formulas, which record nothing.
Tensor Product(const Tensor& a, const Tensor& b) { return Output("aten::mul", {a, b}); }

using Derivative = Tensor (*)(const Tensor& grad, const Tensor& saved);

// An op of one input whose backward needs that input.
Tensor UnarySavingInput(const char* name, const char* node, const Tensor& x,
                        Derivative derivative) {
  GradRecorder record(x.runtime(), node, {x});
  const SavedTensor saved = record.Save(x);
  return record.Finish(Output(name, {x}), [saved, derivative](Grads& grads) -> Grads {
    return {derivative(grads[0], saved.Unpack())};
  });
}

// An op of one input whose backward needs its output.
Tensor UnarySavingOutput(const char* name, const char* node, const Tensor& x,
                         Derivative derivative) {
  GradRecorder record(x.runtime(), node, {x});
  Tensor y = Output(name, {x});
  const SavedTensor saved = record.SaveOutput(y);
  return record.Finish(std::move(y), [saved, derivative](Grads& grads) -> Grads {
    return {derivative(grads[0], saved.Unpack())};
  });
}

// An op with a number, whose backward is the same op on the gradient.
Tensor WithScalar(const char* name, const char* node, const Tensor& x) {
  GradRecorder record(x.runtime(), node, {x});
  return record.Finish(Output(name, {x}),
                       [name](Grads& grads) -> Grads { return {Output(name, {grads[0]})}; });
}

Tensor SumOfBoth(const char* name, const char* node, const Tensor& a, const Tensor& b,
                 bool negate) {
  GradRecorder record(a.runtime(), node, {a, b});
  const bool needs_b = record.Needs(1);
  return record.Finish(Output(name, {a, b}), [needs_b, negate](Grads& grads) -> Grads {
    Tensor of_b;
    if (needs_b) of_b = negate ? Output("aten::neg", {grads[0]}) : grads[0];
    return {grads[0], of_b};
  });
}

}  // namespace

DType PromoteTypes(DType a, DType b) {
  if (a == b) return a;
  if (Category(a) != Category(b)) return Category(a) > Category(b) ? a : b;
  if (IsHalf(a) && IsHalf(b)) return DType::kFloat32;
  return std::max(a, b);
}

Tensor Elementwise(const char* name, std::span<const Tensor> inputs, DType dtype) {
  return Output(name, inputs, dtype);
}

Tensor AddOutOfPlace(const Tensor& a, const Tensor& b) { return Output("aten::add", {a, b}); }

Tensor Add(const Tensor& a, const Tensor& b) {
  return SumOfBoth("aten::add", "AddBackward0", a, b, false);
}
Tensor AddInPlace(const Tensor& a, const Tensor& b) {
  GradRecorder record(a.runtime(), "AddBackward0", {a, b});
  ReportMap("aten::add_", {a, b}, {a});
  return record.Finish(Detach(a), [](Grads& grads) -> Grads { return {grads[0], grads[0]}; });
}
Tensor Sub(const Tensor& a, const Tensor& b) {
  return SumOfBoth("aten::sub", "SubBackward0", a, b, true);
}

Tensor Mul(const Tensor& a, const Tensor& b) {
  GradRecorder record(a.runtime(), "MulBackward0", {a, b});
  const SavedTensor saved_a = record.SaveIf(record.Needs(1), a);
  const SavedTensor saved_b = record.SaveIf(record.Needs(0), b);
  return record.Finish(Output("aten::mul", {a, b}), [saved_a, saved_b](Grads& grads) -> Grads {
    // The generated code unpacks both before it computes either.
    const Tensor b_value = saved_b.defined() ? saved_b.Unpack() : Tensor();
    const Tensor a_value = saved_a.defined() ? saved_a.Unpack() : Tensor();
    Tensor of_b = a_value.defined() ? Product(grads[0], a_value) : Tensor();
    Tensor of_a = b_value.defined() ? Product(grads[0], b_value) : Tensor();
    return {of_a, of_b};
  });
}

Tensor Div(const Tensor& a, const Tensor& b) {
  GradRecorder record(a.runtime(), "DivBackward0", {a, b});
  const bool needs_a = record.Needs(0);
  const bool needs_b = record.Needs(1);
  const SavedTensor saved_a = record.SaveIf(needs_b, a);
  const SavedTensor saved_b = record.Save(b);
  return record.Finish(Output("aten::div", {a, b}), [=](Grads& grads) -> Grads {
    const Tensor divisor = saved_b.Unpack();
    Tensor of_b;
    if (needs_b) {
      // div_tensor_other_grad: -grad * ((self / other) / other)
      // in which the right operand of * is computed first, and every temporary lives to the end.
      const Tensor dividend = saved_a.Unpack();
      const Tensor once = Output("aten::div", {dividend, divisor});
      const Tensor twice = Output("aten::div", {once, divisor});
      const Tensor negative = Output("aten::neg", {grads[0]});
      of_b = Product(negative, twice);
    }
    Tensor of_a;
    if (needs_a) of_a = Output("aten::div", {grads[0], divisor});
    return {of_a, of_b};
  });
}

Tensor AddScalar(const Tensor& x) {
  GradRecorder record(x.runtime(), "AddBackward0", {x});
  return record.Finish(Output("aten::add", {x}), [](Grads& grads) -> Grads { return {grads[0]}; });
}
Tensor MulScalar(const Tensor& x) { return WithScalar("aten::mul", "MulBackward0", x); }
Tensor DivScalar(const Tensor& x) { return WithScalar("aten::div", "DivBackward0", x); }
Tensor Neg(const Tensor& x) { return WithScalar("aten::neg", "NegBackward0", x); }

Tensor Pow(const Tensor& input, double exponent) {
  const Tensor x = AutocastToFloat(input);
  GradRecorder record(x.runtime(), "PowBackward0", {x});
  const SavedTensor saved = record.Save(x);
  return record.Finish(Output("aten::pow", {x}), [saved, exponent](Grads& grads) -> Grads {
    const Tensor base = saved.Unpack();
    if (exponent == 0) return {ZerosLike(base)};
    // pow_backward: grad * (exponent * self.pow(exponent - 1))
    const Tensor power = Output("aten::pow", {base});
    const Tensor scaled = Output("aten::mul", {power});
    return {Product(grads[0], scaled)};
  });
}

Tensor Rsqrt(const Tensor& input) {
  const Tensor x = AutocastToFloat(input);
  return UnarySavingOutput("aten::rsqrt", "RsqrtBackward0", x,
                           [](const Tensor& grad, const Tensor& result) {
                             // -0.5 * grad * result.pow(3)
                             const Tensor scaled = Output("aten::mul", {grad});
                             const Tensor cube = Output("aten::pow", {result});
                             return Product(scaled, cube);
                           });
}

Tensor Tanh(const Tensor& x) {
  return UnarySavingOutput("aten::tanh", "TanhBackward0", x,
                           [](const Tensor& grad, const Tensor& y) {
                             return Output("aten::tanh_backward", {grad, y});
                           });
}

Tensor Sigmoid(const Tensor& x) {
  return UnarySavingOutput("aten::sigmoid", "SigmoidBackward0", x,
                           [](const Tensor& grad, const Tensor& y) {
                             return Output("aten::sigmoid_backward", {grad, y});
                           });
}

Tensor Relu(const Tensor& x) {
  return UnarySavingOutput("aten::relu", "ReluBackward0", x,
                           [](const Tensor& grad, const Tensor& y) {
                             return Output("aten::threshold_backward", {grad, y});
                           });
}

Tensor Gelu(const Tensor& x) {
  return UnarySavingInput("aten::gelu", "GeluBackward0", x,
                          [](const Tensor& grad, const Tensor& saved) {
                            return Output("aten::gelu_backward", {grad, saved});
                          });
}

Tensor Silu(const Tensor& x) {
  return UnarySavingInput("aten::silu", "SiluBackward0", x,
                          [](const Tensor& grad, const Tensor& saved) {
                            return Output("aten::silu_backward", {grad, saved});
                          });
}

Tensor Cos(const Tensor& x) {
  return UnarySavingInput(
      "aten::cos", "CosBackward0", x, [](const Tensor& grad, const Tensor& saved) {
        const Tensor negative_sine = Output("aten::neg", {Output("aten::sin", {saved})});
        return Product(grad, negative_sine);
      });
}

Tensor Sin(const Tensor& x) {
  return UnarySavingInput("aten::sin", "SinBackward0", x,
                          [](const Tensor& grad, const Tensor& saved) {
                            return Product(grad, Output("aten::cos", {saved}));
                          });
}

Tensor Compare(const Tensor& a, const Tensor& b) {
  const Tensor inputs[] = {a, b};
  return Output("aten::compare", inputs, DType::kBool);
}

Tensor CompareScalar(const Tensor& x) {
  return Output("aten::compare", std::span(&x, 1), DType::kBool);
}

Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  GradRecorder record(a.runtime(), "WhereBackward0", {a, b});
  const SavedTensor saved = record.Save(condition);
  const bool needs_a = record.Needs(0);
  const bool needs_b = record.Needs(1);
  const Tensor values[] = {a, b};
  const Tensor inputs[] = {condition, a, b};
  return record.Finish(Output("aten::where", inputs, ResultType(values)),
                       [saved, needs_a, needs_b](Grads& grads) -> Grads {
                         const Tensor mask = saved.Unpack();
                         const Tensor both[] = {mask, grads[0]};
                         const DType dtype = grads[0].dtype();
                         Tensor of_b = needs_b ? Output("aten::where", both, dtype) : Tensor();
                         Tensor of_a = needs_a ? Output("aten::where", both, dtype) : Tensor();
                         return {of_a, of_b};
                       });
}

Tensor MaskedFill(const Tensor& x, const Tensor& mask) {
  GradRecorder record(x.runtime(), "MaskedFillBackward0", {x});
  const SavedTensor saved = record.Save(mask);
  const Tensor inputs[] = {x, mask};
  return record.Finish(Output("aten::masked_fill", inputs, x.dtype()),
                       [saved](Grads& grads) -> Grads {
                         const Tensor both[] = {grads[0], saved.Unpack()};
                         return {Output("aten::masked_fill", both, grads[0].dtype())};
                       });
}

}  // namespace headroom::predict
