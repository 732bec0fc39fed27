// SPDX-License-Identifier: Apache-2.0
//
// LoraAdapter: the two small matrices that PEFT's LoRA adds to a module, and their forward.
//
//   result = base(x) + lora_B(lora_A(dropout(x))) * scaling
#pragma once

#include <functional>

#include "ledger/ledger.h"
#include "predict/tensor.h"

namespace headroom::predict {

struct LoraAdapter {
  Tensor a;  // [r, in]
  Tensor b;  // [out, r]
  Tensor b_bias;
  double dropout = 0;
  ModuleId a_id{};
  ModuleId b_id{};
};

// lora.Linear: `base` runs the module that the adapter stands beside.
Tensor WithAdapter(const LoraAdapter& adapter, const Tensor& x,
                   const std::function<Tensor(const Tensor&)>& base);

// lora.Linear4bit, which clones the base's result, and lora.Linear8bitLt: autocast, where it is on,
// does the casting.
Tensor WithAdapterOfQuantized(const LoraAdapter& adapter, const Tensor& x, bool is_4bit,
                              const std::function<Tensor(const Tensor&)>& base);

// lora.Embedding, on what the embedding gave.
Tensor WithEmbeddingAdapter(const LoraAdapter& adapter, const Tensor& indices,
                            const Tensor& embedded);

}  // namespace headroom::predict
