// SPDX-License-Identifier: Apache-2.0
#include "engine/initialise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cpu/dropout.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/vector_kernels.h"

namespace headroom::engine {
namespace {

// Stream 0 of Philox belongs to no dropout.
class Normals {
 public:
  Normals(uint64_t seed, uint32_t parameter, double deviation)
      : seed_(seed), parameter_(parameter), deviation_(deviation) {}

  // Elements e and e + 1, e even, by Box and Muller's transform.
  void Pair(uint64_t e, float* values) const {
    const auto words =
        Philox({static_cast<uint32_t>(e), static_cast<uint32_t>(e >> 32), parameter_, 0}, seed_);
    const double radius = deviation_ * std::sqrt(-2 * std::log((words[0] + 1.0) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * words[1] * 0x1p-32;
    values[0] = static_cast<float>(radius * std::cos(angle));
    values[1] = static_cast<float>(radius * std::sin(angle));
  }

 private:
  uint64_t seed_;
  uint32_t parameter_;
  double deviation_;
};

double DeviationOf(const ModelConfig& config, std::string_view name) {
  const double range = config.Has("init_std")            ? config.Float("init_std")
                       : config.Has("initializer_range") ? config.Float("initializer_range")
                                                         : 0.02;
  const bool scaled = config.model_type() == "gpt2" && name.ends_with("c_proj.weight");
  if (!scaled) return range;
  return range / std::sqrt(2.0 * static_cast<double>(config.Int("num_hidden_layers")));
}

void Store(const TensorView& tensor, int64_t first, int64_t n, const float* values) {
  std::byte* to = tensor.data + first * ElementSize(tensor.dtype);
  if (tensor.dtype == DType::kFloat32) {
    std::memcpy(to, values, static_cast<size_t>(n) * sizeof(float));
  } else {
    cpu::Kernels().store(values, n, tensor.dtype, to);
  }
}

constexpr int64_t kBlock = 1024;

// job(start, n) for each block of a tensor's elements.
template <typename Job>
void ForBlocks(const TensorView& tensor, int64_t work, const Job& job) {
  const int64_t elements = tensor.shape.NumElements();
  cpu::ParallelFor((elements + kBlock - 1) / kBlock, work * kBlock, [&](int64_t block) {
    const int64_t start = block * kBlock;
    job(start, std::min(kBlock, elements - start));
  });
}

void Fill(const TensorView& tensor, const Normals& normals) {
  constexpr int64_t kNormalWork = 50;  // elementary operations of a value
  ForBlocks(tensor, kNormalWork, [&](int64_t start, int64_t n) {
    float values[kBlock];
    for (int64_t i = 0; i < kBlock; i += 2) {
      normals.Pair(static_cast<uint64_t>(start + i), values + i);
    }
    Store(tensor, start, n, values);
  });
}

void FillRow(const TensorView& tensor, int64_t row, float value) {
  const std::vector<float> values(static_cast<size_t>(tensor.cols()), value);
  Store(tensor, row * tensor.cols(), tensor.cols(), values.data());
}

bool IsWordTable(std::string_view name) {
  return name.ends_with("word_embeddings.weight") || name.ends_with("embed_tokens.weight") ||
         name.ends_with("shared.weight");
}

}  // namespace

void InitialiseWeights(const ModelConfig& config, const Executor& executor, uint64_t seed) {
  uint32_t index = 0;
  for (const graph::Parameter& parameter : executor.graph().parameters()) {
    const TensorView& tensor = executor.View(parameter.truth());
    const std::string& name = executor.graph().tensor(parameter.weight).name;
    if (tensor.shape.rank() > 1) {
      Fill(tensor, Normals(seed, ++index, DeviationOf(config, name)));
    } else {
      FillRow(tensor, 0, name.ends_with(".bias") ? 0.0F : 1.0F);
    }
    const std::optional<int64_t> padding = config.MaybeInt("pad_token_id");
    if (IsWordTable(name) && padding && *padding >= 0 && *padding < tensor.rows()) {
      FillRow(tensor, *padding, 0);
    }
  }
  CopyMasters(executor);
}

void FillConstants(const ModelGraph& model, const Executor& executor) {
  for (const auto& [tensor, values] : model.constants) {
    std::copy(values.begin(), values.end(), executor.View(tensor).As<float>());
  }
}

void CopyMasters(const Executor& executor) {
  for (const graph::Parameter& parameter : executor.graph().parameters()) {
    if (parameter.master == graph::kNoTensor) continue;
    const TensorView& master = executor.View(parameter.master);
    const TensorView& weight = executor.View(parameter.weight);
    ForBlocks(master, 1, [&](int64_t start, int64_t n) {
      Store(weight, start, n, master.As<float>() + start);
    });
  }
}

}  // namespace headroom::engine
