// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: masking_utils.py, integrations/sdpa_attention.py, loss/loss_utils.py,
// models/llama/modeling_llama.py.
#include "predict/models/attention.h"

#include <algorithm>
#include <vector>

#include "predict/autograd.h"
#include "predict/kv_cache.h"

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

// What a mask is made of.
struct MaskShape {
  int64_t batch = 0;
  int64_t queries = 0;
  MaskSizes keys;
  int64_t query_offset = 0;
};

// sdpa_mask after its early exits: the boolean causal mask of every row, expanded over the batch.
Tensor BooleanMask(Runtime& runtime, const MaskShape& shape, const Tensor& padding, bool sliding) {
  const auto [batch, queries, keys, query_offset] = shape;
  const Tensor batch_range = Arange(runtime, batch);
  const Tensor head_range = Arange(runtime, 1);
  const Tensor query_range = IntegerOp("aten::add", Arange(runtime, queries));
  const Tensor key_range = IntegerOp("aten::add", Arange(runtime, keys.length));
  const Tensor query = View(query_range, {1, 1, queries, 1});
  const Tensor key = View(key_range, {1, 1, 1, keys.length});
  Tensor mask;
  if (!padding.defined()) {
    mask = CausalMaskFunction(query, key, sliding);
  } else {
    // True & causal & padding_mask[batch, key]
    mask = Empty(runtime, {}, DType::kBool);
    {
      const Tensor of_rows = CausalMaskFunction(query, key, sliding);
      mask = AndMasks(mask, of_rows);
    }
    const Tensor picked = Empty(runtime, {batch, 1, 1, keys.length}, DType::kBool);
    mask = AndMasks(mask, picked);
  }
  return Expand(mask, {batch, -1, queries, keys.length});
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

// prepare_padding_mask: torch.nn.functional.pad up to the keys.
Tensor PadToKeys(const Tensor& padding, const MaskSizes& keys) {
  const int64_t wanted = keys.length + keys.offset;
  if (!padding.defined() || padding.size(-1) >= wanted) return padding;
  return Empty(padding.runtime(), {padding.size(0), wanted}, padding.dtype());
}

// _ignore_causal_mask_sdpa, of a mask of ones: SDPA's is_causal, or a single query, needs none.
bool IgnoresCausalMask(const MaskShape& shape, const Tensor& given_padding,
                       std::optional<int64_t> window) {
  Tensor padding = given_padding;
  if (padding.defined() && padding.size(-1) > shape.keys.length) {
    const Tensor range = Arange(padding.runtime(), shape.keys.length);
    const Tensor indices = IntegerOp("aten::add", range);
    padding = Empty(padding.runtime(), {padding.size(0), shape.keys.length}, padding.dtype());
  }
  // A window that the keys fill needs a mask.
  if (window && shape.keys.length >= *window) return false;
  if (shape.queries == 1 || shape.keys.length == shape.queries) {
    if (padding.defined()) FastAll(padding);
    return true;
  }
  if (shape.query_offset != 0) return false;
  if (padding.defined()) {
    // Behind the queries stand the positions of a static cache that are yet to come.
    FastAll(Slice(padding, 1, 0, shape.queries));
    const Tensor rest = Slice(padding, 1, shape.queries, padding.size(1));
    FastAll(IntegerOp("aten::bitwise_not", rest));
  }
  return true;
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
                        std::optional<int64_t> window, bool allow_is_causal_skip,
                        const KeyValueCache* past) {
  Runtime& runtime = embeddings.runtime();
  const PositionScope scope(runtime);
  const bool sliding = window.has_value();
  MaskShape shape;
  shape.batch = embeddings.size(0);
  shape.queries = embeddings.size(1);
  shape.keys.length = shape.queries;
  const Tensor given = BooleanPadding(attention_mask);
  if (past != nullptr) {
    shape.keys = past->Sizes(shape.queries, sliding);
    shape.query_offset = past->QueryOffset(sliding);
    if (past->is_static() && shape.queries == 1) allow_is_causal_skip = false;
  } else if (position_ids.defined() && !given.defined()) {
    FindPackedSequences(position_ids, shape.batch);
  }
  if (attn == AttnImplementation::kFlashAttention2) return Tensor();
  const Tensor padding = PadToKeys(given, shape.keys);
  if (attn == AttnImplementation::kSdpa) {
    if (allow_is_causal_skip && IgnoresCausalMask(shape, padding, window)) return Tensor();
    return BooleanMask(runtime, shape, padding, sliding);
  }
  const Tensor mask = BooleanMask(runtime, shape, padding, sliding);
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

AttentionOutput AutocastAttentionForward(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& mask, double dropout,
                                         const Tensor& position_bias) {
  Tensor weights;
  {
    const Scoped scores(q.runtime().kind, Kind::kAttentionScores);
    weights = Matmul(q, Transpose(k, 2, 3));
    weights = MulScalar(weights);
    if (position_bias.defined()) weights = Add(weights, position_bias);
    if (mask.defined()) weights = Add(weights, mask);
    weights = Softmax(weights);
    weights = Dropout(weights, dropout);
  }
  const Tensor output = Matmul(weights, v);
  return {Contiguous(Transpose(output, 1, 2)), weights};
}

Tensor PositionIds(const Tensor& embeddings) {
  const PositionScope scope(embeddings.runtime());
  const Tensor shifted = IntegerOp("aten::add", Arange(embeddings.runtime(), embeddings.size(1)));
  return Unsqueeze(shifted, 0);
}

Tensor PositionIdsOf(const Batch& batch, const Tensor& embeddings) {
  return batch.position_ids.defined() ? batch.position_ids : PositionIds(embeddings);
}

Tensor StatesToKeep(const Tensor& hidden, const Batch& batch) {
  if (batch.logits_to_keep == 0) return hidden;
  const int64_t end = hidden.size(1);
  return Slice(hidden, 1, end - std::min(batch.logits_to_keep, end), end);
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
