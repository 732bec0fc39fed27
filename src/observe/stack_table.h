// SPDX-License-Identifier: Apache-2.0
//
// FrameTable and StackTable: every different frame and every different call stack once.
//
// A training step has some 20,000 events and 200 stacks; an event keeps the four bytes of a
// StackId.
//
//   stack 17 = frames 3 9 40 41      (innermost first, as PyTorch writes them)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "observe/string_table.h"

namespace headroom::observe {

enum class FrameId : uint32_t {};
enum class StackId : uint32_t {};  // 0 is the empty stack: no frames recorded

struct Frame {
  StringId name{};      // "forward", "at::_ops::mm::call(…)"
  StringId filename{};  // "??" or "" for C++ without symbols
  uint32_t line = 0;
  StringId fx_node{};    // torch.compile: fx_node_name, "" elsewhere
  StringId fx_target{};  // torch.compile: fx_node_target, "" elsewhere
  bool operator==(const Frame&) const = default;
};

class FrameTable {
 public:
  FrameTable();
  FrameId Intern(const Frame& frame);
  const Frame& operator[](FrameId id) const { return frames_[static_cast<uint32_t>(id)]; }
  size_t size() const { return frames_.size(); }

 private:
  std::vector<Frame> frames_;
  std::vector<uint32_t> slots_;  // open addressing: frame + 1, or 0
};

class StackTable {
 public:
  StackTable();
  // `frame_of(i)` is the i-th of `count` frames.
  template <typename FrameOf>
  StackId Intern(size_t count, const FrameOf& frame_of) {
    uint64_t hash = count * 0x9e3779b97f4a7c15ULL;
    for (size_t i = 0; i < count; ++i) {
      hash = (hash ^ static_cast<uint32_t>(frame_of(i))) * 0xff51afd7ed558ccdULL;
    }
    hash ^= hash >> 32;
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash & mask; slots_[slot].stack != 0; slot = (slot + 1) & mask) {
      if (slots_[slot].hash != static_cast<uint32_t>(hash)) continue;
      const std::span<const FrameId> known = (*this)[StackId(slots_[slot].stack - 1)];
      if (known.size() != count) continue;
      uint32_t different = 0;
      for (size_t i = 0; i < count; ++i) {
        different |= static_cast<uint32_t>(known[i]) ^ static_cast<uint32_t>(frame_of(i));
      }
      if (different == 0) return StackId(slots_[slot].stack - 1);
    }
    for (size_t i = 0; i < count; ++i) frames_.push_back(frame_of(i));
    return Add(static_cast<uint32_t>(hash));
  }

  std::span<const FrameId> operator[](StackId id) const {
    const auto at = static_cast<uint32_t>(id);
    return {frames_.data() + ends_[at], ends_[at + 1] - ends_[at]};
  }
  size_t size() const { return ends_.size() - 1; }
  size_t frame_count() const { return frames_.size(); }  // over all stacks

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t stack = 0;  // + 1, or 0
  };
  StackId Add(uint32_t hash);  // the frames behind the last stack become one
  void Place(uint32_t hash, uint32_t stack);

  std::vector<FrameId> frames_;
  std::vector<size_t> ends_;  // ends_[i] .. ends_[i + 1] is stack i
  std::vector<uint32_t> hashes_;
  std::vector<Slot> slots_;
};

}  // namespace headroom::observe
