// SPDX-License-Identifier: Apache-2.0
//
// Recording: device memory over time, as the driver told it, of every GPU and of the processes that
// are watched. What `headroom watch` shows when it is done, and keeps in a file
// (docs/watch_format.md).
//
//   used   ────▁▂▅▇▇█▇▇▂──   the whole card, as nvidia-smi
//   own        ▁▂▅▇▇█▇▇▂     the watched processes
//          idle │   │   │ end
//          context peak
//
// Invariant: samples ascend in time, and the highest `own` and `used` of the run are among them
// however many were left out.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "observe/nvml.h"
#include "observe/process_table.h"

namespace headroom::observe {

inline constexpr int kRecordingSchema = 1;

struct DeviceSample {
  double seconds = 0;  // since the recording began
  Bytes used;
  Bytes own;
};

struct RecordedProcess {
  uint32_t pid = 0;  // as the driver reports it
  std::string name;  // "" where it is not visible
  bool own = false;
  std::optional<Bytes> peak;  // unset: the driver never told
  double first_seconds = 0;
  double last_seconds = 0;
};

// One GPU, or one MIG instance of it.
struct DeviceRecording {
  int gpu = 0;
  std::optional<int> instance;
  std::string name;
  std::string uuid;
  Bytes total;
  std::optional<Bytes> reserved;  // by the driver itself, not in `used`
  Bytes idle;                     // used before the first sample
  Bytes after;                    // used after the last one
  OwnMatch match = OwnMatch::kNone;
  std::vector<DeviceSample> samples;
  std::vector<RecordedProcess> processes;
  std::string processes_missing;  // why the driver lists none; else empty

  std::string Label() const;  // "GPU 0", "GPU 0 MIG 1"
};

struct Recording {
  std::vector<std::string> command;  // empty when nothing was started
  std::optional<int> exit_code;      // of the command
  std::string driver;
  double started = 0;  // seconds since 1970
  double seconds = 0;  // how long it lasted
  std::vector<DeviceRecording> devices;
};

// The moments of a run that people can read off nvidia-smi, of the watched processes. `context` is
// the first level that two samples in a row agree on: the CUDA context, where the samples are close
// enough to see it. Unset when there is no such level, or when nothing was watched.
struct DeviceLadder {
  Bytes idle;  // of the card
  std::optional<DeviceSample> context;
  DeviceSample peak;  // by `own`, or by `used` when nothing was watched or found
  DeviceSample end;   // the last sample in which the watched held memory
  Bytes after;        // of the card
};
// REQUIRES: device.samples is not empty.
DeviceLadder LadderOf(const DeviceRecording& device);

// Whose memory counts as `own`.
class Watched {
 public:
  virtual ~Watched() = default;
  // Those of `listed` that are watched. A process that was once stays so after its end.
  virtual std::vector<uint32_t> Among(std::span<const uint32_t> listed) = 0;
};

// The process `root` and all that it started.
class WatchedTree final : public Watched {
 public:
  WatchedTree(uint32_t root, const ProcessTable& table) : root_(root), table_(table) {}
  std::vector<uint32_t> Among(std::span<const uint32_t> listed) override;

 private:
  uint32_t root_;
  const ProcessTable& table_;
  std::set<uint32_t> known_;
};

// The processes with these ids.
class WatchedIds final : public Watched {
 public:
  explicit WatchedIds(std::vector<uint32_t> ids) : ids_(std::move(ids)) {}
  std::vector<uint32_t> Among(std::span<const uint32_t> listed) override;

 private:
  std::vector<uint32_t> ids_;
};

class Recorder {
 public:
  // `before` is what the cards held before anything watched was started. `by_appearance` lets a
  // process that has no name here and appeared since count as own: right for a command of ours,
  // wrong for ids that the user gave. `watched` may be null: then only the cards are recorded.
  Recorder(const std::vector<GpuMemory>& before, Watched* watched, const ProcessTable& table,
           bool by_appearance);

  void Add(double seconds, const std::vector<GpuMemory>& now);
  // What the cards hold when all is over.
  void Finish(double seconds, const std::vector<GpuMemory>& after);
  Recording Take() { return std::move(recording_); }

 private:
  void AddTo(DeviceRecording& device, const GpuMemory& before, const GpuMemory& now,
             double seconds);

  Recording recording_;
  std::vector<GpuMemory> before_;
  Watched* watched_;
  const ProcessTable& table_;
  bool by_appearance_;
};

// MIG instances in place of the GPU they cut up; other GPUs as they are. `gpu` gets the index of
// the GPU that each belongs to.
std::vector<GpuMemory> Flatten(const std::vector<GpuMemory>& gpus, std::vector<int>* gpu = nullptr);

// JSON text that ends in a newline, and back. The reader fails, naming the place, on what is not a
// recording of this schema.
std::string ToJson(const Recording& recording);
Result<Recording> RecordingFromJson(std::string_view text, std::string_view origin);

}  // namespace headroom::observe
