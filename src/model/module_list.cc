// SPDX-License-Identifier: Apache-2.0
#include "model/module_list.h"

#include <algorithm>
#include <unordered_set>

namespace headroom {
namespace {

// Names under which the modelling files of transformers 5.17.0 keep an nn.Embedding.
constexpr std::string_view kEmbeddings[] = {
    "embed_positions",
    "embed_tokens",
    "embeddings",
    "position_embeddings",
    "rel_embeddings",
    "relative_attention_bias",
    "shared",
    "tok_embeddings",
    "token_type_embeddings",
    "word_embeddings",
    "wpe",
    "wte",
};

// FalconLinear is a torch.nn.Linear with a forward of its own.
constexpr std::string_view kFalconLinears[] = {"query_key_value", "dense", "dense_h_to_4h",
                                               "dense_4h_to_h"};

template <typename Names>
bool EndsWithOneOf(const Names& names, std::string_view path) {
  const size_t dot = path.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? path : path.substr(dot + 1);
  return std::ranges::find(names, last) != std::end(names);
}

}  // namespace

std::string_view ParentPath(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::vector<ModuleEntry> ListModules(const ParameterTable& table) {
  std::unordered_set<std::string_view> names;
  for (const ParameterSpec& spec : table.entries()) names.insert(spec.name);
  std::vector<ModuleEntry> modules;
  for (const ParameterSpec& spec : table.entries()) {
    const std::string_view name = spec.name;
    if (spec.is_buffer || spec.shape.rank() != 2 || !name.ends_with(".weight")) continue;
    const std::string_view path = ParentPath(name);
    ModuleEntry entry{.path = std::string(path), .in = spec.shape[1], .out = spec.shape[0]};
    if (spec.linear == LinearWeight::kConv1d) {
      entry.kind = ModuleKind::kConv1d;
      std::swap(entry.in, entry.out);
    } else if (spec.linear == LinearWeight::kNo && EndsWithOneOf(kEmbeddings, path)) {
      entry.kind = ModuleKind::kEmbedding;
      std::swap(entry.in, entry.out);
    } else if (spec.linear == LinearWeight::kNo && !EndsWithOneOf(kFalconLinears, path)) {
      continue;
    }
    entry.bias = names.contains(entry.path + ".bias");
    modules.push_back(std::move(entry));
  }
  return modules;
}

bool IsEmbeddingWeight(std::string_view name) {
  constexpr std::string_view kBase = ".base_layer";
  if (!name.ends_with(".weight")) return false;
  std::string_view path = ParentPath(name);
  if (path.ends_with(kBase)) path.remove_suffix(kBase.size());
  return EndsWithOneOf(kEmbeddings, path);
}

bool IsOutputEmbedding(std::string_view path) {
  constexpr std::string_view kPaths[] = {
      "cls.predictions.decoder", "decoder",         "embed_out",
      "generator_lm_head",       "lm_head",         "lm_head.decoder",
      "predictions.decoder",     "vocab_projector",
  };
  return std::ranges::find(kPaths, path) != std::end(kPaths);
}

}  // namespace headroom
