// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: models/bart/modeling_bart.py, models/mbart/modeling_mbart.py,
// models/t5/modeling_t5.py.
#include "predict/models/seq2seq.h"

#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

class InputScope {
 public:
  explicit InputScope(Runtime& runtime) : component_(runtime.component, Component::kInputs) {}

 private:
  Scoped<Component> component_;
};

// shifted[:, 1:] = ids[:, :-1].clone()
void CopyShifted(const Tensor& ids) {
  const Tensor copy = Clone(Slice(ids, 1, 0, ids.size(1) - 1));
}

}  // namespace

Tensor ShiftTokensRight(const Tensor& labels) {
  Runtime& runtime = labels.runtime();
  const InputScope scope(runtime);
  const Tensor shifted = Zeros(runtime, labels.shape(), labels.dtype());
  CopyShifted(labels);
  { const Tensor ignored = CompareScalar(shifted); }
  return shifted;
}

Tensor ShiftTokensRightAroundEos(const Tensor& labels) {
  Runtime& runtime = labels.runtime();
  const InputScope scope(runtime);
  const Shape rows = {labels.size(0)};
  const Tensor shifted = Clone(labels);
  { const Tensor ignored = CompareScalar(shifted); }
  Tensor index_of_eos;
  {
    Tensor counts;
    {
      const Tensor valid = CompareScalar(shifted);
      // The kernel sums int64; bool is cast first.
      counts = Empty(runtime, rows, DType::kInt64);
      const Tensor cast = Empty(runtime, labels.shape(), DType::kInt64);
    }
    index_of_eos = Unsqueeze(AddScalar(counts), -1);
  }
  const Tensor start_tokens = Empty(runtime, {labels.size(0), 1}, labels.dtype());
  CopyShifted(shifted);
  return shifted;
}

void CheckFinite(const Tensor& hidden) {
  Runtime& runtime = hidden.runtime();
  const Scoped no_grad(runtime.grad_enabled, false);
  Tensor finite;
  {
    // (self == self) * (self.abs() != inf), aten/src/ATen/native/TensorCompare.cpp.
    const Tensor is_number = CompareScalar(hidden);
    Tensor not_infinite;
    {
      const Tensor magnitude = EmptyLike(hidden);
      not_infinite = CompareScalar(magnitude);
    }
    finite = EmptyLike(is_number);
  }
  const Tensor all = Empty(runtime, {}, DType::kBool);
}

}  // namespace headroom::predict
