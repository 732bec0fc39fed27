// SPDX-License-Identifier: Apache-2.0
//
// ParameterTable: every parameter and buffer of a model, under its Hugging Face name.
//
// One file per architecture (parameters_bert.cc, …) lists them in the order of
// named_parameters(), so that indices, optimizer groups and safetensors names agree with
// transformers. A tied weight stands once, under the name that named_parameters() yields.
//
//   bert.embeddings.word_embeddings.weight          [30522, 1024]
//   bert.encoder.layer.0.attention.self.query.bias  [1024]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/result.h"
#include "base/shape.h"
#include "model/config.h"
#include "model/recipe.h"

namespace headroom {

// Whether a parameter is the weight of a layer that multiplies by it: torch.nn.Linear [out, in], or
// transformers' Conv1D [in, out].
enum class LinearWeight : uint8_t { kNo, kLinear, kConv1d };

struct ParameterSpec {
  std::string name;
  Shape shape;
  bool is_buffer = false;
  LinearWeight linear = LinearWeight::kNo;
  // Its own type. Unset of what takes the type the model is loaded in: parameters, and buffers made
  // without naming a type (torch.zeros).
  std::optional<DType> dtype = std::nullopt;
  bool frozen = false;  // requires_grad is false

  // Its type in a model that is loaded in `loaded`.
  DType TypeIn(DType loaded) const { return dtype.value_or(loaded); }
};

class ParameterTable {
 public:
  // The table of `config`'s class for `task`. Fails when the architecture is not known, has no such
  // task or the config contradicts itself (a hidden size not divisible by the heads).
  static Result<ParameterTable> Build(const ModelConfig& config, Task task);

  // model_types that Build knows, sorted.
  static std::vector<std::string_view> SupportedModelTypes();

  const std::vector<ParameterSpec>& entries() const { return entries_; }
  // Null when no entry has this name.
  const ParameterSpec* Find(std::string_view name) const;
  int64_t parameter_count() const;  // buffers left out, tied weights once
  Bytes parameter_bytes(DType dtype) const;
  int64_t trainable_count() const;  // likewise, of those that are not frozen
  // Of a model that is loaded in `loaded`.
  Bytes buffer_bytes(DType loaded) const;

  // ---- For the architecture files ----

  void Add(std::string name, Shape shape);
  void Add(ParameterSpec spec);
  void AddBuffer(std::string name, Shape shape, DType dtype);
  // A buffer in the type the model is loaded in.
  void AddBuffer(std::string name, Shape shape);
  // weight [out, in] and, unless told otherwise, bias [out]: torch.nn.Linear.
  void AddLinear(const std::string& name, int64_t in, int64_t out, bool bias = true);
  // weight [in, out] and bias [out]: Conv1D of transformers.
  void AddConv1d(const std::string& name, int64_t in, int64_t out);
  // weight [size] and bias [size]: torch.nn.LayerNorm.
  void AddLayerNorm(const std::string& name, int64_t size, bool bias = true);

 private:
  std::vector<ParameterSpec> entries_;
};

}  // namespace headroom
