// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: masking_utils.py, integrations/sdpa_attention.py, loss/loss_utils.py,
// models/llama/modeling_llama.py.
#include "predict/models/attention.h"

#include <vector>

#include "predict/autograd.h"

namespace headroom::predict {
namespace {

// Ops on indices and masks: outside autograd, reported as positions.
class PositionScope {
 public:
  explicit PositionScope(Runtime& runtime)
      : kind_(runtime.kind, Kind::kPosition), component_(runtime.component, Component::kInputs) {}

 private:
  Scoped<Kind> kind_;
  Scoped<Component> component_;
};

Tensor IntegerOp(const char* name, const Tensor& a) {
  return Elementwise(name, std::span(&a, 1), a.dtype());
}
Tensor BinaryOp(const char* name, const Tensor& a, const Tensor& b, DType dtype) {
  const Tensor both[] = {a, b};
  return Elementwise(name, both, dtype);
}

// find_packed_sequence_indices: looks for several sequences in one row; there are none.
void FindPackedSequences(const Tensor& position_ids, int64_t batch) {
  Runtime& runtime = position_ids.runtime();
  Tensor positions = position_ids;
  if (position_ids.size(0) != batch) positions = Expand(position_ids, {batch, -1});
  const Tensor first = IntegerOp("aten::sub", Slice(positions, 1, 0, 1));
  Tensor difference;
  {
    const Tensor both[] = {first, positions};
    const Tensor joined = Cat(both, 1);
    const int64_t end = joined.size(1);
    difference = BinaryOp("aten::sub", Slice(joined, 1, 1, end), Slice(joined, 1, 0, end - 1),
                          DType::kInt64);
  }
  Tensor sums;
  {
    const Tensor changes = CompareScalar(difference);
    sums = Empty(runtime, changes.shape(), DType::kInt64);
    const Tensor cast = Empty(runtime, changes.shape(), DType::kInt64);
  }
  const Tensor last = CompareScalar(Select(sums, 1, -1));
  const Tensor all = Empty(runtime, {}, DType::kBool);
}

// fast_all(mask): tensor.sum() == tensor.numel().
void FastAll(const Tensor& mask) {
  Tensor sum;
  {
    sum = Empty(mask.runtime(), {}, DType::kInt64);
    const Tensor cast = Empty(mask.runtime(), mask.shape(), DType::kInt64);
  }
  const Tensor equal = CompareScalar(sum);
}

// and_masks: a scalar True, then one product after the other.
Tensor AndMasks(const Tensor& so_far, const Tensor& mask) {
  return BinaryOp("aten::bitwise_and", so_far, mask, DType::kBool);
}

// causal_mask_function; sliding_window_causal_mask_function where there is a window.
Tensor CausalMaskFunction(const Tensor& query, const Tensor& key, bool sliding) {
  if (!sliding) return Compare(key, query);
  Tensor mask = Empty(query.runtime(), {}, DType::kBool);
  {
    // key > query - window
    const Tensor inside = Compare(key, IntegerOp("aten::sub", query));
    mask = AndMasks(mask, inside);
  }
  const Tensor causal = Compare(key, query);
  return AndMasks(mask, causal);
}

// sdpa_mask after its early exits: the boolean causal mask of every row, expanded over the batch.
Tensor BooleanMask(Runtime& runtime, int64_t batch, int64_t sequence, const Tensor& padding,
                   bool causal, bool sliding) {
  const Tensor batch_range = Arange(runtime, batch);
  const Tensor head_range = Arange(runtime, 1);
  const Tensor query_range = IntegerOp("aten::add", Arange(runtime, sequence));
  const Tensor key_range = IntegerOp("aten::add", Arange(runtime, sequence));
  const Tensor query = View(query_range, {1, 1, sequence, 1});
  const Tensor key = View(key_range, {1, 1, 1, sequence});
  Tensor mask;
  if (!padding.defined()) {
    mask = causal ? CausalMaskFunction(query, key, sliding)
                  : Empty(runtime, {1, 1, sequence, sequence}, DType::kBool);
  } else {
    // True & causal & padding_mask[batch, key]
    mask = Empty(runtime, {}, DType::kBool);
    if (causal) {
      const Tensor of_rows = CausalMaskFunction(query, key, sliding);
      mask = AndMasks(mask, of_rows);
    }
    const Tensor picked = Empty(runtime, {batch, 1, 1, sequence}, DType::kBool);
    mask = AndMasks(mask, picked);
  }
  return Expand(mask, {batch, -1, sequence, sequence});
}

// eager_mask: where(mask, 0, min) in the dtype of the embeddings.
Tensor FloatMask(const Tensor& mask, DType dtype) {
  Runtime& runtime = mask.runtime();
  const Tensor zero = Empty(runtime, {}, dtype);
  const Tensor lowest = Empty(runtime, {}, dtype);
  return Empty(runtime, mask.shape(), dtype);
}

// attention_mask.to(dtype=torch.bool)
Tensor BooleanPadding(const Tensor& attention_mask) {
  return attention_mask.defined() ? ToCopy(attention_mask, DType::kBool) : Tensor();
}

Tensor Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = Mul(x, cos);
  Tensor turned = RotateHalf(x);
  turned = Mul(turned, sin);
  return Add(straight, turned);
}

}  // namespace

