// SPDX-License-Identifier: Apache-2.0
//
// The fields are those of torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/memory.py, PyTorch
// 2.11.
#include "report/snapshot_export.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/address_space.h"

namespace headroom {
namespace {

constexpr uint64_t kBase = uint64_t{0x7f} << 40;

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
  void True() { out_ += '\x88'; }
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
    if (unmapped_) SecondStream();
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
  void Event(size_t at) {
    const MemoryEvent event = ledger_.events()[at];
    switch (event.type) {
      case MemoryEvent::Type::kAlloc: {
        addresses_.resize(static_cast<size_t>(event.block) + 1);
        if (event.bytes == 0) break;  // PyTorch's allocator is not asked for those
        std::vector<AddressSpace::Change> changes;
        const uint64_t address = space_.Take(event.bytes, &changes);
        addresses_[static_cast<size_t>(event.block)] = address;
        Changes(changes, at);
        Entry("alloc", address, event.bytes, at, &event);
        break;
      }
      case MemoryEvent::Type::kFree: {
        if (event.bytes == 0) break;
        const uint64_t address = addresses_[static_cast<size_t>(event.block)];
        space_.Give(address);
        Entry("free_requested", address, event.bytes, at, nullptr);
        Entry("free_completed", address, event.bytes, at, nullptr);
        break;
      }
      case MemoryEvent::Type::kReserve:
        Changes(space_.Reserve(event.bytes), at);
        break;
      case MemoryEvent::Type::kMark:
        break;
    }
  }

  void Changes(const std::vector<AddressSpace::Change>& changes, size_t at) {
    for (const auto& [address, bytes] : changes) {
      Entry(bytes < 0 ? "segment_unmap" : "segment_map", address, std::llabs(bytes), at, nullptr);
      unmapped_ |= bytes < 0;
    }
  }

  // PyTorch's viewer joins what was unmapped with its neighbours only in files of several streams:
  // in others it forgets the stream of events, not that of segments (annotate_snapshot and
  // map_segment, torch/utils/viz/MemoryViz.js, main of August 2025).
  void SecondStream() {
    stream_ = 1;
    Entry("snapshot", 0, 0, ledger_.events().size(), nullptr);
  }

  void Entry(std::string_view action, uint64_t address, int64_t bytes, size_t at,
             const MemoryEvent* born) {
    pickle_.OpenDict();
    pickle_.Item("action", action);
    pickle_.Item("addr", address);
    pickle_.Item("size", static_cast<uint64_t>(bytes));
    pickle_.Item("stream", stream_);
    pickle_.Item("time_us", at);
    pickle_.Item("compile_context", "N/A");
    pickle_.Item("user_metadata", "");
    // PyTorch's viewer breaks off where there are categories and none is "unknown"
    // (annotate_snapshot, torch/utils/viz/MemoryViz.js, main of August 2025).
    pickle_.Item("category", born == nullptr ? "unknown" : Name(born->component));
    pickle_.Text("frames");
    born == nullptr ? pickle_.EmptyList() : Frames(*born);
    pickle_.CloseDict();
  }

  // What the block is, the op and the module, as a stack from the inside out. StatedClass
  // (observe/stack_class.cc) reads it back.
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

  void Segments() {
    std::unordered_map<uint64_t, MemoryEvent> born;  // by address
    if (!ledger_.events().empty()) {
      for (const LiveBlock& block : ledger_.LiveAt(ledger_.events().size() - 1)) {
        const uint64_t address = addresses_[static_cast<size_t>(block.block)];
        if (block.bytes > Bytes(0)) born[address] = ledger_.events()[block.event];
      }
    }
    pickle_.OpenList();
    for (const AddressSpace::Segment& segment : space_.Segments()) {
      int64_t total = 0;
      int64_t used = 0;
      for (const AddressSpace::Piece& piece : segment) {
        total += piece.bytes;
        used += piece.free ? 0 : piece.bytes;
      }
      OpenSegment(segment.front().address, total, used);
      for (const AddressSpace::Piece& piece : segment) {
        Block(piece, piece.free ? nullptr : &born.at(piece.address));
      }
      pickle_.CloseList();
      pickle_.CloseDict();
    }
    pickle_.CloseList();
  }

  void OpenSegment(uint64_t address, int64_t total, int64_t used) {
    pickle_.OpenDict();
    pickle_.Item("device", 0);
    pickle_.Item("address", address);
    pickle_.Item("total_size", static_cast<uint64_t>(total));
    for (const char* sum : {"allocated_size", "active_size", "requested_size"}) {
      pickle_.Item(sum, static_cast<uint64_t>(used));
    }
    pickle_.Item("stream", 0);
    pickle_.Item("segment_type", "large");
    pickle_.Text("segment_pool_id");
    pickle_.ZeroPair();
    pickle_.Text("is_expandable");
    pickle_.True();
    pickle_.Text("frames");
    pickle_.EmptyList();
    pickle_.Text("blocks");
    pickle_.OpenList();
  }

  void Block(const AddressSpace::Piece& piece, const MemoryEvent* born) {
    pickle_.OpenDict();
    pickle_.Item("address", piece.address);
    pickle_.Item("size", static_cast<uint64_t>(piece.bytes));
    pickle_.Item("requested_size", static_cast<uint64_t>(piece.bytes));
    pickle_.Item("state", piece.free ? "inactive" : "active_allocated");
    pickle_.Text("frames");
    born == nullptr ? pickle_.EmptyList() : Frames(*born);
    pickle_.CloseDict();
  }

  // A range for every phase (observe/phases.cc reads them back), and those that PyTorch itself
  // records around optimizer steps: between the marks of backward and optimizer.
  void Annotations() {
    constexpr std::string_view kStep = "Optimizer.step#headroom.step";
    pickle_.OpenList();
    size_t before = 0;
    size_t backward = 0;
    for (const PhaseMark& mark : ledger_.marks()) {
      const std::string name = "Headroom.phase#" + std::to_string(mark.step) + "." + mark.name;
      Annotation("START", name, std::exchange(before, mark.event));
      Annotation("END", name, mark.event);
      if (mark.name == "backward_end") backward = mark.event;
      if (mark.name != "optimizer_end") continue;
      Annotation("START", kStep, backward);
      Annotation("END", kStep, mark.event);
    }
    pickle_.CloseList();
  }

  void Annotation(std::string_view stage, std::string_view name, size_t time) {
    pickle_.OpenDict();
    pickle_.Item("stage", stage);
    pickle_.Item("name", name);
    pickle_.Item("device", 0);
    pickle_.Item("time_us", time);
    pickle_.CloseDict();
  }

  const Ledger& ledger_;
  PickleWriter pickle_;
  std::vector<uint64_t> addresses_;  // by block
  AddressSpace space_{kBase};
  bool unmapped_ = false;
  uint64_t stream_ = 0;
};

}  // namespace

std::string SnapshotPickle(const Ledger& ledger) { return SnapshotWriter(ledger).Write(); }

}  // namespace headroom
