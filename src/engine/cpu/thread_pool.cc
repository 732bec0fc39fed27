// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace headroom::engine::cpu {
namespace {

// How often a thread looks for work before it sleeps: some tens of microseconds, the gap between
// two loops of a step.
constexpr int kSpins = 4000;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

int Processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int DefaultThreads() {
  constexpr int kMost = 1024;
  const char* text = std::getenv("OMP_NUM_THREADS");
  int threads = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), threads);
  return threads > 0 ? std::min(threads, kMost) : Processors();
}

thread_local int thread_index = 0;

}  // namespace

int ThreadPool::Index() { return thread_index; }

ThreadPool& ThreadPool::Get() {
  static ThreadPool pool(DefaultThreads());
  return pool;
}

ThreadPool::ThreadPool(int threads) { SetThreads(threads); }

ThreadPool::~ThreadPool() {
  stop_ = true;
  loops_.fetch_add(1);
  loops_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::SetThreads(int threads) {
  threads_ = threads;
  active_ = threads;
  for (int index = static_cast<int>(workers_.size()) + 1; index < threads; ++index) {
    workers_.emplace_back([this, index] { Work(index); });
  }
}

void ThreadPool::ForChunks(int64_t chunks, Run run, void* context) {
  HEADROOM_CHECK(chunks >= 0 && chunks < (int64_t{1} << kCountBits), "a loop of too many chunks");
  if (threads_ == 1 || chunks <= 1) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) run(context, chunk);
    return;
  }
  run_ = run;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t number = (state_.load(std::memory_order_relaxed) >> kCountBits) + 1;
  state_.store((number << kCountBits) | static_cast<uint64_t>(chunks));
  loops_.fetch_add(1);
  if (sleepers_.load() > 0) loops_.notify_all();
  RunChunks();
  for (int spins = 0; finished_.load(std::memory_order_acquire) < chunks;) {
    if (++spins < kSpins) {
      Pause();
    } else {
      // Whoever holds the last chunk may wait for this processor.
      std::this_thread::yield();
    }
  }
}

void ThreadPool::RunChunks() {
  constexpr uint64_t kCount = (uint64_t{1} << kCountBits) - 1;
  uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & kCount) > 0) {
    if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel)) continue;
    run_(context_, static_cast<int64_t>(state & kCount) - 1);
    finished_.fetch_add(1, std::memory_order_release);
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::Work(int index) {
  thread_index = index;
  uint32_t seen = 0;
  while (!stop_) {
    for (int spins = 0; spins < kSpins && loops_.load(std::memory_order_acquire) == seen; ++spins) {
      Pause();
    }
    if (loops_.load() == seen) {
      sleepers_.fetch_add(1);
      loops_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    seen = loops_.load(std::memory_order_acquire);
    if (index < active_.load(std::memory_order_relaxed)) RunChunks();
  }
}

}  // namespace headroom::engine::cpu