Tensor CreateCausalMask(AttnImplementation attn, const Tensor& embeddings,
                        const Tensor& attention_mask, const Tensor& position_ids,
                        std::optional<int64_t> window, bool allow_is_causal_skip) {
  Runtime& runtime = embeddings.runtime();
  const PositionScope scope(runtime);
  const int64_t batch = embeddings.size(0);
  const int64_t sequence = embeddings.size(1);
  const Tensor padding = BooleanPadding(attention_mask);
  if (position_ids.defined() && !padding.defined()) FindPackedSequences(position_ids, batch);
  if (attn == AttnImplementation::kSdpa) {
    // A window that the sequence fills needs a mask (_ignore_causal_mask_sdpa).
    if ((window && sequence >= *window) || !allow_is_causal_skip) {
      return BooleanMask(runtime, batch, sequence, padding, true, window.has_value());
    }
    if (padding.defined()) FastAll(padding);
    return Tensor();
  }
  if (attn == AttnImplementation::kFlashAttention2) return Tensor();
  const Tensor mask = BooleanMask(runtime, batch, sequence, padding, true, window.has_value());
  return FloatMask(mask, embeddings.dtype());
}

Tensor CreateBidirectionalMask(AttnImplementation attn, const Tensor& embeddings,
                               const Tensor& attention_mask) {
  const PositionScope scope(embeddings.runtime());
  const Tensor padding = BooleanPadding(attention_mask);
  if (padding.defined() && attn != AttnImplementation::kFlashAttention2) FastAll(padding);
  return Tensor();
}

Tensor RotateHalf(const Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  const Tensor x1 = Slice(x, -1, 0, half);
  const Tensor x2 = Slice(x, -1, half, x.size(-1));
  const Tensor halves[] = {Neg(x2), x1};
  return Cat(halves, -1);
}

Tensor RepeatKv(const Tensor& x, int64_t groups) {
  if (groups == 1) return x;
  const Tensor repeated =
      Expand(Unsqueeze(x, 2), {x.size(0), x.size(1), groups, x.size(2), x.size(3)});
  return Reshape(repeated, {x.size(0), x.size(1) * groups, x.size(2), x.size(3)});
}

Tensor SdpaAttentionForward(const Tensor& query, const Tensor& key, const Tensor& value,
                            const Tensor& mask, const AttentionOptions& options) {
  const Scoped kind(query.runtime().kind, Kind::kAttention);
  Tensor k = key;
  Tensor v = value;
  SdpaOptions sdpa{.dropout = options.dropout,
                   .is_causal = options.is_causal && !mask.defined() && query.size(2) > 1};
  if (options.groups > 1) {
    // use_gqa_in_sdpa
    sdpa.enable_gqa = !mask.defined() && key.size(-1) == value.size(-1) && key.size(-1) <= 256;
    if (!sdpa.enable_gqa) {
      k = RepeatKv(key, options.groups);
      v = RepeatKv(value, options.groups);
    }
  }
  const Tensor output = ScaledDotProductAttention(query, k, v, mask, sdpa);
  return Contiguous(Transpose(output, 1, 2));
}

