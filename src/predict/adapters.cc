// SPDX-License-Identifier: Apache-2.0
//
// peft 0.21, tuners/lora/layer.py (Linear.forward, Embedding.forward), tuners/lora/bnb.py.
#include "predict/adapters.h"

#include <utility>

#include "predict/modules.h"
#include "predict/ops.h"

namespace headroom::predict {

namespace {

// lora_B(lora_A(dropout(x))) * scaling
Tensor Delta(const LoraAdapter& adapter, const Tensor& input) {
  Tensor delta;
  {
    Tensor hidden;
    {
      const Tensor dropped = Dropout(input, adapter.dropout);
      const InModule in(input.runtime(), adapter.a_id);
      hidden = LinearOp(dropped, adapter.a, Tensor());
    }
    const InModule in(input.runtime(), adapter.b_id);
    delta = LinearOp(hidden, adapter.b, adapter.b_bias);
  }
  return MulScalar(delta);
}

}  // namespace

Tensor WithAdapter(const LoraAdapter& adapter, const Tensor& x,
                   const std::function<Tensor(const Tensor&)>& base) {
  Tensor result = base(x);
  const DType dtype = result.dtype();
  const Scoped kind(x.runtime().kind, Kind::kLora);
  // Rebinds the name `x`: the cast lives until the frame returns.
  const Tensor input = To(x, adapter.a.dtype());
  Tensor delta = Delta(adapter, input);
  Tensor sum = Add(result, delta);
  delta = Tensor();
  result = std::move(sum);
  return To(result, dtype);
}

Tensor WithAdapterOfQuantized(const LoraAdapter& adapter, const Tensor& x, bool is_4bit,
                              const std::function<Tensor(const Tensor&)>& base) {
  Tensor result = base(x);
  const Scoped kind(x.runtime().kind, Kind::kLora);
  if (is_4bit) result = Clone(result);
  const DType dtype = result.dtype();
  const bool converts = !x.runtime().autocast.enabled;
  const Tensor input = converts ? To(x, adapter.a.dtype()) : x;
  Tensor output = Delta(adapter, input);
  if (converts) output = To(output, dtype);
  // The name `output` lives as long as the frame.
  Tensor sum = Add(result, output);
  result = std::move(sum);
  return result;
}

Tensor WithEmbeddingAdapter(const LoraAdapter& adapter, const Tensor& indices,
                            const Tensor& embedded) {
  Tensor result = embedded;
  const DType dtype = result.dtype();
  const Scoped kind(result.runtime().kind, Kind::kLora);
  const Tensor a = T(adapter.a);
  const Tensor b = T(adapter.b);
  const Tensor after_a = EmbeddingOp(a, indices);
  Tensor output = Matmul(after_a, b);
  output = MulScalar(output);
  result = Add(result, output);
  return To(result, dtype);
}

}  // namespace headroom::predict
