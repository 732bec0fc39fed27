// SPDX-License-Identifier: Apache-2.0
//
// accelerate 1.15.0, utils/fsdp_utils.py: fsdp2_prepare_model, _find_final_norm.
#include "predict/shard_units.h"

#include <algorithm>
#include <array>
#include <map>

#include "model/device_map.h"

namespace headroom::predict {
namespace {

std::string_view ParentOf(std::string_view name) { return name.substr(0, name.rfind('.')); }

std::string_view LastWord(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

// get_input_embeddings() by its names in transformers 5.17.0.
bool IsInputEmbedding(std::string_view path) {
  constexpr std::array<std::string_view, 8> kNames = {
      "wte",      "embed_tokens",   "word_embeddings", "shared",
      "embed_in", "word_embedding", "tok_embeddings",  "token_embedding"};
  return std::find(kNames.begin(), kNames.end(), LastWord(path)) != kNames.end();
}

// get_output_embeddings() by its names.
bool IsOutputHead(std::string_view path) {
  return path == "lm_head" || path == "embed_out" || path == "cls.predictions.decoder" ||
         path == "lm_head.decoder" || path == "predictions.decoder";
}

// A norm that is a direct child of the base model: "model.norm", "transformer.ln_f".
bool IsFinalNorm(std::string_view path) {
  if (std::count(path.begin(), path.end(), '.') != 1) return false;
  // These stand beside the base model, in T5 as in BART.
  if (path.starts_with("encoder.") || path.starts_with("decoder.")) return false;
  const std::string_view last = LastWord(path);
  return last == "norm" || last == "ln_f" || last == "norm_f" || last == "final_layer_norm" ||
         last == "final_layernorm" || last == "final_norm";
}

}  // namespace

bool TiesOutputHead(const std::vector<std::string>& parameter_names, Task task) {
  if (task != Task::kCausalLm && task != Task::kMaskedLm && task != Task::kSeq2SeqLm) return false;
  return std::none_of(parameter_names.begin(), parameter_names.end(), [](const std::string& name) {
    return name.ends_with(".weight") && IsOutputHead(ParentOf(name));
  });
}

std::vector<ShardUnit> FindShardUnits(const std::vector<std::string>& parameter_names, bool tied) {
  std::vector<ShardUnit> layers;
  std::map<std::string, size_t, std::less<>> layer_at;
  ShardUnit embedding{ShardUnit::Role::kInputEmbedding, {}, {}};
  ShardUnit tail{ShardUnit::Role::kTail, {}, {}};
  ShardUnit root{ShardUnit::Role::kRoot, {""}, {}};
  const auto add = [](ShardUnit& unit, std::string_view path, size_t parameter) {
    if (unit.modules.empty() || unit.modules.back() != path) unit.modules.emplace_back(path);
    unit.parameters.push_back(parameter);
  };
  for (size_t i = 0; i < parameter_names.size(); ++i) {
    const std::string_view name = parameter_names[i];
    const std::string_view module = ParentOf(name);
    if (const std::string_view layer = LayerOf(name); !layer.empty()) {
      const auto [at, added] = layer_at.try_emplace(std::string(layer), layers.size());
      if (added) layers.push_back({ShardUnit::Role::kLayer, {std::string(layer)}, {}});
      layers[at->second].parameters.push_back(i);
    } else if (IsInputEmbedding(module) && embedding.parameters.empty()) {
      add(embedding, module, i);
    } else if (IsFinalNorm(module) || IsOutputHead(module)) {
      add(tail, module, i);
    } else {
      root.parameters.push_back(i);
    }
  }
  if (tied) {
    // The shared weight stands behind the norm, and the group runs from the embedding on.
    tail.parameters.insert(tail.parameters.end(), embedding.parameters.begin(),
                           embedding.parameters.end());
    tail.modules.insert(tail.modules.begin(), embedding.modules.begin(), embedding.modules.end());
    tail.modules.emplace_back("lm_head");
    embedding.parameters.clear();
  }
  std::vector<ShardUnit> units = std::move(layers);
  if (!embedding.parameters.empty()) units.push_back(std::move(embedding));
  if (!tail.parameters.empty()) units.push_back(std::move(tail));
  units.push_back(std::move(root));
  return units;
}

size_t UnitOfModule(Runtime& runtime, const std::vector<ShardUnit>& units, std::vector<int>& known,
                    ModuleId module) {
  const auto at = static_cast<size_t>(module);
  if (at >= known.size()) known.resize(at + 1, -1);
  if (known[at] >= 0) return static_cast<size_t>(known[at]);
  const std::string& path = runtime.ledger().ModulePath(module);
  known[at] = static_cast<int>(units.size()) - 1;
  for (size_t i = 0; i + 1 < units.size(); ++i) {
    for (const std::string& of : units[i].modules) {
      const bool inside =
          path.starts_with(of) && (path.size() == of.size() || path[of.size()] == '.');
      if (inside) known[at] = static_cast<int>(i);
    }
  }
  return static_cast<size_t>(known[at]);
}

}  // namespace headroom::predict