AttentionOutput EagerAttentionForward(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const Tensor& mask, const AttentionOptions& options) {
  Runtime& runtime = query.runtime();
  const Scoped kind(runtime.kind, Kind::kAttention);
  const Tensor keys = RepeatKv(key, options.groups);
  const Tensor values = RepeatKv(value, options.groups);
  Tensor weights;
  {
    const Scoped scores(runtime.kind, Kind::kAttentionScores);
    weights = Matmul(query, Transpose(keys, 2, 3));
    weights = MulScalar(weights);
    if (options.softcap) {
      weights = DivScalar(weights);
      weights = Tanh(weights);
      weights = MulScalar(weights);
    }
    if (mask.defined()) weights = Add(weights, mask);
    weights = Softmax(weights, DType::kFloat32);
    weights = To(weights, query.dtype());
    weights = Dropout(weights, options.dropout);
  }
  const Tensor output = Matmul(weights, values);
  return {Contiguous(Transpose(output, 1, 2)), weights};
}

Tensor PositionIds(const Tensor& embeddings) {
  const PositionScope scope(embeddings.runtime());
  const Tensor shifted = IntegerOp("aten::add", Arange(embeddings.runtime(), embeddings.size(1)));
  return Unsqueeze(shifted, 0);
}

std::pair<Tensor, Tensor> RotaryEmbedding(const Tensor& inv_freq, const Tensor& x,
                                          const Tensor& position_ids, bool casts) {
  Runtime& runtime = x.runtime();
  const Scoped kind(runtime.kind, Kind::kPosition);
  const Scoped no_grad(runtime.grad_enabled, false);
  const Tensor frequencies = View(inv_freq, {1, inv_freq.numel(), 1});
  const Tensor positions = ToCopy(Unsqueeze(position_ids, 1), DType::kFloat32);
  Tensor cos;
  Tensor sin;
  Tensor angles;
  Tensor both;
  {
    const Scoped no_autocast(runtime.autocast.enabled, false);
    angles = Transpose(Matmul(frequencies, positions), 1, 2);
    const Tensor halves[] = {angles, angles};
    both = Cat(halves, -1);
    cos = Cos(both);
    cos = MulScalar(cos);
    sin = Sin(both);
    sin = MulScalar(sin);
  }
  if (!casts) return {cos, sin};
  return {To(cos, x.dtype()), To(sin, x.dtype())};
}

std::pair<Tensor, Tensor> ApplyRotary(const Tensor& q, const Tensor& k, const Tensor& cos_table,
                                      const Tensor& sin_table) {
  const Tensor cos = Unsqueeze(cos_table, 1);
  const Tensor sin = Unsqueeze(sin_table, 1);
  Tensor rotated_q = Rotate(q, cos, sin);
  return {rotated_q, Rotate(k, cos, sin)};
}

Tensor FixedCrossEntropy(const Tensor& logits, const Tensor& targets,
                         const Tensor& num_items_in_batch) {
  Tensor loss = CrossEntropy(logits, targets);
  if (num_items_in_batch.defined()) loss = Div(loss, num_items_in_batch);
  return loss;
}

Tensor CausalLmLoss(const Tensor& given_logits, const Tensor& labels,
                    const Tensor& num_items_in_batch) {
  Runtime& runtime = given_logits.runtime();
  const Scoped kind(runtime.kind, Kind::kLogitsLoss);
  Tensor logits = To(given_logits, DType::kFloat32);
  // pad(labels, (0, 1))[..., 1:].contiguous()
  const Tensor padded = Empty(runtime, {labels.size(0), labels.size(1) + 1}, labels.dtype());
  const Tensor shifted = Contiguous(Slice(padded, 1, 1, padded.size(1)));
  logits = View(logits, {-1, logits.size(-1)});
  return FixedCrossEntropy(logits, View(shifted, {-1}), num_items_in_batch);
}

}  // namespace headroom::predict
