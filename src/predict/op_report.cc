// SPDX-License-Identifier: Apache-2.0
#include "predict/op_report.h"

#include <string_view>
#include <utility>

#include "predict/op_observer.h"

namespace headroom {

std::string_view Name(OpClass op_class) {
  switch (op_class) {
    case OpClass::kContraction:
      return "contraction";
    case OpClass::kNormalization:
      return "normalization";
    case OpClass::kElementwise:
      return "elementwise";
  }
  return "";
}

}  // namespace headroom

namespace headroom::predict {
namespace {

// Operations an element of the kernels that do more than one, counted from their formulas in
// aten/src/ATen/native/cuda/Activation*.cu, PyTorch 2.11.0 (a function is one). Copies do none.
constexpr std::pair<std::string_view, double> kFlops[] = {
    {"aten::gelu", 5},            // 0.5 * x * (1 + erf(x * c))
    {"aten::gelu_backward", 11},  // grad * (cdf + x * pdf)
    {"aten::silu", 4},            // x / (1 + exp(-x))
    {"aten::silu_backward", 8},   // grad * s * (1 + x * (1 - s))
    {"aten::sigmoid", 4},
    {"aten::sigmoid_backward", 3},
    {"aten::tanh_backward", 3},
    {"aten::native_dropout", 2},
    {"aten::native_dropout_backward", 2},
    {"aten::_to_copy", 0},
    {"aten::clone", 0},
    {"aten::cat", 0},
    {"aten::zeros", 0},
    {"aten::zeros_like", 0},
    {"aten::full", 0},
    {"aten::embedding", 0},
    {"aten::index", 0},
    {"aten::gather", 0},
    {"aten::repeat", 0},
};

double FlopsOf(std::string_view name) {
  for (const auto& [kernel, flops] : kFlops) {
    if (name == kernel) return flops;
  }
  return 1;
}

double Sum(std::span<const Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += BytesOf(tensor);
  return bytes;
}

std::span<const Tensor> SpanOf(std::initializer_list<Tensor> list) {
  return {list.begin(), list.size()};
}

const Tensor* FirstDefined(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.defined()) return &tensor;
  }
  return nullptr;
}

void Report(const char* name, OpClass op_class, double flops, DType dtype,
            std::span<const Tensor> reads, std::span<const Tensor> writes, Runtime& runtime) {
  runtime.ReportOp(name, {op_class, flops, Sum(reads), Sum(writes), dtype});
}

}  // namespace

double BytesOf(const Tensor& x) {
  if (!x.defined()) return 0;
  double elements = 1;
  for (int dim = 0; dim < x.rank(); ++dim) {
    if (x.strides()[dim] != 0 || x.size(dim) == 0) elements *= static_cast<double>(x.size(dim));
  }
  return elements * static_cast<double>(ElementSize(x.dtype()));
}

void ReportMap(const char* name, std::span<const Tensor> reads, std::span<const Tensor> writes,
               double flops) {
  const Tensor* first = FirstDefined(writes);
  if (first == nullptr || !first->runtime().observed()) return;
  const double each = flops < 0 ? FlopsOf(name) : flops;
  Report(name, OpClass::kElementwise, each * static_cast<double>(first->numel()), first->dtype(),
         reads, writes, first->runtime());
}

void ReportMap(const char* name, std::initializer_list<Tensor> reads,
               std::initializer_list<Tensor> writes, double flops) {
  ReportMap(name, SpanOf(reads), SpanOf(writes), flops);
}

void ReportNormalization(const char* name, std::initializer_list<Tensor> reads,
                         std::initializer_list<Tensor> writes, double flops) {
  const Tensor* first = FirstDefined(SpanOf(reads));
  if (first == nullptr || !first->runtime().observed()) return;
  Report(name, OpClass::kNormalization, flops * static_cast<double>(first->numel()), first->dtype(),
         SpanOf(reads), SpanOf(writes), first->runtime());
}

void ReportContraction(const char* name, double flops, std::initializer_list<Tensor> reads,
                       std::initializer_list<Tensor> writes) {
  const Tensor* first = FirstDefined(SpanOf(reads));
  if (first == nullptr || !first->runtime().observed()) return;
  Report(name, OpClass::kContraction, flops, first->dtype(), SpanOf(reads), SpanOf(writes),
         first->runtime());
}

void ReportProduct(const char* name, const Tensor& a, const Tensor& b, const Tensor& out) {
  if (!a.runtime().observed()) return;
  const double flops =
      2 * static_cast<double>(out.numel()) * static_cast<double>(a.size(a.rank() - 1));
  ReportContraction(name, flops, {a, b}, {out});
}

}  // namespace headroom::predict
