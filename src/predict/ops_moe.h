// SPDX-License-Identifier: Apache-2.0
//
// The operators of mixtures of experts, as ops.h has the others.
#pragma once

#include "predict/tensor.h"

namespace headroom::predict {

struct TopKResult {
  Tensor values;
  Tensor indices;
};
// torch.topk(x, k, dim=-1).
TopKResult TopK(const Tensor& x, int64_t k);

// x /= divisor. The result stands for x from there on.
Tensor DivInPlace(const Tensor& x, const Tensor& divisor);

struct SortResult {
  Tensor values;
  Tensor indices;
};
// torch.sort of a list of int64.
SortResult SortIndices(const Tensor& x);

// x[indices] along the first dimension.
Tensor GatherRows(const Tensor& x, const Tensor& indices);

// x.masked_fill_(mask, number). The result stands for x from there on.
Tensor MaskedFillInPlace(const Tensor& x, const Tensor& mask);

// grouped_mm(rows, weight.transpose(-2, -1), offs=offsets): rows [n, in], sorted by group;
// weight [groups, out, in].
Tensor GroupedMm(const Tensor& rows, const Tensor& weight, const Tensor& offsets);

// cumsum of a histogram of `bins` counts, int32.
Tensor CountOffsets(const Tensor& counts);

}  // namespace headroom::predict
