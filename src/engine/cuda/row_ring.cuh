// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of norms share: how a row is divided among threads, and rows that are on their
// way.
#pragma once

#include "engine/cuda/async_copy.cuh"
#include "engine/cuda/device_types.cuh"

namespace headroom::engine::cuda {

// Threads of a block, and vectors of V elements that each of them keeps.
struct RowPlan {
  int threads = 32;
  int vectors = 1;
};

inline RowPlan PlanRow(int64_t columns, int width) {
  const int64_t vectors = CeilDiv(columns, width);
  RowPlan plan;
  plan.threads = static_cast<int>(std::min<int64_t>(CeilDiv(vectors, 32) * 32, 256));
  if (vectors > 1024) plan.threads = 1024;
  const int64_t each = CeilDiv(vectors, plan.threads);
  while (plan.vectors < each) plan.vectors *= 2;
  HEADROOM_CHECK(plan.vectors <= 8, "a norm of more columns than the CUDA backend takes");
  return plan;
}

// function(std::integral_constant-like width) for the vectors of a plan.
template <typename Function>
void WithVectors(int vectors, const Function& function) {
  if (vectors == 1) return function(Width<1>{});
  if (vectors == 2) return function(Width<2>{});
  if (vectors == 4) return function(Width<4>{});
  return function(Width<8>{});
}

// Pieces of rows that a thread has asked for and not yet used: a ring in shared memory, of which it
// sees its own part alone, so that no barrier is needed. Rows come out as they went in.
template <typename T, int kTensors, int kStages>
class RowRing {
 public:
  using Piece = Packed<T, 8>;

  // `room` is the thread's: pieces lie `threads` apart.
  __device__ RowRing(Piece* room, int threads) : room_(room), threads_(threads) {}

  static constexpr size_t BytesPerThread() { return sizeof(Piece) * kTensors * kStages; }

  // Asks for a piece of the row that is to come in `ahead` rows.
  __device__ void Ask(int tensor, int ahead, const T* from) const {
    const uint32_t to = SharedAddress(&At(tensor, ahead));
    for (int i = 0; i < static_cast<int>(sizeof(Piece) / 16); ++i) {
      CopyPiece(to + i * 16, reinterpret_cast<const uint8_t*>(from) + i * 16, true);
    }
  }
  __device__ const Piece& Get(int tensor) const { return At(tensor, 0); }
  __device__ void Next() { stage_ = stage_ + 1 == kStages ? 0 : stage_ + 1; }

 private:
  __device__ Piece& At(int tensor, int ahead) const {
    const int stage = stage_ + ahead < kStages ? stage_ + ahead : stage_ + ahead - kStages;
    return room_[(stage * kTensors + tensor) * threads_];
  }

  Piece* room_;
  int threads_;
  int stage_ = 0;
};

}  // namespace headroom::engine::cuda
