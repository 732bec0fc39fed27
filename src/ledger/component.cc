// SPDX-License-Identifier: Apache-2.0
#include "ledger/component.h"

namespace headroom {
namespace {

constexpr std::array<std::string_view, kComponentCount> kComponentNames = {
    "weights", "gradients", "optimizer", "activations", "temporaries",
    "inputs",  "kv_cache",  "workspace", "cache",       "context",
};

constexpr std::array<std::string_view, kKindCount> kKindNames = {
    "other", "attention",  "attention_scores", "logits_loss", "dropout_mask", "dropout", "norm",
    "mlp",   "embedding",  "residual",         "cast",        "position",     "routing", "foreach",
    "lora",  "collective",
};

template <typename Enum, size_t kCount>
std::optional<Enum> Find(const std::array<std::string_view, kCount>& names, std::string_view name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view Name(Component component) {
  return kComponentNames[static_cast<size_t>(component)];
}
std::optional<Component> ParseComponent(std::string_view name) {
  return Find<Component>(kComponentNames, name);
}

std::string_view Name(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::optional<Kind> ParseKind(std::string_view name) { return Find<Kind>(kKindNames, name); }

}  // namespace headroom
