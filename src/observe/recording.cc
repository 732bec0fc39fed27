// SPDX-License-Identifier: Apache-2.0
#include "observe/recording.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"

namespace headroom::observe {
namespace {

// At 20 samples a second a quarter of an hour; beyond that the recording is thinned.
constexpr size_t kMostSamples = 1 << 14;
// A process that comes and goes with every batch must not fill the memory.
constexpr size_t kMostProcesses = 1000;
// A process takes its program's name a moment after it was started.
constexpr double kNamedWithin = 5;
// NVML counts in pages of 2 MiB; a level may move by one.
constexpr Bytes kSameLevel = MiB(2);

// Of every four samples the lowest and the highest of `own` (of `used` where nothing is own) and
// the highest `used` stay: two or three.
void Thin(std::vector<DeviceSample>& samples) {
  std::vector<DeviceSample> kept;
  for (size_t from = 0; from < samples.size(); from += 4) {
    const size_t to = std::min(from + 4, samples.size());
    const auto size = [&](size_t i) { return std::pair(samples[i].own, samples[i].used); };
    size_t low = from;
    size_t high = from;
    size_t used = from;
    for (size_t i = from; i < to; ++i) {
      if (size(i) < size(low)) low = i;
      if (size(i) > size(high)) high = i;
      if (samples[i].used > samples[used].used) used = i;
    }
    for (size_t i = from; i < to; ++i) {
      if (i == low || i == high || i == used) kept.push_back(samples[i]);
    }
  }
  samples = std::move(kept);
}

RecordedProcess* FindProcess(DeviceRecording& device, uint32_t pid) {
  const auto at = std::ranges::find(device.processes, pid, &RecordedProcess::pid);
  return at == device.processes.end() ? nullptr : &*at;
}

bool Near(Bytes a, Bytes b) { return std::max(a, b) - std::min(a, b) <= kSameLevel; }

}  // namespace

std::string DeviceRecording::Label() const {
  return instance ? Format("GPU {} MIG {}", gpu, *instance) : Format("GPU {}", gpu);
}

std::vector<GpuMemory> Flatten(const std::vector<GpuMemory>& gpus, std::vector<int>* gpu) {
  std::vector<GpuMemory> flat;
  for (const GpuMemory& card : gpus) {
    const std::vector<GpuMemory> whole = {card};
    for (const GpuMemory& part : card.instances.empty() ? whole : card.instances) {
      flat.push_back(part);
      if (gpu != nullptr) gpu->push_back(card.index);
    }
  }
  return flat;
}

// ---- Whose ----

std::vector<uint32_t> WatchedTree::Among(std::span<const uint32_t> listed) {
  std::vector<uint32_t> own;
  for (const uint32_t pid : listed) {
    if (!known_.contains(pid) && !table_.Descends(pid, root_)) continue;
    known_.insert(pid);
    own.push_back(pid);
  }
  return own;
}

std::vector<uint32_t> WatchedIds::Among(std::span<const uint32_t> listed) {
  std::vector<uint32_t> own;
  for (const uint32_t pid : listed) {
    if (std::ranges::find(ids_, pid) != ids_.end()) own.push_back(pid);
  }
  return own;
}

// ---- Recorder ----

Recorder::Recorder(const std::vector<GpuMemory>& before, Watched* watched,
                   const ProcessTable& table, bool by_appearance)
    : watched_(watched), table_(table), by_appearance_(by_appearance) {
  std::vector<int> gpu;
  before_ = Flatten(before, &gpu);
  for (size_t i = 0; i < before_.size(); ++i) {
    const GpuMemory& memory = before_[i];
    DeviceRecording device;
    device.gpu = gpu[i];
    const bool part = std::ranges::none_of(
        before, [&](const GpuMemory& card) { return card.uuid == memory.uuid; });
    if (part) device.instance = memory.index;
    device.name = memory.name;
    device.uuid = memory.uuid;
    device.total = memory.total;
    device.reserved = memory.reserved;
    device.idle = device.after = memory.used;
    recording_.devices.push_back(std::move(device));
  }
}

void Recorder::Add(double seconds, const std::vector<GpuMemory>& now) {
  const std::vector<GpuMemory> flat = Flatten(now);
  // A MIG layout that changes under a running recording changes the number of devices; what does
  // not line up any more is left out.
  for (size_t i = 0; i < std::min(flat.size(), recording_.devices.size()); ++i) {
    if (flat[i].uuid != recording_.devices[i].uuid) continue;
    AddTo(recording_.devices[i], before_[i], flat[i], seconds);
  }
  recording_.seconds = std::max(recording_.seconds, seconds);
}

void Recorder::AddTo(DeviceRecording& device, const GpuMemory& before, const GpuMemory& now,
                     double seconds) {
  OwnMemory own;
  if (watched_ != nullptr) {
    std::vector<uint32_t> listed;
    for (const GpuProcess& process : now.processes) listed.push_back(process.pid);
    const std::vector<uint32_t> family = watched_->Among(listed);
    if (by_appearance_ || !family.empty()) own = FindOwn(before, now, family, table_);
    const bool untold = std::ranges::any_of(now.processes, [&](const GpuProcess& process) {
      return !process.bytes && std::ranges::find(own.pids, process.pid) != own.pids.end();
    });
    // Without figures per process, what the card holds beyond what it held before is the nearest.
    if (untold || (by_appearance_ && !now.processes_missing.empty())) {
      own.match = OwnMatch::kByDifference;
      own.bytes = std::max(Bytes(0), now.used - before.used);
    }
  }
  if (own.match != OwnMatch::kNone) device.match = own.match;
  device.processes_missing = now.processes_missing;
  device.samples.push_back({seconds, now.used, own.bytes});
  if (device.samples.size() > kMostSamples) Thin(device.samples);
  for (const GpuProcess& process : now.processes) {
    RecordedProcess* known = FindProcess(device, process.pid);
    if (known == nullptr) {
      if (device.processes.size() >= kMostProcesses) continue;
      device.processes.push_back(
          {process.pid, table_.Name(process.pid), false, process.bytes, seconds, seconds});
      known = &device.processes.back();
    }
    if (seconds - known->first_seconds < kNamedWithin) {
      const std::string name_now = table_.Name(process.pid);
      if (!name_now.empty()) known->name = name_now;
    }
    if (process.bytes) known->peak = std::max(known->peak.value_or(Bytes(0)), *process.bytes);
    if (std::ranges::find(own.pids, process.pid) != own.pids.end()) known->own = true;
    known->last_seconds = seconds;
  }
}

void Recorder::Finish(double seconds, const std::vector<GpuMemory>& after) {
  const std::vector<GpuMemory> flat = Flatten(after);
  for (size_t i = 0; i < std::min(flat.size(), recording_.devices.size()); ++i) {
    if (flat[i].uuid == recording_.devices[i].uuid) recording_.devices[i].after = flat[i].used;
  }
  recording_.seconds = seconds;
}

// ---- Ladder ----

DeviceLadder LadderOf(const DeviceRecording& device) {
  DeviceLadder ladder;
  ladder.idle = device.idle;
  ladder.after = device.after;
  const std::span<const DeviceSample> samples = device.samples;
  if (device.match == OwnMatch::kNone) {
    ladder.peak = *std::ranges::max_element(samples, {}, &DeviceSample::used);
    ladder.end = samples.back();
    return ladder;
  }
  ladder.peak = *std::ranges::max_element(samples, {}, &DeviceSample::own);
  ladder.end = ladder.peak;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].own == Bytes(0)) continue;
    ladder.end = samples[i];
    const bool held =
        i > 0 && samples[i - 1].own > Bytes(0) && Near(samples[i].own, samples[i - 1].own);
    if (!ladder.context && held) ladder.context = samples[i];
  }
  return ladder;
}

}  // namespace headroom::observe
