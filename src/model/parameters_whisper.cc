// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/whisper/modeling_whisper.py: WhisperForConditionalGeneration.
#include "model/parameter_builders.h"

namespace headroom {
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
  AddBartLayers(table, config, "encoder");
  table.AddLayerNorm(encoder + "layer_norm", hidden);
  table.Add("model.decoder.embed_tokens.weight", {vocabulary, hidden});
  table.Add("model.decoder.embed_positions.weight", {config.Int("max_target_positions"), hidden});
  AddBartLayers(table, config, "decoder");
  table.AddLayerNorm("model.decoder.layer_norm", hidden);
  if (!config.MaybeBool("tie_word_embeddings").value_or(true)) {
    table.AddLinear("proj_out", hidden, vocabulary, false);
  }
  return table;
}

}  // namespace headroom
