// SPDX-License-Identifier: Apache-2.0
//
// ModuleEntry: a module of a model that fine-tuning may replace, under its Hugging Face path.
//
//   model.layers.0.self_attn.q_proj   linear     in 2048, out 2048
//   transformer.h.0.attn.c_attn       conv1d     in 768, out 2304
//   model.embed_tokens                embedding  in 32000 (rows), out 2048
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameter_table.h"

namespace headroom {

enum class ModuleKind : uint8_t { kLinear, kConv1d, kEmbedding };

struct ModuleEntry {
  std::string path;
  ModuleKind kind = ModuleKind::kLinear;
  int64_t in = 0;
  int64_t out = 0;
  bool bias = false;
  // The weight is another module's: a head on the word embedding.
  bool tied = false;
};

// The linear, Conv1D and embedding modules of `table` in its order. A head on a tied weight has no
// weight of its own there and is left out.
std::vector<ModuleEntry> ListModules(const ParameterTable& table);

// "a.b" of "a.b.c", "" of "c".
std::string_view ParentPath(std::string_view name);

// Whether the parameter `name` is an nn.Embedding's weight.
bool IsEmbeddingWeight(std::string_view name);

// Whether `path` is where a class keeps the layer onto its vocabulary (get_output_embeddings).
bool IsOutputEmbedding(std::string_view path);

}  // namespace headroom
