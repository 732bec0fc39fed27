// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/llama/modeling_llama.py and its relatives; see decoder_layout.h.
#include "model/decoder_layout.h"
#include "model/parameter_builders.h"

namespace headroom {
namespace {

using Layout = DecoderLayout;

void AddNorm(ParameterTable& table, const Layout& layout, const std::string& name,
             const Shape& shape) {
  if (layout.norm == Layout::Norm::kLayerNormOfNothing) return;
  table.Add(name + ".weight", shape);
  if (layout.norm == Layout::Norm::kLayerNorm) table.Add(name + ".bias", shape);
}

void AddQkNorms(ParameterTable& table, const Layout& layout, const std::string& at) {
  const auto per_head = [&](const std::string& name, int64_t heads) {
    for (int64_t head = 0; head < heads; ++head) {
      table.Add(name + ".norms." + std::to_string(head) + ".weight", {layout.head_dim});
    }
  };
  switch (layout.qk_norm) {
    case Layout::QkNorm::kNone:
      return;
    case Layout::QkNorm::kHead:
    case Layout::QkNorm::kHeadMoved: {
      const std::string suffix = layout.norm == Layout::Norm::kLayerNorm ? "_layernorm" : "_norm";
      AddNorm(table, layout, at + "q" + suffix, {layout.head_dim});
      AddNorm(table, layout, at + "k" + suffix, {layout.head_dim});
      return;
    }
    case Layout::QkNorm::kWhole:
      AddNorm(table, layout, at + "q_norm", {layout.heads * layout.head_dim});
      AddNorm(table, layout, at + "k_norm", {layout.kv_heads * layout.head_dim});
      return;
    case Layout::QkNorm::kPerHead:
      per_head(at + "q_layernorm", layout.heads);
      per_head(at + "k_layernorm", layout.kv_heads);
      return;
    case Layout::QkNorm::kCohere:
      AddNorm(table, layout, at + "q_norm", {layout.heads, layout.head_dim});
      AddNorm(table, layout, at + "k_norm", {layout.kv_heads, layout.head_dim});
      return;
  }
}

void AddAttention(ParameterTable& table, const Layout& layout, const std::string& at) {
  const int64_t q = layout.heads * layout.head_dim;
  const int64_t kv = layout.kv_heads * layout.head_dim;
  const std::string out = at + std::string(layout.out_name);
  if (layout.fused_qkv) {
    table.AddLinear(out, q, layout.hidden, layout.out_bias);
    table.AddLinear(at + "qkv_proj", layout.hidden, q + 2 * kv, layout.qkv_bias);
  } else {
    table.AddLinear(at + "q_proj", layout.hidden, q, layout.qkv_bias);
    table.AddLinear(at + "k_proj", layout.hidden, kv, layout.qkv_bias);
    table.AddLinear(at + "v_proj", layout.hidden, kv, layout.qkv_bias);
    table.AddLinear(out, q, layout.hidden, layout.out_bias);
  }
  AddQkNorms(table, layout, at);
}

void AddMlp(ParameterTable& table, const Layout& layout, const std::string& at, int64_t inner) {
  switch (layout.mlp) {
    case Layout::Mlp::kGated:
      table.AddLinear(at + "gate_proj", layout.hidden, inner, layout.mlp_bias);
      table.AddLinear(at + "up_proj", layout.hidden, inner, layout.mlp_bias);
      table.AddLinear(at + "down_proj", inner, layout.hidden, layout.mlp_bias);
      return;
    case Layout::Mlp::kFusedGated:
      table.AddLinear(at + "gate_up_proj", layout.hidden, 2 * inner, layout.mlp_bias);
      table.AddLinear(at + "down_proj", inner, layout.hidden, layout.mlp_bias);
      return;
    case Layout::Mlp::kPlain:
      table.AddLinear(at + std::string(layout.up_name), layout.hidden, inner, layout.mlp_bias);
      table.AddLinear(at + std::string(layout.down_name), inner, layout.hidden, layout.mlp_bias);
      return;
  }
}

void AddExperts(ParameterTable& table, const Layout& layout, const std::string& at) {
  const auto gate = [&] { table.Add(at + "gate.weight", {layout.expert_count, layout.hidden}); };
  const auto experts = [&] {
    const int64_t count = layout.expert_count;
    table.Add(at + "experts.gate_up_proj", {count, 2 * layout.expert_inner, layout.hidden});
    table.Add(at + "experts.down_proj", {count, layout.hidden, layout.expert_inner});
  };
  if (layout.experts == Layout::Experts::kQwen3) {
    experts();
    gate();
    return;
  }
  gate();
  experts();
  if (layout.experts == Layout::Experts::kQwen2) {
    AddMlp(table, layout, at + "shared_expert.", layout.shared_expert_inner);
    table.AddLinear(at + "shared_expert_gate", layout.hidden, 1, false);
  }
}

void AddLayerNorms(ParameterTable& table, const Layout& layout, const std::string& at) {
  const auto norm = [&](const char* name) { AddNorm(table, layout, at + name, {layout.hidden}); };
  using LayerNorms = Layout::LayerNorms;
  if (layout.layer_norms != LayerNorms::kBehind) norm("input_layernorm");
  if (layout.layer_norms != LayerNorms::kInput) norm("post_attention_layernorm");
  if (layout.layer_norms == LayerNorms::kAround) norm("pre_feedforward_layernorm");
  if (layout.layer_norms == LayerNorms::kAround || layout.layer_norms == LayerNorms::kBehind) {
    norm("post_feedforward_layernorm");
  }
}

void AddRotary(ParameterTable& table, const ModelConfig& config, const Layout& layout) {
  const auto add = [&](const std::string& kind) {
    const Shape shape = {layout.rotary_dim / 2};
    table.AddBuffer("model.rotary_emb." + kind + "inv_freq", shape, DType::kFloat32);
    table.AddBuffer("model.rotary_emb." + kind + "original_inv_freq", shape, DType::kFloat32);
  };
  if (!layout.rotary_per_kind) return add("");
  // sorted(set(config.layer_types))
  const std::vector<std::string> types = config.Strings("layer_types");
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    for (const std::string& type : types) {
      if (type != kind) continue;
      add(type + "_");
      break;
    }
  }
}

Status AddHead(ParameterTable& table, const ModelConfig& config, const Layout& layout, Task task) {
  switch (task) {
    case Task::kCausalLm:
      if (!layout.tied) table.Add("lm_head.weight", {layout.vocab, layout.hidden});
      if (layout.head_bias) table.Add("lm_head.bias", {layout.vocab});
      return {};
    case Task::kSequenceClassification:
    case Task::kTokenClassification:
      table.AddLinear("score", layout.hidden, config.Int("num_labels"),
                      task == Task::kTokenClassification);
      return {};
    default:
      return UnsupportedTask(config, task);
  }
}

}  // namespace

Result<ParameterTable> DecoderParameters(const ModelConfig& config, Task task) {
  HEADROOM_ASSIGN_OR_RETURN(const DecoderLayout layout, DecoderLayoutOf(config));
  ParameterTable table;
  table.Add("model.embed_tokens.weight", {layout.vocab, layout.hidden});
  if (layout.scaled_embedding) {
    table.AddBuffer("model.embed_tokens.embed_scale", {}, DType::kFloat32);
  }
  for (int64_t layer = 0; layer < layout.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    AddAttention(table, layout, at + "self_attn.");
    if (layout.IsSparse(layer)) {
      AddExperts(table, layout, at + "mlp.");
    } else {
      AddMlp(table, layout, at + "mlp.", layout.inner);
    }
    AddLayerNorms(table, layout, at);
  }
  const auto final_norm = [&] {
    AddNorm(table, layout, "model." + std::string(layout.final_norm), {layout.hidden});
  };
  if (!layout.final_norm_behind_rotary) final_norm();
  AddRotary(table, config, layout);
  if (layout.final_norm_behind_rotary) final_norm();
  HEADROOM_RETURN_IF_ERROR(AddHead(table, config, layout, task));
  return table;
}

}  // namespace headroom
