// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/{bart,mbart,marian,pegasus}/modeling_*.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

// What the family's encoders and decoders have besides their layers.
struct Form {
  bool learned_positions;    // and an offset of 2; else sinusoidal, frozen
  bool layernorm_embedding;  // after the embeddings
  bool final_layer_norm;     // after the last layer
};

Form FormOf(const ModelConfig& config) {
  const std::string& type = config.model_type();
  const bool learned = type == "bart" || type == "mbart";
  return {.learned_positions = learned,
          .layernorm_embedding = learned,
          .final_layer_norm = type == "mbart" || type == "pegasus"};
}

void AddAttention(ParameterTable& table, const std::string& at, int64_t hidden, bool key_bias) {
  table.AddLinear(at + ".k_proj", hidden, hidden, key_bias);
  for (const char* projection : {".v_proj", ".q_proj", ".out_proj"}) {
    table.AddLinear(at + projection, hidden, hidden);
  }
  table.AddLayerNorm(at + "_layer_norm", hidden);
}

// One of the two stacks: `side` is "encoder" or "decoder". `vocabulary` 0: its embedding is tied.
void AddStack(ParameterTable& table, const ModelConfig& config, const std::string& side,
              int64_t vocabulary) {
  const Form form = FormOf(config);
  const int64_t hidden = config.Int("d_model");
  const std::string root = "model." + side + ".";
  if (vocabulary > 0) table.Add(root + "embed_tokens.weight", {vocabulary, hidden});
  const int64_t offset = form.learned_positions ? 2 : 0;
  table.Add(root + "embed_positions.weight",
            {config.Int("max_position_embeddings") + offset, hidden});
  AddBartLayers(table, config, side);
  if (form.layernorm_embedding) table.AddLayerNorm(root + "layernorm_embedding", hidden);
  if (form.final_layer_norm) table.AddLayerNorm(root + "layer_norm", hidden);
}

}  // namespace

void AddBartLayers(ParameterTable& table, const ModelConfig& config, const std::string& side) {
  const bool key_bias = config.model_type() != "whisper";
  const int64_t hidden = config.Int("d_model");
  const int64_t inner = config.Int(side + "_ffn_dim");
  for (int64_t layer = 0; layer < config.Int(side + "_layers"); ++layer) {
    const std::string at = "model." + side + ".layers." + std::to_string(layer) + ".";
    AddAttention(table, at + "self_attn", hidden, key_bias);
    if (side == "decoder") AddAttention(table, at + "encoder_attn", hidden, key_bias);
    table.AddLinear(at + "fc1", hidden, inner);
    table.AddLinear(at + "fc2", inner, hidden);
    table.AddLayerNorm(at + "final_layer_norm", hidden);
  }
}

Result<ParameterTable> BartParameters(const ModelConfig& config, Task task) {
  if (task != Task::kSeq2SeqLm) return UnsupportedTask(config, task);
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "d_model", "encoder_attention_heads"));
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "d_model", "decoder_attention_heads"));
  const int64_t hidden = config.Int("d_model");
  const int64_t vocabulary = config.Int("vocab_size");
  const bool tied = config.MaybeBool("tie_word_embeddings").value_or(true);
  // Marian alone may have two vocabularies.
  const bool shared = config.MaybeBool("share_encoder_decoder_embeddings").value_or(true);
  const int64_t decoder_vocabulary =
      shared ? vocabulary : config.MaybeInt("decoder_vocab_size").value_or(vocabulary);
  const bool tied_to_shared = tied && shared;

  ParameterTable table;
  if (shared) table.Add("model.shared.weight", {vocabulary, hidden});
  AddStack(table, config, "encoder", tied_to_shared ? 0 : vocabulary);
  AddStack(table, config, "decoder", tied_to_shared ? 0 : decoder_vocabulary);
  if (!tied) table.AddLinear("lm_head", hidden, decoder_vocabulary, false);
  table.AddBuffer("final_logits_bias", {1, decoder_vocabulary});
  return table;
}

}  // namespace headroom
