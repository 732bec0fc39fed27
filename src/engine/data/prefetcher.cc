// SPDX-License-Identifier: Apache-2.0
#include "engine/data/prefetcher.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace headroom::engine {

Prefetcher::Prefetcher(BatchStream stream, size_t depth)
    : stream_(std::move(stream)), position_(stream_.position()), ring_(depth) {
  HEADROOM_CHECK(depth > 0, "a queue that holds nothing");
  thread_ = std::thread([this] { Run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::Run() {
  while (true) {
    size_t slot = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || ready_ < ring_.size(); });
      if (stop_) return;
      slot = (first_ + ready_) % ring_.size();
    }
    // The slot is nobody else's: the other side takes only those that are ready.
    stream_.Next(ring_[slot]);
    {
      const std::lock_guard lock(mutex_);
      ++ready_;
    }
    changed_.notify_all();
  }
}

void Prefetcher::Next(Batch& batch) {
  std::unique_lock lock(mutex_);
  if (ready_ == 0) {
    const auto start = std::chrono::steady_clock::now();
    changed_.wait(lock, [&] { return ready_ > 0; });
    waited_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::swap(batch, ring_[first_]);
  first_ = (first_ + 1) % ring_.size();
  --ready_;
  // BatchStream::After() reads only what never changes.
  position_ = stream_.After(batch.position);
  lock.unlock();
  changed_.notify_all();
}

}  // namespace headroom::engine
