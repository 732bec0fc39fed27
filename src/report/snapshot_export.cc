// SPDX-License-Identifier: Apache-2.0
//
// The fields are those of torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/memory.py, PyTorch
// 2.11.
#include "report/snapshot_export.h"

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headroom {
namespace {

// Where blocks and segments are said to lie; far from each other, so that neither meets the other.
constexpr uint64_t kBlocksAt = uint64_t{0x7f} << 40;
constexpr uint64_t kSegmentsAt = uint64_t{0x7e} << 40;
constexpr int64_t kAlignment = 512;  // kMinBlockSize, c10/core/AllocatorConfig.h

// Writes the instructions that Python's own pickler would, strings by number from the second time.
class PickleWriter {
 public:
  PickleWriter() { out_ = "\x80\x04"; }

  void Text(std::string_view text) {
    const auto [known, added] = memo_.try_emplace(std::string(text), memo_.size());
    if (!added) return Get(known->second);
    if (text.size() < 256) {
      out_ += '\x8c';
      out_ += static_cast<char>(text.size());
    } else {
      out_ += 'X';
      LittleEndian(text.size(), 4);
    }
    out_ += text;
    out_ += '\x94';
  }
  void Integer(uint64_t value) {
    if (value < 256) {
      out_ += 'K';
      LittleEndian(value, 1);
    } else if (value < (uint64_t{1} << 31)) {
      out_ += 'J';
      LittleEndian(value, 4);
    } else {
      out_ += "\x8a\x08";
      LittleEndian(value, 8);
    }
  }
  void False() { out_ += '\x89'; }
  void ZeroPair() {
    Integer(0);
    Integer(0);
    out_ += '\x86';
  }
  void OpenDict() { out_ += "}("; }
  void CloseDict() { out_ += 'u'; }
  void OpenList() { out_ += "]("; }
  void CloseList() { out_ += 'e'; }
  void EmptyList() { out_ += ']'; }
  void EmptyDict() { out_ += '}'; }
  std::string Finish() {
    out_ += '.';
    return std::move(out_);
  }

  void Item(std::string_view key, std::string_view value) {
    Text(key);
    Text(value);
  }
  void Item(std::string_view key, uint64_t value) {
    Text(key);
    Integer(value);
  }

 private:
  void Get(size_t index) {
    out_ += index < 256 ? 'h' : 'j';
    LittleEndian(index, index < 256 ? 1 : 4);
  }
  void LittleEndian(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  std::string out_;
  std::unordered_map<std::string, size_t> memo_;  // by text, its number
};

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const Ledger& ledger) : ledger_(ledger) {}

  std::string Write() {
    pickle_.OpenDict();
    pickle_.Text("device_traces");
    pickle_.OpenList();
    pickle_.OpenList();
    for (size_t i = 0; i < ledger_.events().size(); ++i) Event(i);
    pickle_.CloseList();
    pickle_.CloseList();
    pickle_.Text("segments");
    Segments();
    pickle_.Text("allocator_settings");
    pickle_.OpenDict();
    pickle_.Item("PYTORCH_CUDA_ALLOC_CONF", "");
    pickle_.Text("expandable_segments");
    pickle_.False();
    pickle_.CloseDict();
    pickle_.Text("external_annotations");
    Annotations();
    pickle_.CloseDict();
    return pickle_.Finish();
  }

 private:
  struct Segment {
    uint64_t address = 0;
    int64_t bytes = 0;
  };

  void Event(size_t at) {
    const MemoryEvent& event = ledger_.events()[at];
    switch (event.type) {
      case MemoryEvent::Type::kAlloc: {
        addresses_.resize(static_cast<size_t>(event.block) + 1);
        uint64_t& address = addresses_[static_cast<size_t>(event.block)];
        address = next_block_;
        if (event.bytes == 0) break;  // PyTorch's allocator is not asked for those
        next_block_ += Aligned(event.bytes);
        Entry("alloc", address, event.bytes, at, event);
        break;
      }
      case MemoryEvent::Type::kFree: {
        if (event.bytes == 0) break;
        const uint64_t address = addresses_[static_cast<size_t>(event.block)];
        Entry("free_requested", address, event.bytes, at, event);
        Entry("free_completed", address, event.bytes, at, event);
        break;
      }
      case MemoryEvent::Type::kReserve:
        Reserve(at, event);
        break;
      case MemoryEvent::Type::kMark:
        break;
    }
  }

  // What is given back need not be what was taken at once: whole segments go, the newest first, and
  // the rest of one comes back.
  void Reserve(size_t at, const MemoryEvent& event) {
    if (event.bytes >= 0) return TakeSegment(event.bytes, at, event);
    int64_t left = -event.bytes;
    while (left > 0 && !segments_.empty()) {
      const Segment segment = segments_.back();
      segments_.pop_back();
      Entry("segment_free", segment.address, segment.bytes, at, event);
      left -= segment.bytes;
    }
    if (left < 0) TakeSegment(-left, at, event);
  }

  void TakeSegment(int64_t bytes, size_t at, const MemoryEvent& event) {
    if (bytes == 0) return;
    segments_.push_back({next_segment_, bytes});
    next_segment_ += Aligned(bytes);
    Entry("segment_alloc", segments_.back().address, bytes, at, event);
  }

  void Entry(std::string_view action, uint64_t address, int64_t bytes, size_t at,
             const MemoryEvent& event) {
    pickle_.OpenDict();
    pickle_.Item("action", action);
    pickle_.Item("addr", address);
    pickle_.Item("size", static_cast<uint64_t>(bytes));
    pickle_.Item("stream", 0);
    pickle_.Item("time_us", at);
    pickle_.Item("compile_context", "N/A");
    const bool block = event.type == MemoryEvent::Type::kAlloc;
    pickle_.Item("user_metadata", "");
    if (block) pickle_.Item("category", Name(event.component));
    pickle_.Text("frames");
    block ? Frames(event) : pickle_.EmptyList();
    pickle_.CloseDict();
  }

  // What the block is, the op and the module, as a stack from the inside out.
  void Frames(const MemoryEvent& event) {
    pickle_.OpenList();
    const std::string& op = ledger_.OpName(event.op);
    Frame(op.empty() ? Name(event.component) : std::string_view(op), Name(event.kind));
    Frame(ledger_.ModulePath(event.module), Name(event.component));
    pickle_.CloseList();
  }

  void Frame(std::string_view name, std::string_view file) {
    pickle_.OpenDict();
    pickle_.Item("name", name);
    pickle_.Item("filename", file);
    pickle_.Item("line", 0);
    pickle_.CloseDict();
  }

  // One segment around every block that is alive, and one for what is reserved beyond.
  void Segments() {
    pickle_.OpenList();
    int64_t rest = ledger_.reserved().count();
    if (!ledger_.events().empty()) {
      for (const LiveBlock& block : ledger_.LiveAt(ledger_.events().size() - 1)) {
        if (block.bytes == Bytes(0)) continue;
        rest -= block.bytes.count();
        const MemoryEvent born = ledger_.events()[block.event];
        SegmentOf(addresses_[static_cast<size_t>(block.block)], block.bytes.count(), &born);
      }
    }
    if (rest > 0) SegmentOf(next_block_, rest, nullptr);
    pickle_.CloseList();
  }

  void SegmentOf(uint64_t address, int64_t bytes, const MemoryEvent* block) {
    const uint64_t size = static_cast<uint64_t>(bytes);
    const uint64_t used = block == nullptr ? 0 : size;
    pickle_.OpenDict();
    pickle_.Item("device", 0);
    pickle_.Item("address", address);
    pickle_.Item("total_size", size);
    pickle_.Item("allocated_size", used);
    pickle_.Item("active_size", used);
    pickle_.Item("requested_size", used);
    pickle_.Item("stream", 0);
    pickle_.Item("segment_type", "large");
    pickle_.Text("segment_pool_id");
    pickle_.ZeroPair();
    pickle_.Text("is_expandable");
    pickle_.False();
    pickle_.Text("frames");
    pickle_.EmptyList();
    pickle_.Text("blocks");
    pickle_.OpenList();
    pickle_.OpenDict();
    pickle_.Item("address", address);
    pickle_.Item("size", size);
    pickle_.Item("requested_size", size);
    pickle_.Item("state", block == nullptr ? "inactive" : "active_allocated");
    pickle_.Text("frames");
    block == nullptr ? pickle_.EmptyList() : Frames(*block);
    pickle_.CloseDict();
    pickle_.CloseList();
    pickle_.CloseDict();
  }

  // The ranges that PyTorch records around optimizer steps: between the marks of backward and
  // optimizer.
  void Annotations() {
    pickle_.OpenList();
    size_t backward = 0;
    for (const PhaseMark& mark : ledger_.marks()) {
      if (mark.name == "backward_end") backward = mark.event;
      if (mark.name != "optimizer_end") continue;
      Annotation("START", backward);
      Annotation("END", mark.event);
    }
    pickle_.CloseList();
  }

  void Annotation(std::string_view stage, size_t time) {
    pickle_.OpenDict();
    pickle_.Item("stage", stage);
    pickle_.Item("name", "Optimizer.step#headroom.step");
    pickle_.Item("device", 0);
    pickle_.Item("time_us", time);
    pickle_.CloseDict();
  }

  static uint64_t Aligned(int64_t bytes) {
    return static_cast<uint64_t>((bytes + kAlignment) / kAlignment * kAlignment);
  }

  const Ledger& ledger_;
  PickleWriter pickle_;
  std::vector<uint64_t> addresses_;  // by block
  std::vector<Segment> segments_;    // that the trace has taken
  uint64_t next_block_ = kBlocksAt;
  uint64_t next_segment_ = kSegmentsAt;
};

}  // namespace

std::string SnapshotPickle(const Ledger& ledger) { return SnapshotWriter(ledger).Write(); }

}  // namespace headroom
