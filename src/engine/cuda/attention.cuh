// SPDX-License-Identifier: Apache-2.0
//
// What all attention kernels share: the shape of cpu/attention_tile.h, on the device.
#pragma once

#include <cmath>

#include "engine/cuda/device_types.cuh"

namespace headroom::engine::cuda {

struct AttentionShape {
  int batch, queries, keys;
  int heads, kv_heads, head_dim;
  bool causal;
  float scale;
  Indices lengths;
  const float* slopes;
  DropoutArgs dropout;

  __device__ __host__ int group() const { return heads / kv_heads; }
  // How many keys query i of sequence b sees.
  __device__ int Visible(int b, int i) const {
    int visible = keys;
    if (lengths.data != nullptr) visible = min(keys, static_cast<int>(lengths[b]));
    return causal ? min(visible, max(i + 1 + keys - queries, 0)) : visible;
  }
  // ALiBi's addition to a score.
  __device__ float Bias(int head, int query, int key) const {
    return slopes == nullptr ? 0.0F
                             : slopes[head] * static_cast<float>(key - query - keys + queries);
  }
  // Of queries: their position in lse, and the row of the scores in the mask.
  __device__ int64_t Line(int b, int head, int query) const {
    return (static_cast<int64_t>(b) * heads + head) * queries + query;
  }
};

inline AttentionShape ShapeOf(const OpCall& call, const Launch& launch, size_t lengths) {
  const graph::OpAttributes& attributes = call.attributes;
  const int64_t keys = attributes.key_sequence > 0 ? attributes.key_sequence : attributes.sequence;
  return {.batch = static_cast<int>(attributes.batch),
          .queries = static_cast<int>(attributes.sequence),
          .keys = static_cast<int>(keys),
          .heads = attributes.heads,
          .kv_heads = attributes.kv_heads > 0 ? attributes.kv_heads : attributes.heads,
          .head_dim = attributes.head_dim,
          .causal = attributes.causal,
          .scale = attributes.scale,
          .lengths = IndicesOf(Operand(call.inputs, lengths)),
          .slopes = Operand(call.inputs, lengths + 1).As<const float>(),
          .dropout = DropoutOf(call, launch)};
}

}  // namespace headroom::engine::cuda
