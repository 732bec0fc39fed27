// SPDX-License-Identifier: Apache-2.0
//
// KeyValueCache: the keys and values of the tokens seen so far, as transformers' Cache keeps them.
//
// The dynamic cache grows by torch.cat, so that a layer holds its old and its new tensor for a
// moment; a sliding layer keeps the last window - 1 positions. The static cache is allocated at its
// full length by the first update and written in place.
//
//   dynamic, 1,024 tokens seen:  Update appends one: 1,024 and 1,025 positions live, then 1,025
//   static of 4,096:             Update writes one:  4,096 positions, always
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "model/config.h"
#include "predict/tensor.h"

namespace headroom::predict {

// Keys and values, [batch, heads, positions, head_dim] each.
struct KeyValue {
  Tensor keys;
  Tensor values;
};

// What a layer's attention sees: the positions it has keys for and the first of them.
struct MaskSizes {
  int64_t length = 0;
  int64_t offset = 0;
};

// The cache of one layer.
class CacheLayer {
 public:
  virtual ~CacheLayer() = default;
  // Adds keys and values of new positions; returns those that attention reads.
  virtual KeyValue Update(const Tensor& keys, const Tensor& values) = 0;
  // What `count` updates by one position each leave behind, without playing them.
  virtual void Pass(int64_t count) = 0;
  virtual MaskSizes Sizes(int64_t query_length) const = 0;
  virtual int64_t sequence_length() const = 0;  // positions seen
  virtual bool is_sliding() const { return false; }
  // The keys and values held, for cross-attention that reads them again.
  const KeyValue& held() const { return held_; }
  // Takes the rows `beams` [batch] of the batch.
  void Reorder(const Tensor& beams);

 protected:
  KeyValue held_;
};

class KeyValueCache {
 public:
  // DynamicCache(config=…) and StaticCache(config=…, max_cache_len=…): sliding layers where the
  // config has a window.
  static std::unique_ptr<KeyValueCache> Dynamic(const ModelConfig& config, int64_t layers);
  static std::unique_ptr<KeyValueCache> Static(const ModelConfig& config, int64_t layers,
                                               int64_t max_length);

  KeyValue Update(size_t layer, const Tensor& keys, const Tensor& values);
  int64_t sequence_length(size_t layer = 0) const { return layers_[layer]->sequence_length(); }
  // Of the first layer of that kind, which stands for all of them.
  MaskSizes Sizes(int64_t query_length, bool sliding) const;
  int64_t QueryOffset(bool sliding) const;
  // Made for torch.compile: decoding gets its masks made beforehand.
  bool is_static() const { return static_; }
  void Reorder(const Tensor& beams);
  // Every layer's Pass.
  void Pass(int64_t count);

  // EncoderDecoderCache: the keys and values of the encoder's states, written once. Null unless the
  // cache is one of an encoder-decoder.
  KeyValueCache* cross_attention() const { return cross_attention_.get(); }
  void set_cross_attention(std::unique_ptr<KeyValueCache> cache);
  bool IsUpdated(size_t layer) const { return layers_[layer]->held().keys.defined(); }
  const KeyValue& Held(size_t layer) const { return layers_[layer]->held(); }

 private:
  KeyValueCache(std::vector<std::unique_ptr<CacheLayer>> layers, bool is_static);
  const CacheLayer& LayerOfKind(bool sliding) const;

  std::vector<std::unique_ptr<CacheLayer>> layers_;
  bool static_;
  std::unique_ptr<KeyValueCache> cross_attention_;
};

// key_states, value_states = past_key_values.update(key_states, value_states, layer_idx).
std::pair<Tensor, Tensor> Cached(KeyValueCache& past, size_t layer, const Tensor& keys,
                                 const Tensor& values);

// The same for attention over an encoder's states: computed and written by the first call, and read
// again by later ones. `make` gives the keys and values of the first.
template <typename Make>
std::pair<Tensor, Tensor> CachedOnce(KeyValueCache& past, size_t layer, const Make& make) {
  if (past.IsUpdated(layer)) return {past.Held(layer).keys, past.Held(layer).values};
  const std::pair<Tensor, Tensor> made = make();
  return Cached(past, layer, made.first, made.second);
}

}  // namespace headroom::predict
