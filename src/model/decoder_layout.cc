// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, the __init__ methods of models/{llama,mistral,…}/modeling_*.py.
#include "model/decoder_layout.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.h"
#include "model/parameter_builders.h"

namespace headroom {
namespace {

using Layout = DecoderLayout;

// The options of one class, over the sizes that all share.
struct Family {
  std::string_view model_type;
  void (*describe)(const ModelConfig& config, Layout& layout);
};

void Llama(const ModelConfig& config, Layout& layout) {
  layout.qkv_bias = layout.out_bias = config.MaybeBool("attention_bias").value_or(false);
  layout.mlp_bias = config.MaybeBool("mlp_bias").value_or(false);
}

void Mistral(const ModelConfig&, Layout&) {}

void Qwen2(const ModelConfig&, Layout& layout) { layout.qkv_bias = true; }

void Qwen3(const ModelConfig& config, Layout& layout) {
  Llama(config, layout);
  layout.qk_norm = Layout::QkNorm::kHead;
}

void Gemma(const ModelConfig& config, Layout& layout) {
  Llama(config, layout);
  layout.norm = Layout::Norm::kRmsPlusOne;
  layout.scaled_embedding = true;
}

void Gemma2(const ModelConfig& config, Layout& layout) {
  Gemma(config, layout);
  layout.layer_norms = Layout::LayerNorms::kAround;
}

void Gemma3(const ModelConfig& config, Layout& layout) {
  Gemma2(config, layout);
  layout.qk_norm = Layout::QkNorm::kHeadMoved;
  layout.rotary_per_kind = true;
}

// Only these classes turn a part of each head.
void PartialRotary(const ModelConfig& config, Layout& layout) {
  const std::optional<ModelConfig> rope = config.Object("rope_parameters");
  const double fraction = rope ? rope->MaybeFloat("partial_rotary_factor").value_or(1.0) : 1.0;
  layout.rotary_dim = static_cast<int64_t>(static_cast<double>(layout.head_dim) * fraction);
}

void Phi(const ModelConfig& config, Layout& layout) {
  layout.norm = Layout::Norm::kLayerNorm;
  layout.layer_norms = Layout::LayerNorms::kInput;
  layout.final_norm = "final_layernorm";
  layout.final_norm_behind_rotary = true;
  layout.qkv_bias = layout.out_bias = layout.mlp_bias = layout.head_bias = true;
  layout.out_name = "dense";
  layout.mlp = Layout::Mlp::kPlain;
  if (config.Bool("qk_layernorm")) layout.qk_norm = Layout::QkNorm::kHeadMoved;
  PartialRotary(config, layout);
}

void Phi3(const ModelConfig& config, Layout& layout) {
  layout.fused_qkv = true;
  layout.mlp = Layout::Mlp::kFusedGated;
  PartialRotary(config, layout);
}

void StableLm(const ModelConfig& config, Layout& layout) {
  layout.norm = Layout::Norm::kLayerNorm;
  if (config.Bool("use_parallel_residual")) layout.layer_norms = Layout::LayerNorms::kInput;
  layout.qkv_bias = config.Bool("use_qkv_bias");
  if (config.Bool("qk_layernorm")) layout.qk_norm = Layout::QkNorm::kPerHead;
  PartialRotary(config, layout);
}

void Olmo(const ModelConfig& config, Layout& layout) {
  Llama(config, layout);
  layout.norm = Layout::Norm::kLayerNormOfNothing;
}

void Olmo2(const ModelConfig& config, Layout& layout) {
  Llama(config, layout);
  layout.norm = Layout::Norm::kRmsInFp32;
  layout.layer_norms = Layout::LayerNorms::kBehind;
  layout.qk_norm = Layout::QkNorm::kWhole;
}

void Cohere(const ModelConfig& config, Layout& layout) {
  Llama(config, layout);
  layout.norm = Layout::Norm::kCohere;
  layout.layer_norms = Layout::LayerNorms::kInput;
  if (config.MaybeBool("use_qk_norm").value_or(false)) layout.qk_norm = Layout::QkNorm::kCohere;
}

void Starcoder2(const ModelConfig& config, Layout& layout) {
  layout.norm = Layout::Norm::kLayerNorm;
  layout.qkv_bias = layout.out_bias = layout.mlp_bias = config.Bool("use_bias");
  layout.mlp = Layout::Mlp::kPlain;
  layout.up_name = "c_fc";
  layout.down_name = "c_proj";
}

void Mixtral(const ModelConfig& config, Layout& layout) {
  layout.experts = Layout::Experts::kMixtral;
  layout.expert_count = config.Int("num_local_experts");
  layout.experts_per_token = config.Int("num_experts_per_tok");
  layout.expert_inner = layout.inner;
}

void QwenExperts(const ModelConfig& config, Layout& layout) {
  layout.expert_count = config.Int("num_experts");
  layout.experts_per_token = config.Int("num_experts_per_tok");
  layout.expert_inner = config.Int("moe_intermediate_size");
  layout.sparse_step = config.Int("decoder_sparse_step");
  layout.dense_layers = config.Ints("mlp_only_layers");
}

void Qwen3Moe(const ModelConfig& config, Layout& layout) {
  Qwen3(config, layout);
  QwenExperts(config, layout);
  layout.experts = Layout::Experts::kQwen3;
}

void Qwen2Moe(const ModelConfig& config, Layout& layout) {
  QwenExperts(config, layout);
  layout.qkv_bias = config.Bool("qkv_bias");
  layout.experts = Layout::Experts::kQwen2;
  layout.shared_expert_inner = config.Int("shared_expert_intermediate_size");
}

constexpr Family kFamilies[] = {
    {"cohere", &Cohere},
    {"gemma", &Gemma},
    {"gemma2", &Gemma2},
    {"gemma3_text", &Gemma3},
    {"granite", &Llama},
    {"llama", &Llama},
    {"mistral", &Mistral},
    {"mixtral", &Mixtral},
    {"olmo", &Olmo},
    {"olmo2", &Olmo2},
    {"phi", &Phi},
    {"phi3", &Phi3},
    {"qwen2", &Qwen2},
    {"qwen2_moe", &Qwen2Moe},
    {"qwen3", &Qwen3},
    {"qwen3_moe", &Qwen3Moe},
    {"smollm3", &Llama},
    {"stablelm", &StableLm},
    {"starcoder2", &Starcoder2},
};

const Family* FindFamily(std::string_view model_type) {
  const auto* const found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family& f) { return f.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

Status SetSizes(const ModelConfig& config, Layout& layout) {
  layout.vocab = config.Int("vocab_size");
  layout.hidden = config.Int("hidden_size");
  layout.layers = config.Int("num_hidden_layers");
  layout.heads = config.Int("num_attention_heads");
  layout.kv_heads = config.MaybeInt("num_key_value_heads").value_or(layout.heads);
  layout.inner = config.Int("intermediate_size");
  layout.tied = config.MaybeBool("tie_word_embeddings").value_or(false);
  if (!config.MaybeInt("head_dim")) {
    HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  }
  layout.head_dim = config.MaybeInt("head_dim").value_or(layout.hidden / layout.heads);
  if (layout.kv_heads <= 0 || layout.heads % layout.kv_heads != 0) {
    return Error::BadInput("num_attention_heads " + std::to_string(layout.heads) +
                           " is not divisible by num_key_value_heads " +
                           std::to_string(layout.kv_heads) +
                           ": correct one of them in config.json");
  }
  layout.rotary_dim = layout.head_dim;
  return {};
}

}  // namespace

bool DecoderLayout::IsSparse(int64_t layer) const {
  if (experts == Experts::kNone) return false;
  if (std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end())
    return false;
  return expert_count > 0 && (layer + 1) % sparse_step == 0;
}

bool IsDecoder(std::string_view model_type) { return FindFamily(model_type) != nullptr; }

Result<DecoderLayout> DecoderLayoutOf(const ModelConfig& config) {
  const Family* family = FindFamily(config.model_type());
  HEADROOM_CHECK(family != nullptr, "not a decoder: " + config.model_type());
  DecoderLayout layout;
  HEADROOM_RETURN_IF_ERROR(SetSizes(config, layout));
  family->describe(config, layout);
  if (layout.experts_per_token > layout.expert_count) {
    return Error::BadInput("num_experts_per_tok " + std::to_string(layout.experts_per_token) +
                           " is more than the " + std::to_string(layout.expert_count) +
                           " experts: correct one of them in config.json");
  }
  if (layout.sparse_step < 1) return Error::BadInput("decoder_sparse_step must be at least 1");
  return layout;
}

}  // namespace headroom
