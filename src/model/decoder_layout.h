// SPDX-License-Identifier: Apache-2.0
//
// DecoderLayout: what tells one Llama-like decoder from another, as far as its tensors go.
//
// transformers derives these classes from one another (its modular files); here each is a set of
// options over one decoder: which projections it has, which of them are biased or fused, what its
// norms hold and where they stand. parameters_decoder.cc lists the tensors of a layout, and
// predict/models/decoder.h runs it.
//
//   DecoderLayoutOf(qwen2)  ->  Llama with biased q, k and v
//   DecoderLayoutOf(olmo2)  ->  no input norm, a norm behind each half of the layer, q and k norms
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace headroom {

struct DecoderLayout {
  enum class Norm {
    kRms,                 // Llama: the weight multiplies what was cast back
    kRmsInFp32,           // OLMo 2: the weight multiplies in fp32
    kRmsPlusOne,          // Gemma: 1 + weight, in fp32
    kLayerNorm,           // torch.nn.LayerNorm
    kLayerNormOfNothing,  // OLMo: layer_norm without weight and bias
    kCohere,              // a layer norm written out, without bias
  };
  enum class QkNorm {
    kNone,
    kHead,       // Qwen 3: the norm over head_dim, before the heads move forward
    kHeadMoved,  // Gemma 3, Phi: the same after they moved
    kWhole,      // OLMo 2: over all heads at once
    kPerHead,    // StableLM: a LayerNorm of its own for each head, without bias
    kCohere,     // [heads, head_dim]
  };
  enum class Mlp {
    kGated,       // down_proj(act(gate_proj(x)) * up_proj(x))
    kFusedGated,  // Phi 3: gate_up_proj
    kPlain,       // down(act(up(x)))
  };
  // A layer's norms in the order in which its class registers them.
  enum class LayerNorms {
    kInputAndMiddle,  // input_layernorm, post_attention_layernorm
    kInput,           // one norm for both halves of a parallel layer
    kBehind,          // post_attention_layernorm, post_feedforward_layernorm
    kAround,          // Gemma 2: before and behind each half
  };
  // Mixtures of experts: how the block registers its parts.
  enum class Experts { kNone, kMixtral, kQwen3, kQwen2 };

  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // of head_dim
  int64_t inner = 0;

  Norm norm = Norm::kRms;
  LayerNorms layer_norms = LayerNorms::kInputAndMiddle;
  std::string_view final_norm = "norm";
  bool final_norm_behind_rotary = false;  // registered after rotary_emb

  bool fused_qkv = false;
  bool qkv_bias = false;
  bool out_bias = false;
  std::string_view out_name = "o_proj";
  QkNorm qk_norm = QkNorm::kNone;

  Mlp mlp = Mlp::kGated;
  bool mlp_bias = false;
  std::string_view up_name = "fc1";  // of kPlain
  std::string_view down_name = "fc2";

  Experts experts = Experts::kNone;
  int64_t expert_count = 0;
  int64_t experts_per_token = 0;
  int64_t expert_inner = 0;
  int64_t shared_expert_inner = 0;    // Qwen 2
  int64_t sparse_step = 1;            // every so many layers are sparse
  std::vector<int64_t> dense_layers;  // mlp_only_layers

  bool scaled_embedding = false;  // Gemma: a buffer embed_scale beside the embedding
  bool rotary_per_kind = false;   // Gemma 3: a table for full and one for sliding layers
  bool tied = false;
  bool head_bias = false;

  bool IsSparse(int64_t layer) const;
};

// The layout of a model_type of this family. Fails when the config contradicts itself.
// REQUIRES: IsDecoder(config.model_type()).
Result<DecoderLayout> DecoderLayoutOf(const ModelConfig& config);
bool IsDecoder(std::string_view model_type);

}  // namespace headroom
