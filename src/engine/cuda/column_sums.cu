// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/column_sums.cuh"

namespace headroom::engine::cuda {
namespace {

// A tensor, or those of its rows whose index is wanted.
template <typename T, int V>
struct RowSource {
  static constexpr int kWidth = V;
  static constexpr int kRowsAtOnce = 4;
  using Piece = Packed<T, V>;

  Rows<const T> x;
  Indices index;
  int64_t wanted = 0;

  __device__ Piece Read(int64_t row, int64_t column) const {
    if (index.data != nullptr && index[row] != wanted) return {};
    return ReadPacked<V>(x.At(row, column));
  }
  __device__ void Yield(const Piece& piece, int64_t, int64_t, float (&values)[V]) const {
    Unpack(piece, values);
  }
};

}  // namespace

void SumRows(const Launch& launch, const TensorView& x, const TensorView& out, int64_t out_row,
             bool add, float* room, const TensorView& index, int64_t wanted) {
  WithTypeAndWidth(x.dtype, IsWide(x), [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    const RowSource<T, decltype(width)::kValue> source{RowsOf<const T>(x), IndicesOf(index),
                                                       wanted};
    LaunchColumnSums(source, x.rows(), x.cols(),
                     {.out = out.data,
                      .dtype = out.dtype,
                      .first = out_row * out.stride(),
                      .add = add,
                      .parts = room,
                      .counters = launch.counters},
                     launch.stream);
  });
}

}  // namespace headroom::engine::cuda
