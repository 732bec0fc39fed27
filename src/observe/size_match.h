// SPDX-License-Identifier: Apache-2.0
//
// Sizes as fingerprints: a model's parameters come in few sizes, each a known number of times.
//
//   GPT-2   [768, 2304] x 4 B  twelve times: c_attn.weight, its gradient, and two states of Adam
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"

namespace headroom::observe {

struct NamedSize;

// Bytes asked for -> how many blocks of that size.
using SizeCounts = std::unordered_map<int64_t, int64_t>;

// cuBLAS's workspaces as PyTorch sizes them (aten/src/ATen/cuda/CublasHandlePool.cpp, 2.11): 32 MiB
// on Hopper and Blackwell, 8,519,680 B (:4096:2:16:8) before. The first is the size of many a
// weight too, so this is asked last.
inline bool IsCublasWorkspace(int64_t bytes) {
  return bytes == 8'519'680 || bytes == int64_t{32} << 20;
}

class ParameterSizes {
 public:
  enum class Order { kForward, kBackward };

  explicit ParameterSizes(std::span<const NamedSize> parameters);
  bool empty() const { return parameters_.empty(); }
  std::span<const NamedSize> parameters() const { return parameters_; }

  SizeCounts Weights() const;
  // True once for every buffer of this size.
  bool TakeBuffer(int64_t bytes);

  // Hands out the parameters of a size one after the other, in the table's order or against it, and
  // from the start again when all have been used.
  class Namer {
   public:
    Namer(const std::unordered_map<int64_t, std::vector<uint32_t>>* by_size, Order order)
        : by_size_(by_size), order_(order) {}
    // Position of the parameter in the table + 1; 0 when no parameter has this size.
    uint32_t Next(int64_t bytes);

   private:
    const std::unordered_map<int64_t, std::vector<uint32_t>>* by_size_;
    Order order_;
    std::unordered_map<int64_t, size_t> used_;
  };
  Namer Names(Order order) const { return {&by_size_, order}; }

 private:
  std::span<const NamedSize> parameters_;
  std::unordered_map<int64_t, std::vector<uint32_t>> by_size_;
  SizeCounts buffers_;
};

}  // namespace headroom::observe
