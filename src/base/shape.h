// SPDX-License-Identifier: Apache-2.0
//
// Shape: the sizes of a tensor's dimensions, outermost first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"

namespace headroom {

// A short fixed-capacity list of dimension sizes; [] is a scalar with one element.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) {
    for (const int64_t size : sizes) Append(size);
  }
  explicit Shape(std::span<const int64_t> sizes) {
    for (const int64_t size : sizes) Append(size);
  }

  int rank() const { return rank_; }
  int64_t operator[](int dim) const {
    return sizes_[static_cast<size_t>(dim < 0 ? dim + rank_ : dim)];
  }
  int64_t& operator[](int dim) { return sizes_[static_cast<size_t>(dim < 0 ? dim + rank_ : dim)]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }

  void Append(int64_t size) {
    HEADROOM_CHECK(rank_ < kMaxRank, "a tensor of more than 8 dimensions");
    sizes_[static_cast<size_t>(rank_++)] = size;
  }

  // The product of the sizes.
  int64_t NumElements() const {
    int64_t product = 1;
    for (const int64_t size : *this) product *= size;
    return product;
  }

  bool operator==(const Shape& other) const {
    return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
  }

  // "[4, 512, 1024]"
  std::string ToString() const {
    std::string text = "[";
    for (int dim = 0; dim < rank_; ++dim) {
      if (dim > 0) text += ", ";
      text += std::to_string((*this)[dim]);
    }
    return text + "]";
  }

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace headroom
