// SPDX-License-Identifier: Apache-2.0
//
// How kernels see tensors of any storage type: as float32, a chunk of one row at a time.
//
//   Chunk buffer;
//   ForEachChunk(x.cols(), [&](int64_t column, int64_t n) {
//     const float* values = Read(x, row, column, n, buffer);   // in place where x is float32
//     …
//     Write(y, row, column, n, values);                        // converts where y is not
//   });
#pragma once

#include <algorithm>
#include <cstring>

#include "engine/cpu/vector_kernels.h"
#include "engine/op_call.h"

namespace headroom::engine::cpu {

inline constexpr int64_t kChunk = 1024;

struct alignas(64) Chunk {
  float values[kChunk];
};

// The operand at a position; absent where the list is shorter.
inline TensorView Operand(std::span<const TensorView> operands, size_t position) {
  return position < operands.size() ? operands[position] : TensorView{};
}

inline std::byte* Address(const TensorView& tensor, int64_t row, int64_t column) {
  return tensor.data + (row * tensor.stride() + column) * ElementSize(tensor.dtype);
}

inline float* Floats(const TensorView& tensor, int64_t row, int64_t column) {
  return tensor.As<float>() + row * tensor.stride() + column;
}

// n <= kChunk elements of a row.
inline const float* Read(const TensorView& tensor, int64_t row, int64_t column, int64_t n,
                         Chunk& buffer) {
  if (tensor.dtype == DType::kFloat32) return Floats(tensor, row, column);
  Kernels().load(Address(tensor, row, column), tensor.dtype, n, buffer.values);
  return buffer.values;
}

// Where to compute what Write then puts into the tensor: in place where it is float32.
inline float* Target(const TensorView& tensor, int64_t row, int64_t column, Chunk& buffer) {
  return tensor.dtype == DType::kFloat32 ? Floats(tensor, row, column) : buffer.values;
}

inline void Write(const TensorView& tensor, int64_t row, int64_t column, int64_t n,
                  const float* values) {
  if (tensor.dtype != DType::kFloat32) {
    Kernels().store(values, n, tensor.dtype, Address(tensor, row, column));
  } else if (values != Floats(tensor, row, column)) {
    std::memcpy(Floats(tensor, row, column), values, static_cast<size_t>(n) * sizeof(float));
  }
}

// Adds instead, in float32. `values` must not be the tensor's own.
inline void WriteOrAdd(const TensorView& tensor, int64_t row, int64_t column, int64_t n,
                       const float* values, bool add) {
  if (!add) return Write(tensor, row, column, n, values);
  Chunk buffer;
  const float* old = Read(tensor, row, column, n, buffer);
  float* sum = Target(tensor, row, column, buffer);
  Kernels().add(old, values, n, sum);
  Write(tensor, row, column, n, sum);
}

// What n values become in storage of this type.
inline void RoundTo(DType dtype, int64_t n, float* values) {
  if (dtype == DType::kFloat32) return;
  std::byte stored[2 * kChunk];
  Kernels().store(values, n, dtype, stored);
  Kernels().load(stored, dtype, n, values);
}

template <typename Function>
void ForEachChunk(int64_t columns, const Function& function) {
  for (int64_t column = 0; column < columns; column += kChunk) {
    function(column, std::min(kChunk, columns - column));
  }
}

// Token ids, labels and lengths: int32 or int64.
inline int64_t IndexAt(const TensorView& indices, int64_t i) {
  return indices.dtype == DType::kInt64 ? indices.As<int64_t>()[i] : indices.As<int32_t>()[i];
}

// A weight's gradient is written by the first micro-step of a window, and added to by later ones
// and by the second op that has the same weight.
inline bool AddsToWeight(const OpCall& call) {
  return call.step.micro_step > 0 || call.attributes.accumulate;
}

// What a chunk of sums over rows is computed in: rows are added in blocks, blocks to the total, so
// that the error grows with the number of blocks, and that rows given in two calls, cut at a
// multiple of the block, have the sum of one call.
inline constexpr int64_t kRowBlock = 128;
// Columns of one job of such a sum.
inline constexpr int64_t kColumnBlock = 64;

// out[column] (+)= sum over rows of x[row, column]
void SumRows(const TensorView& x, const TensorView& out, bool add);

}  // namespace headroom::engine::cpu
