// SPDX-License-Identifier: Apache-2.0
//
// Tensors of one type as another: what loading a bfloat16 checkpoint into float32 weights does.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace headroom::engine {

// Whether Convert() knows the way: between floating-point types, and from any type to itself.
bool Converts(DType from, DType to);

// Writes `source` as `to`, by way of float32, rounded to nearest even; beyond the largest value is
// infinity. Neither side need be aligned. REQUIRES: Converts(from, to), and as many elements on
// both sides.
void Convert(std::span<const std::byte> source, DType from, std::span<std::byte> destination,
             DType to);

}  // namespace headroom::engine
