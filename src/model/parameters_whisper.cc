// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/whisper/modeling_whisper.py: WhisperForConditionalGeneration.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddAttention(ParameterTable& table, const std::string& at, int64_t hidden) {
  table.AddLinear(at + ".k_proj", hidden, hidden, false);
  for (const char* projection : {".v_proj", ".q_proj", ".out_proj"}) {
    table.AddLinear(at + projection, hidden, hidden);
  }
  table.AddLayerNorm(at + "_layer_norm", hidden);
}

// The layers of one of the two stacks, and the norm after them: `side` is "encoder" or "decoder".
void AddLayers(ParameterTable& table, const ModelConfig& config, const std::string& side) {
  const int64_t hidden = config.Int("d_model");
  const int64_t inner = config.Int(side + "_ffn_dim");
  const std::string root = "model." + side + ".";
  for (int64_t layer = 0; layer < config.Int(side + "_layers"); ++layer) {
    const std::string at = root + "layers." + std::to_string(layer) + ".";
    AddAttention(table, at + "self_attn", hidden);
    if (side == "decoder") AddAttention(table, at + "encoder_attn", hidden);
    table.AddLinear(at + "fc1", hidden, inner);
    table.AddLinear(at + "fc2", inner, hidden);
    table.AddLayerNorm(at + "final_layer_norm", hidden);
  }
  table.AddLayerNorm(root + "layer_norm", hidden);
}

}  // namespace

Result<ParameterTable> WhisperParameters(const ModelConfig& config, Task task) {
  if (task != Task::kSeq2SeqLm) return UnsupportedTask(config, task);
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "d_model", "encoder_attention_heads"));
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "d_model", "decoder_attention_heads"));
  const int64_t hidden = config.Int("d_model");
  const int64_t vocabulary = config.Int("vocab_size");
  constexpr int64_t kKernel = 3;

  ParameterTable table;
  const std::string encoder = "model.encoder.";
  table.Add(encoder + "conv1.weight", {hidden, config.Int("num_mel_bins"), kKernel});
  table.Add(encoder + "conv1.bias", {hidden});
  table.Add(encoder + "conv2.weight", {hidden, hidden, kKernel});
  table.Add(encoder + "conv2.bias", {hidden});
  // Sinusoids: embed_positions.requires_grad_(False).
  table.Add({.name = encoder + "embed_positions.weight",
             .shape = {config.Int("max_source_positions"), hidden},
             .frozen = true});
  AddLayers(table, config, "encoder");
  table.Add("model.decoder.embed_tokens.weight", {vocabulary, hidden});
  table.Add("model.decoder.embed_positions.weight", {config.Int("max_target_positions"), hidden});
  AddLayers(table, config, "decoder");
  if (!config.MaybeBool("tie_word_embeddings").value_or(true)) {
    table.AddLinear("proj_out", hidden, vocabulary, false);
  }
  return table;
}

}  // namespace headroom
