// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/vit/modeling_vit.py and models/deit/modeling_deit.py.
#include "model/parameter_builders.h"

namespace headroom {

Result<ParameterTable> VitParameters(const ModelConfig& config, Task task) {
  if (task != Task::kImageClassification) return UnsupportedTask(config, task);
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.Int("intermediate_size");
  const int64_t patch = config.Int("patch_size");
  const int64_t side = patch > 0 ? config.Int("image_size") / patch : 0;
  if (side < 1) {
    return Error::BadInput("image_size " + std::to_string(config.Int("image_size")) +
                           " holds no patch of patch_size " + std::to_string(patch) +
                           ": correct one of them in config.json");
  }
  const bool qkv_bias = config.MaybeBool("qkv_bias").value_or(true);
  const bool distilled = config.model_type() == "deit";
  const std::string root = config.model_type() + ".";

  ParameterTable table;
  table.Add(root + "embeddings.cls_token", {1, 1, hidden});
  table.Add(root + "embeddings.position_embeddings",
            {1, side * side + (distilled ? 2 : 1), hidden});
  if (distilled) table.Add(root + "embeddings.distillation_token", {1, 1, hidden});
  table.Add(root + "embeddings.patch_embeddings.projection.weight",
            {hidden, config.Int("num_channels"), patch, patch});
  table.Add(root + "embeddings.patch_embeddings.projection.bias", {hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    const std::string at = root + "layers." + std::to_string(layer) + ".";
    for (const char* projection : {"q_proj", "k_proj", "v_proj"}) {
      table.AddLinear(at + "attention." + projection, hidden, hidden, qkv_bias);
    }
    table.AddLinear(at + "attention.o_proj", hidden, hidden);
    table.AddLayerNorm(at + "layernorm_before", hidden);
    table.AddLayerNorm(at + "layernorm_after", hidden);
    table.AddLinear(at + "mlp.fc1", hidden, inner);
    table.AddLinear(at + "mlp.fc2", inner, hidden);
  }
  table.AddLayerNorm(root + "layernorm", hidden);
  table.AddLinear("classifier", hidden, config.Int("num_labels"));
  return table;
}

}  // namespace headroom
