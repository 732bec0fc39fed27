// SPDX-License-Identifier: Apache-2.0
//
// DeviceMap: which modules from_pretrained(device_map="auto") puts on which card.
//
// Cards are filled in turn with whole modules; what does not fit is split into its children, except
// for transformer layers, which stay whole. "auto" first gives every card but the last an equal
// share (plus room for a layer and a quarter), so that all are used; the first card keeps room for
// the largest layer.
//
//   two cards of 80 GB, a model of 24 layers in 48 GB:
//   card 0: model.embed_tokens, model.layers.0 … 11     card 1: model.layers.12 … 23, norm, lm_head
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "model/parameter_table.h"

namespace headroom {

enum class DeviceMapKind : uint8_t { kAuto, kSequential };  // "auto" ("balanced"), "sequential"

struct PlacedModule {
  std::string path;  // of a module, or of a parameter that lies beside its module's children
  Bytes bytes;
};

struct DeviceMap {
  std::vector<std::vector<PlacedModule>> cards;
  std::vector<PlacedModule> offloaded;  // what no card had room for: host memory, then disk

  static Bytes Sum(const std::vector<PlacedModule>& modules);
};

// Places the model in `dtype` on cards with so much free memory each. REQUIRES: free is not empty.
DeviceMap InferDeviceMap(const ParameterTable& table, DType dtype, const std::vector<Bytes>& free,
                         DeviceMapKind kind);

// The path of the transformer layer that `name` lies in ("model.layers.3"), or empty.
std::string_view LayerOf(std::string_view name);

}  // namespace headroom
