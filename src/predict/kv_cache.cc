// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, cache_utils.py.
#include "predict/kv_cache.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// What the cache keeps is kv_cache, whoever calls.
class CacheScope {
 public:
  explicit CacheScope(Runtime& runtime)
      : component_(runtime.component, Component::kKvCache), kind_(runtime.kind, Kind::kAttention) {}

 private:
  Scoped<Component> component_;
  Scoped<Kind> kind_;
};

// torch.cat([held, added], dim=-2), copied also where nothing is held yet.
Tensor Appended(const Tensor& held, const Tensor& added) {
  const Tensor both[] = {held, added};
  return held.defined() ? Cat(both, -2) : Cat(std::span(&added, 1), -2);
}

// A tensor of `length` positions in the place of `held`.
Tensor Resized(const Tensor& held, int64_t length) {
  Shape shape = held.shape();
  shape[-2] = length;
  return Empty(held.runtime(), shape, held.dtype());
}

// DynamicLayer.
class DynamicLayer final : public CacheLayer {
 public:
  KeyValue Update(const Tensor& keys, const Tensor& values) override {
    held_.keys = Appended(held_.keys, keys);
    held_.values = Appended(held_.values, values);
    return held_;
  }
  void Pass(int64_t count) override {
    held_.keys = Resized(held_.keys, sequence_length() + count);
    held_.values = Resized(held_.values, sequence_length());
  }
  MaskSizes Sizes(int64_t query_length) const override {
    return {sequence_length() + query_length, 0};
  }
  int64_t sequence_length() const override {
    return held_.keys.defined() ? held_.keys.size(-2) : 0;
  }
};

// DynamicSlidingWindowLayer: attention sees the whole of an update, the cache keeps a view of its
// last window - 1 positions, and with it all of its memory.
class DynamicSlidingLayer final : public CacheLayer {
 public:
  explicit DynamicSlidingLayer(int64_t window) : window_(window) {}

  KeyValue Update(const Tensor& keys, const Tensor& values) override {
    // _sliding_window_tensor, brought to the device by the first update.
    if (!window_tensor_.defined()) window_tensor_ = Empty(keys.runtime(), {}, DType::kInt64);
    seen_ += keys.size(-2);
    KeyValue whole{Appended(held_.keys, keys), Appended(held_.values, values)};
    held_.keys = Slice(whole.keys, -2, KeptFrom(whole.keys), whole.keys.size(-2));
    held_.values = Slice(whole.values, -2, KeptFrom(whole.values), whole.values.size(-2));
    return whole;
  }
  void Pass(int64_t count) override {
    seen_ += count;
    const int64_t length = std::min(held_.keys.size(-2) + count, std::max<int64_t>(window_ - 1, 1));
    held_.keys = Resized(held_.keys, length);
    held_.values = Resized(held_.values, length);
  }
  MaskSizes Sizes(int64_t query_length) const override {
    const int64_t held = seen_ >= window_ ? window_ - 1 : seen_;
    return {held + query_length, std::max<int64_t>(seen_ - window_ + 1, 0)};
  }
  int64_t sequence_length() const override { return seen_; }
  bool is_sliding() const override { return true; }

 private:
  // [-window + 1:]; of a window of one, that is everything.
  int64_t KeptFrom(const Tensor& x) const {
    return window_ == 1 ? 0 : std::max<int64_t>(x.size(-2) - window_ + 1, 0);
  }

  int64_t window_;
  int64_t seen_ = 0;
  Tensor window_tensor_;
};

// StaticLayer.
class StaticLayer : public CacheLayer {
 public:
  explicit StaticLayer(int64_t max_length) : max_length_(max_length) {}

  KeyValue Update(const Tensor& keys, const Tensor& values) override {
    Initialize(keys, values);
    Write(keys.size(-2));
    return held_;
  }
  void Pass(int64_t count) override { seen_ += count; }
  MaskSizes Sizes(int64_t) const override { return {max_length_, 0}; }
  int64_t sequence_length() const override { return seen_; }

 protected:
  void Initialize(const Tensor& keys, const Tensor& values) {
    if (held_.keys.defined()) return;
    const auto whole = [this](const Tensor& x) {
      return Zeros(x.runtime(), {x.size(0), x.size(1), max_length_, x.size(-1)}, x.dtype());
    };
    held_ = {whole(keys), whole(values)};
    length_tensor_ = Empty(keys.runtime(), {}, DType::kInt64);  // cumulative_length.to(device)
  }
  // index_copy_ at torch.arange(count) + cumulative_length.
  void Write(int64_t count) {
    Runtime& runtime = held_.keys.runtime();
    const Scoped component(runtime.component, Component::kInputs);
    const Tensor range = Arange(runtime, count);
    const Tensor positions = AddScalar(range);
    seen_ += count;
  }

  int64_t max_length_;
  int64_t seen_ = 0;
  Tensor length_tensor_;
};

// StaticSlidingWindowLayer.
class StaticSlidingLayer final : public StaticLayer {
 public:
  StaticSlidingLayer(int64_t window, int64_t max_length)
      : StaticLayer(std::min(window, max_length)) {}

