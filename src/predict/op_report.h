// SPDX-License-Identifier: Apache-2.0
//
// What the ops of this folder tell an OpObserver: the work of a kernel, counted from its operands.
//
// Each function does nothing without an observer. Operands that are undefined count as nothing; a
// broadcast operand is read once.
#pragma once

#include <initializer_list>
#include <span>

#include "predict/runtime.h"
#include "predict/tensor.h"

namespace headroom::predict {

// The bytes of memory that a tensor shows: 0 for an undefined one.
double BytesOf(const Tensor& x);

// A map: each of `writes` is computed from all of `reads`, at `flops` for an element of the first
// of `writes`; negative: what the kernel `name` takes.
void ReportMap(const char* name, std::span<const Tensor> reads, std::span<const Tensor> writes,
               double flops = -1);
void ReportMap(const char* name, std::initializer_list<Tensor> reads,
               std::initializer_list<Tensor> writes, double flops = -1);

// A reduction, or a reduction with a map behind it, at `flops` for an element of the first of
// `reads`.
void ReportNormalization(const char* name, std::initializer_list<Tensor> reads,
                         std::initializer_list<Tensor> writes, double flops);

// A contraction of `flops` in all.
void ReportContraction(const char* name, double flops, std::initializer_list<Tensor> reads,
                       std::initializer_list<Tensor> writes);
// out = a @ b, of matrices or equal batches of them.
void ReportProduct(const char* name, const Tensor& a, const Tensor& b, const Tensor& out);

}  // namespace headroom::predict
