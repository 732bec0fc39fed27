// SPDX-License-Identifier: Apache-2.0
//
// Loops over independent jobs. What a job computes must depend on its number alone, never on who
// runs it or beside what: then results are the same bits for every number of threads.
//
//   ParallelFor(rows, 3 * columns, [&](int64_t row) { … });
#pragma once

#include <cstdint>
#include <memory>

namespace headroom::engine::cpu {

// Below this many elementary operations the start of the threads costs more than they save.
inline constexpr int64_t kParallelWork = 1 << 16;

// Calls job(0) … job(count - 1), in runs of neighbours. `work` is one job's elementary operations.
template <typename Job>
void ParallelFor(int64_t count, [[maybe_unused]] int64_t work, const Job& job) {
#pragma omp parallel for schedule(static) if (count > 1 && count * work > kParallelWork)
  for (int64_t i = 0; i < count; ++i) job(i);
}

// The same for jobs of uneven size: whoever is free takes the next.
template <typename Job>
void ParallelForUneven(int64_t count, [[maybe_unused]] int64_t work, const Job& job) {
#pragma omp parallel for schedule(dynamic, 1) if (count > 1 && count * work > kParallelWork)
  for (int64_t i = 0; i < count; ++i) job(i);
}

// Buffers of one thread: made at its first use, kept to its end, so that steps allocate nothing.
template <typename T>
T& ThreadBuffers() {
  thread_local const std::unique_ptr<T> buffers = std::make_unique<T>();
  return *buffers;
}

}  // namespace headroom::engine::cpu
