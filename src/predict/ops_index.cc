// SPDX-License-Identifier: Apache-2.0
//
// aten/src/ATen/native/{TensorFactories,TensorAdvancedIndexing}.cpp and
// aten/src/ATen/native/cuda/{ScanKernels,Indexing}.cu, PyTorch 2.11.0.
#include <algorithm>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {

Tensor Full(Runtime& runtime, const Shape& shape, DType dtype) {
  const OpScope op(runtime, "aten::full");
  Tensor out = Empty(runtime, shape, dtype);
  ReportMap("aten::full", {}, {out});
  return out;
}

Tensor CumSum(const Tensor& x) {
  const Scoped no_grad(x.runtime().grad_enabled, false);
  return Elementwise("aten::cumsum", std::span(&x, 1),
                     IsFloatingPoint(x.dtype()) ? x.dtype() : DType::kInt64);
}

Tensor IndexRows(const Tensor& x, const Tensor& rows, const Tensor& columns) {
  HEADROOM_CHECK(x.rank() == 3, "indexing by rows and columns needs three dimensions");
  GradRecorder record(x.runtime(), "IndexBackward0", {x});
  const SavedTensor saved_rows = record.Save(rows);
  const SavedTensor saved_columns = record.Save(columns);
  const OpScope op(x.runtime(), "aten::index");
  const Shape whole = x.shape();
  const int64_t pairs = std::max(rows.numel(), columns.numel());
  Tensor out = Empty(x.runtime(), {pairs, x.size(2)}, x.dtype());
  ReportMap("aten::index", {rows, columns, out}, {out});
  return record.Finish(std::move(out), [=](Grads& grads) -> Grads {
    const Tensor row_indices = saved_rows.Unpack();
    const Tensor column_indices = saved_columns.Unpack();
    // index_backward: zeros, into which index_put accumulates.
    return {Zeros(grads[0].runtime(), whole, grads[0].dtype())};
  });
}

Tensor IndexFirst(const Tensor& x, const Tensor& index) {
  GradRecorder record(x.runtime(), "IndexBackward0", {x});
  const SavedTensor saved = record.Save(index);
  const OpScope op(x.runtime(), "aten::index");
  const Shape whole = x.shape();
  Shape shape = index.shape();
  for (int dim = 1; dim < whole.rank(); ++dim) shape.Append(whole[dim]);
  Tensor out = Empty(x.runtime(), shape, x.dtype());
  ReportMap("aten::index", {index, out}, {out});
  return record.Finish(std::move(out), [saved, whole](Grads& grads) -> Grads {
    const Tensor indices = saved.Unpack();
    // index_backward: zeros, into which index_put accumulates.
    return {Zeros(grads[0].runtime(), whole, grads[0].dtype())};
  });
}

Tensor TakeIndex(const Tensor& x, int dim) {
  Runtime& runtime = x.runtime();
  const OpScope op(runtime, "aten::index");
  const Tensor index = Full(runtime, {1}, DType::kInt64);  // the list, brought to the device
  GradRecorder record(runtime, "IndexBackward0", {x});
  const SavedTensor saved = record.Save(index);
  const Shape whole = x.shape();
  Shape shape = whole;
  shape[dim] = 1;
  Tensor out = Empty(runtime, shape, x.dtype());
  ReportMap("aten::index", {out}, {out});
  return record.Finish(std::move(out), [saved, whole](Grads& grads) -> Grads {
    const Tensor indices = saved.Unpack();
    return {Zeros(grads[0].runtime(), whole, grads[0].dtype())};
  });
}

}  // namespace headroom::predict
