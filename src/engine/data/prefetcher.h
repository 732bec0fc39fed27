// SPDX-License-Identifier: Apache-2.0
//
// Prefetcher: makes batches on a thread of its own while the model computes, a few ahead.
//
// What it hands out is what the stream would have: the thread changes when a batch is made, never
// which. The time that Next() had to wait tells whether a run is held up by its data.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/data/batches.h"

namespace headroom::engine {

class Prefetcher {
 public:
  // At most `depth` batches are ready at a time. REQUIRES: depth > 0; the stream's dataset outlives
  // this.
  explicit Prefetcher(BatchStream stream, size_t depth = 2);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  // Puts the next batch into `batch`; its memory is used for one of the next.
  void Next(Batch& batch);
  // Of the batch that Next() hands out: what a checkpoint keeps.
  Position position() const { return position_; }
  // That Next() has waited, in all.
  double waited_seconds() const { return waited_seconds_; }

 private:
  void Run();

  BatchStream stream_;  // the thread's alone once that runs
  Position position_;
  double waited_seconds_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Batch> ring_;
  size_t first_ = 0;  // the oldest that is ready
  size_t ready_ = 0;
  bool stop_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace headroom::engine
