// SPDX-License-Identifier: Apache-2.0
#include "model/kv_layout.h"

namespace headroom {
namespace {

int64_t FirstOf(const ModelConfig& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const std::optional<int64_t> value = config.MaybeInt(key)) return *value;
  }
  return 0;
}

// Heads of keys and values as they are cached.
int64_t CachedHeads(const ModelConfig& config, int64_t heads) {
  const bool multi_query = config.MaybeBool("multi_query").value_or(false);
  // Falcon's new architecture repeats its keys for every query before it caches them.
  if (config.MaybeBool("new_decoder_architecture").value_or(false)) return heads;
  if (multi_query) return 1;
  return config.MaybeInt("num_key_value_heads").value_or(heads);
}

}  // namespace

KvLayout KvLayoutOf(const ModelConfig& config) {
  KvLayout layout;
  layout.layers = FirstOf(config, {"decoder_layers", "num_decoder_layers", "num_hidden_layers"});
  const int64_t heads = FirstOf(config, {"decoder_attention_heads", "num_attention_heads"});
  layout.heads = CachedHeads(config, heads);
  layout.head_dim = config.MaybeInt("head_dim").value_or(0);
  if (layout.head_dim == 0 && heads > 0) layout.head_dim = config.Int("hidden_size") / heads;
  return layout;
}

}  // namespace headroom
