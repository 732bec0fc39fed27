// SPDX-License-Identifier: Apache-2.0
//
// Loops over independent jobs. What a job computes must depend on its number alone, never on who
// runs it or beside what: then results are the same bits for every number of threads.
//
//   ParallelFor(rows, 3 * columns, [&](int64_t row) { … });
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/cpu/thread_pool.h"

namespace headroom::engine::cpu {

// Below this many elementary operations the start of the threads costs more than they save.
inline constexpr int64_t kParallelWork = 1 << 16;

// Calls job(0) … job(count - 1), in runs of neighbours. `work` is one job's elementary operations.
template <typename Job>
void ParallelFor(int64_t count, int64_t work, const Job& job) {
  if (count <= 1 || count * work <= kParallelWork) {
    for (int64_t i = 0; i < count; ++i) job(i);
    return;
  }
  // Enough chunks that a slow thread does not hold up the rest, each worth its claim.
  const int64_t worth = std::max<int64_t>(1, count * work / (kParallelWork / 4));
  const int64_t chunks = std::min({count, worth, int64_t{8} * ThreadPool::Get().threads()});
  struct Context {
    const Job& job;
    int64_t count;
    int64_t chunks;
  } context{job, count, chunks};
  ThreadPool::Get().ForChunks(
      chunks,
      [](void* pointer, int64_t chunk) {
        const auto& loop = *static_cast<const Context*>(pointer);
        const int64_t end = (chunk + 1) * loop.count / loop.chunks;
        for (int64_t i = chunk * loop.count / loop.chunks; i < end; ++i) loop.job(i);
      },
      &context);
}

// The same for jobs of uneven size: each is a chunk of its own.
template <typename Job>
void ParallelForUneven(int64_t count, int64_t work, const Job& job) {
  if (count <= 1 || count * work <= kParallelWork) {
    for (int64_t i = 0; i < count; ++i) job(i);
    return;
  }
  ThreadPool::Get().ForChunks(
      count, [](void* pointer, int64_t i) { (*static_cast<const Job*>(pointer))(i); },
      const_cast<Job*>(&job));
}

// The same for loops over the same things, one after the other: of each loop a thread takes the
// same share first, whose bytes it then finds in its own cache; who has done its share helps the
// others.
template <typename Job>
void ParallelForShares(int64_t count, int64_t work, const Job& job) {
  constexpr int64_t kMostShares = 64;
  const int64_t shares = std::min<int64_t>(ThreadPool::Get().threads(), kMostShares);
  if (count <= 1 || shares == 1 || count * work <= kParallelWork) {
    for (int64_t i = 0; i < count; ++i) job(i);
    return;
  }
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
  };
  struct Context {
    const Job& job;
    int64_t count;
    int64_t shares;
    Share taken[kMostShares];
  } context{job, count, shares, {}};
  ThreadPool::Get().ForChunks(
      shares,
      [](void* pointer, int64_t) {
        auto& loop = *static_cast<Context*>(pointer);
        for (int64_t turn = 0; turn < loop.shares; ++turn) {
          const int64_t share = (ThreadPool::Index() + turn) % loop.shares;
          const int64_t first = share * loop.count / loop.shares;
          const int64_t size = (share + 1) * loop.count / loop.shares - first;
          std::atomic<int64_t>& next = loop.taken[share].next;
          for (int64_t i = 0; (i = next.fetch_add(1)) < size;) loop.job(first + i);
        }
      },
      &context);
}

// Buffers of one thread: made at its first use, kept to its end, so that steps allocate nothing.
template <typename T>
T& ThreadBuffers() {
  thread_local const std::unique_ptr<T> buffers = std::make_unique<T>();
  return *buffers;
}

}  // namespace headroom::engine::cpu
