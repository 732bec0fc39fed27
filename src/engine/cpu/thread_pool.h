// SPDX-License-Identifier: Apache-2.0
//
// ThreadPool: the threads that share a loop's chunks.
//
// Who is free claims the next chunk, the caller too; the caller waits for chunks that somebody has
// claimed, and for nobody else. A thread that the system has put aside therefore holds up one chunk
// at most, where a barrier (OpenMP's) would hold up every loop: on a machine that others use too,
// that is the difference between half the speed and a tenth.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace headroom::engine::cpu {

class ThreadPool {
 public:
  // The process's pool: as many threads as OMP_NUM_THREADS says, else as there are processors.
  static ThreadPool& Get();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  // Of the loops to come, the caller's included. REQUIRES: threads > 0, and no loop runs.
  void SetThreads(int threads);
  int threads() const { return threads_; }
  // Of the calling thread: 0 outside the pool, else from 1 on.
  static int Index();

  // Calls run(context, chunk) once for each chunk of [0, chunks), in any order, on any thread.
  // REQUIRES: called by one thread at a time, and not from within `run`.
  using Run = void (*)(void* context, int64_t chunk);
  void ForChunks(int64_t chunks, Run run, void* context);

 private:
  explicit ThreadPool(int threads);
  void Work(int index);
  // Claims and runs chunks until none is left of the loop that `state_` tells of.
  void RunChunks();

  // What is claimed: the loop's number in the upper bits, the chunks that are left in the lower
  // kCountBits. A claim is a step from one value to the next, so that it fails once the loop is
  // another one.
  static constexpr int kCountBits = 24;
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> finished_{0};
  alignas(64) std::atomic<uint32_t> loops_{0};  // what sleepers wait on
  std::atomic<int> sleepers_{0};
  std::atomic<int> active_{1};  // threads that take part
  std::atomic<bool> stop_{false};

  // Of the loop; written before its number is, read after a chunk of it is claimed.
  Run run_ = nullptr;
  void* context_ = nullptr;

  int threads_ = 1;
  std::vector<std::thread> workers_;
};

}  // namespace headroom::engine::cpu