  KeyValue Update(const Tensor& keys, const Tensor& values) override {
    Initialize(keys, values);
    const int64_t added = keys.size(-2);
    const int64_t before = seen_;
    if (before < max_length_ && before + added <= max_length_) {
      Write(added);
      return held_;
    }
    seen_ += added;
    if (before >= max_length_ && added == 1) {
      // Rolled by one, and copied back.
      const Tensor rolled_keys = EmptyLike(held_.keys);
      const Tensor rolled_values = EmptyLike(held_.values);
      const Tensor index = Empty(keys.runtime(), {1}, DType::kInt64);
      return held_;
    }
    if (before == 0) return {keys, values};
    // Beyond the window: attention gets what is held and the new positions.
    const int64_t from = before >= max_length_ ? 1 : 0;
    const int64_t end = std::min(before, max_length_);
    return {Appended(Slice(held_.keys, -2, from, end), keys),
            Appended(Slice(held_.values, -2, from, end), values)};
  }
  MaskSizes Sizes(int64_t query_length) const override {
    const int64_t offset = std::max<int64_t>(seen_ - max_length_ + 1, 0);
    if (seen_ >= max_length_) return {max_length_ + query_length - 1, offset};
    return {std::max(seen_ + query_length, max_length_), offset};
  }
  bool is_sliding() const override { return true; }
};

// get_layer_types_and_kwargs: the window of each layer, unset where it has none.
std::vector<std::optional<int64_t>> Windows(const ModelConfig& config, int64_t layers) {
  const std::optional<int64_t> window = config.MaybeInt("sliding_window");
  const std::vector<std::string> types = config.Strings("layer_types");
  std::vector<std::optional<int64_t>> windows;
  for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
    const bool sliding = types.empty() || (i < types.size() && types[i] == "sliding_attention");
    windows.push_back(sliding ? window : std::nullopt);
  }
  return windows;
}

}  // namespace

void CacheLayer::Reorder(const Tensor& beams) {
  if (!held_.keys.defined()) return;
  Runtime& runtime = held_.keys.runtime();
  const CacheScope scope(runtime);
  const OpScope op(runtime, "aten::index_select");
  for (Tensor* tensor : {&held_.keys, &held_.values}) {
    Shape shape = tensor->shape();
    shape[0] = beams.numel();
    *tensor = Empty(runtime, shape, tensor->dtype());
  }
}

KeyValueCache::KeyValueCache(std::vector<std::unique_ptr<CacheLayer>> layers, bool is_static)
    : layers_(std::move(layers)), static_(is_static) {}

std::unique_ptr<KeyValueCache> KeyValueCache::Dynamic(const ModelConfig& config, int64_t layers) {
  std::vector<std::unique_ptr<CacheLayer>> made;
  for (const std::optional<int64_t> window : Windows(config, layers)) {
    if (window) {
      made.push_back(std::make_unique<DynamicSlidingLayer>(*window));
    } else {
      made.push_back(std::make_unique<DynamicLayer>());
    }
  }
  return std::unique_ptr<KeyValueCache>(new KeyValueCache(std::move(made), false));
}

std::unique_ptr<KeyValueCache> KeyValueCache::Static(const ModelConfig& config, int64_t layers,
                                                     int64_t max_length) {
  std::vector<std::unique_ptr<CacheLayer>> made;
  for (const std::optional<int64_t> window : Windows(config, layers)) {
    if (window) {
      made.push_back(std::make_unique<StaticSlidingLayer>(*window, max_length));
    } else {
      made.push_back(std::make_unique<StaticLayer>(max_length));
    }
  }
  return std::unique_ptr<KeyValueCache>(new KeyValueCache(std::move(made), true));
}

KeyValue KeyValueCache::Update(size_t layer, const Tensor& keys, const Tensor& values) {
  HEADROOM_CHECK(layer < layers_.size(), "a layer beyond the cache");
  const CacheScope scope(keys.runtime());
  return layers_[layer]->Update(keys, values);
}

const CacheLayer& KeyValueCache::LayerOfKind(bool sliding) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(), [&](const auto& layer) {
    return layer->is_sliding() == sliding;
  });
  return found == layers_.end() ? *layers_.front() : **found;
}

MaskSizes KeyValueCache::Sizes(int64_t query_length, bool sliding) const {
  return LayerOfKind(sliding).Sizes(query_length);
}

int64_t KeyValueCache::QueryOffset(bool sliding) const {
  return LayerOfKind(sliding).sequence_length();
}

void KeyValueCache::Reorder(const Tensor& beams) {
  for (const std::unique_ptr<CacheLayer>& layer : layers_) layer->Reorder(beams);
  if (cross_attention_) cross_attention_->Reorder(beams);
}

std::pair<Tensor, Tensor> Cached(KeyValueCache& past, size_t layer, const Tensor& keys,
                                 const Tensor& values) {
  KeyValue cached = past.Update(layer, keys, values);
  return {std::move(cached.keys), std::move(cached.values)};
}

void KeyValueCache::Pass(int64_t count) {
  for (const std::unique_ptr<CacheLayer>& layer : layers_) {
    if (!layer->held().keys.defined()) continue;
    const CacheScope scope(layer->held().keys.runtime());
    layer->Pass(count);
  }
}

void KeyValueCache::set_cross_attention(std::unique_ptr<KeyValueCache> cache) {
  cross_attention_ = std::move(cache);
}

}  // namespace headroom::predict
