// SPDX-License-Identifier: Apache-2.0
#include "observe/stack_table.h"

namespace headroom::observe {
namespace {

uint32_t Hash(const Frame& frame) {
  uint64_t hash = frame.line;
  for (const StringId part : {frame.name, frame.filename, frame.fx_node, frame.fx_target}) {
    hash = (hash ^ static_cast<uint32_t>(part)) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash);
}

}  // namespace

FrameTable::FrameTable() : slots_(1024, 0) {}

FrameId FrameTable::Intern(const Frame& frame) {
  if (frames_.size() * 2 >= slots_.size()) {
    slots_.assign(slots_.size() * 2, 0);
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < frames_.size(); ++i) {
      size_t slot = Hash(frames_[i]) & mask;
      while (slots_[slot] != 0) slot = (slot + 1) & mask;
      slots_[slot] = static_cast<uint32_t>(i) + 1;
    }
  }
  const size_t mask = slots_.size() - 1;
  size_t slot = Hash(frame) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (frames_[slots_[slot] - 1] == frame) return FrameId(slots_[slot] - 1);
  }
  frames_.push_back(frame);
  slots_[slot] = static_cast<uint32_t>(frames_.size());
  return FrameId(frames_.size() - 1);
}

StackTable::StackTable() : ends_{0}, slots_(1024) {
  Intern(0, [](size_t) { return FrameId(); });
}

StackId StackTable::Add(uint32_t hash) {
  const auto stack = static_cast<uint32_t>(hashes_.size());
  ends_.push_back(frames_.size());
  hashes_.push_back(hash);
  if (hashes_.size() * 2 >= slots_.size()) {
    slots_.assign(slots_.size() * 2, Slot());
    for (uint32_t i = 0; i < stack; ++i) Place(hashes_[i], i);
  }
  Place(hash, stack);
  return StackId(stack);
}

void StackTable::Place(uint32_t hash, uint32_t stack) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].stack != 0) slot = (slot + 1) & mask;
  slots_[slot] = {hash, stack + 1};
}

}  // namespace headroom::observe
