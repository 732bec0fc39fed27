// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

class ThreadPoolTest : public testing::Test {
 protected:
  ThreadPoolTest() : before_(ThreadPool::Get().threads()) {}
  ~ThreadPoolTest() override { ThreadPool::Get().SetThreads(before_); }
  int before_;
};

// Loops of all lengths, one right behind the other: each job runs once, and is over at the end.
TEST_F(ThreadPoolTest, RunsEachJobOnce) {
  for (const int threads : {1, 2, 5, 3}) {
    ThreadPool::Get().SetThreads(threads);
    for (int round = 0; round < 2000; ++round) {
      const int count = round % 97;
      std::vector<int> runs(static_cast<size_t>(count));
      ParallelForUneven(count, kParallelWork, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      ParallelFor(count, kParallelWork, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      ParallelForShares(count, kParallelWork, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      ASSERT_EQ(runs, std::vector<int>(static_cast<size_t>(count), 3)) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace headroom::engine::cpu
