// SPDX-License-Identifier: Apache-2.0
//
// What transformers' modelling files share around attention: masks, SDPA and rotary embeddings.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "predict/model.h"
#include "predict/tensor.h"

namespace headroom::predict {

// ---- masking_utils.py ----

// create_causal_mask. Returns the mask that attention gets: undefined where SDPA's
// is_causal takes its place, else [batch, 1, query, key] (bool for SDPA, `embeddings`' dtype for
// eager). `attention_mask` [batch, sequence] or undefined, here always all ones; `position_ids`
// [1, sequence], undefined for models that do not pass them. With a window,
// create_sliding_window_causal_mask. A cache adds the keys it holds.
Tensor CreateCausalMask(AttnImplementation attn, const Tensor& embeddings,
                        const Tensor& attention_mask, const Tensor& position_ids,
                        std::optional<int64_t> window = std::nullopt,
                        bool allow_is_causal_skip = true, const KeyValueCache* past = nullptr);

// create_bidirectional_mask: undefined where no token is masked.
Tensor CreateBidirectionalMask(AttnImplementation attn, const Tensor& embeddings,
                               const Tensor& attention_mask);

// ---- integrations/sdpa_attention.py ----

struct AttentionOptions {
  double dropout = 0;  // of the attention probabilities, in training
  bool is_causal = false;
  int64_t groups = 1;    // query heads to a key-value head
  bool softcap = false;  // Gemma 2's, which only the eager form applies
};

// sdpa_attention_forward: [batch, heads, sequence, head_dim] in, [batch, sequence, heads, head_dim]
// out.
Tensor SdpaAttentionForward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                            const AttentionOptions& options);

// What attention returns: the eager forms return their probabilities too, which the callers' frames
// keep until the layer ends.
struct AttentionOutput {
  Tensor states;   // [batch, sequence, heads, head_dim]
  Tensor weights;  // [batch, heads, sequence, sequence], or undefined
};

// repeat_kv: every key-value head `groups` times.
Tensor RepeatKv(const Tensor& x, int64_t groups);

// The eager attention of Llama and its relatives: softmax in fp32, cast back, dropout.
AttentionOutput EagerAttentionForward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Tensor& mask, const AttentionOptions& options);

// The eager attention of BERT, BART and T5: softmax in autocast's fp32, without a cast back of its
// own. T5 adds its `position_bias` to the scores before the mask.
AttentionOutput AutocastAttentionForward(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& mask, double dropout,
                                         const Tensor& position_bias = Tensor());

// ---- Position embeddings ----

// position_ids of decoders: torch.arange(sequence) + past, then unsqueeze(0).
Tensor PositionIds(const Tensor& embeddings);
// Those of the batch where generate made them, else the above.
Tensor PositionIdsOf(const Batch& batch, const Tensor& embeddings);

// LlamaRotaryEmbedding.forward: cos and sin [1, sequence, head_dim] in the dtype of `x`, or as they
// are computed, in fp32.
std::pair<Tensor, Tensor> RotaryEmbedding(const Tensor& inv_freq, const Tensor& x,
                                          const Tensor& position_ids, bool casts = true);

// rotate_half.
Tensor RotateHalf(const Tensor& x);

// apply_rotary_pos_emb.
std::pair<Tensor, Tensor> ApplyRotary(const Tensor& q, const Tensor& k, const Tensor& cos,
                                      const Tensor& sin);

// ---- Heads ----

// hidden[:, -logits_to_keep:, :]: what the language model's head projects.
Tensor StatesToKeep(const Tensor& hidden, const Batch& batch);

// ---- loss/loss_utils.py ----

// ForCausalLMLoss: fp32 logits, labels shifted by one.
Tensor CausalLmLoss(const Tensor& logits, const Tensor& labels, const Tensor& num_items_in_batch);
// fixed_cross_entropy: the mean, or the sum over the items of the batch.
Tensor FixedCrossEntropy(const Tensor& logits, const Tensor& targets,
                         const Tensor& num_items_in_batch);

}  // namespace headroom::predict
