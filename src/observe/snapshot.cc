// SPDX-License-Identifier: Apache-2.0
#include "observe/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/format.h"
#include "observe/byte_window.h"
#include "observe/pickle_reader.h"
#include "observe/snapshot_builder.h"
#include "observe/snapshot_keys.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

// What a gzip file may unpack to. It passes through a window, so this bounds time, not memory.
constexpr Bytes kMostUnpacked = GiB(64);
// Snapshots shrink to about a seventeenth under gzip, and base64 adds a third.
constexpr uint64_t kGzipRatio = 17;

// What a file that is no snapshot probably is, as a hint.
std::string_view GuessOtherFormat(std::string_view head) {
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (head.empty() || first == std::string_view::npos) return "the file is empty";
  if (head.starts_with("PK\x03\x04")) {
    return "a zip archive (a checkpoint of torch.save?), no memory snapshot";
  }
  if (head.starts_with("{\"") || head.starts_with("{ ") || head.starts_with("{\n") ||
      head.starts_with("[{") || head.starts_with("[\n")) {
    return "JSON, no memory snapshot: give the pickle of torch.cuda.memory._dump_snapshot";
  }
  const bool pickle = head[0] == '\x80' || head[0] == '(' || head[0] == ']' || head[0] == '}';
  return pickle ? "" : "no memory snapshot: torch.cuda.memory._dump_snapshot writes them";
}

Result<Snapshot> ReadPickle(std::unique_ptr<ByteWindow> window, uint64_t expected_bytes) {
  const char* at = window->begin();
  constexpr size_t kHead = 64;
  (void)window->Need(&at, kHead);  // a short file is judged by what there is
  HEADROOM_RETURN_IF_ERROR(window->status());
  const std::string_view head(at, std::min(kHead, static_cast<size_t>(window->end() - at)));
  if (const std::string_view other = GuessOtherFormat(head); !other.empty()) {
    return Error::BadInput(std::string(other));
  }
  SnapshotBuilder builder(expected_bytes);
  PickleReader reader(window.get(), &builder, expected_bytes);
  builder.NameKeys(reader.strings());
  HEADROOM_ASSIGN_OR_RETURN(const PickleValue top, reader.Run());
  return builder.Finish(reader, top);
}

Result<Snapshot> ReadWindow(std::unique_ptr<ByteWindow> window, uint64_t expected_bytes) {
  const char* at = window->begin();
  constexpr size_t kHead = 64;
  (void)window->Need(&at, kHead);
  HEADROOM_RETURN_IF_ERROR(window->status());
  const std::string_view head(at, static_cast<size_t>(window->end() - at));
  switch (DetectCarrier(head.substr(0, kHead))) {
    case Carrier::kGzip: {
      auto unpacked = std::make_unique<ByteWindow>(GunzipSource(std::move(window), kMostUnpacked));
      // Only a pickle or a page is expected inside: gzip in gzip would let depth multiply.
      const char* inner = unpacked->begin();
      (void)unpacked->Need(&inner, kHead);
      HEADROOM_RETURN_IF_ERROR(unpacked->status());
      const std::string_view first(inner, static_cast<size_t>(unpacked->end() - inner));
      if (DetectCarrier(first.substr(0, kHead)) == Carrier::kHtml) {
        unpacked = std::make_unique<ByteWindow>(HtmlSource(std::move(unpacked)));
      }
      return ReadPickle(std::move(unpacked), expected_bytes * kGzipRatio);
    }
    case Carrier::kHtml:
      return ReadPickle(std::make_unique<ByteWindow>(HtmlSource(std::move(window))),
                        expected_bytes / 4 * 3);
    case Carrier::kPlain:
      break;
  }
  return ReadPickle(std::move(window), expected_bytes);
}

template <typename T>
Result<T> In(Result<T> result, std::string_view where) {
  if (result.ok()) return result;
  return result.error().In(std::string(where));
}

}  // namespace

std::string_view Name(Action action) {
  if (action == Action::kOther) return "other";
  return kSnapshotStrings[static_cast<size_t>(SnapshotWord::kFirstAction) - 1 +
                          static_cast<size_t>(action)];
}

Result<Snapshot> ReadSnapshot(const std::filesystem::path& path) {
  if (path == "-") {
    return ReadSnapshot(DescriptorSource(STDIN_FILENO), "standard input");
  }
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    return Error::BadInput(Format("{}: no such file", path.string()));
  }
  if (std::filesystem::is_directory(status)) {
    return Error::BadInput(Format("{}: is a folder, not a file", path.string()));
  }
  Result<MappedFile> file = In(MappedFile::Open(path), path.string());
  if (!file.ok()) return file.error();
  return ParseSnapshot(file->bytes(), path.string());
}

Result<Snapshot> ParseSnapshot(std::string_view bytes, std::string_view origin) {
  return In(ReadWindow(std::make_unique<ByteWindow>(bytes), bytes.size()), origin);
}

Result<Snapshot> ReadSnapshot(std::unique_ptr<ByteSource> source, std::string_view origin) {
  return In(ReadWindow(std::make_unique<ByteWindow>(std::move(source)), 0), origin);
}

// ---- The end of a snapshot: from the pickle's last value to the finished tables ----

Result<Snapshot> SnapshotBuilder::Finish(PickleReader& reader, PickleValue top) {
  top = reader.Resolve(top);
  Range segments;
  Range host_segments;
  bool known = false;
  if (top.is_custom(kSegmentList)) {
    segments = lists_[top.custom_number()];
    known = true;
  }
  const std::span<const PickleValue> pairs =
      top.is(Tag::kDict) ? reader.Items(top) : std::span<const PickleValue>();
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (!pairs[i].is(Tag::kString)) continue;
    const PickleValue value = pairs[i + 1];
    switch (SnapshotKey(pairs[i].number())) {
      case SnapshotKey::kSegments:
        segments = RangeOf(reader, value, kSegmentList);
        known = true;
        break;
      case SnapshotKey::kDeviceTraces:
        snapshot_.devices = DeviceRanges(reader, value);
        known = true;
        break;
      case SnapshotKey::kHostSegments:
        host_segments = RangeOf(reader, value, kSegmentList);
        break;
      case SnapshotKey::kHostTraces:
        snapshot_.host_devices = DeviceRanges(reader, value);
        break;
      case SnapshotKey::kAllocatorSettings:
        ReadSettings(reader, value);
        break;
      default:
        break;
    }
  }
  if (reader.failed() || !known) {
    return reader.failed() ? reader.status().error()
                           : Error::BadInput(Format(
                                 "a pickle of {}, no memory snapshot: there is no \"segments\" and "
                                 "no \"device_traces\" in it",
                                 PickleReader::Describe(top)));
  }
  HEADROOM_RETURN_IF_ERROR(FinishSegments(&snapshot_.segments, segments));
  HEADROOM_RETURN_IF_ERROR(FinishSegments(&snapshot_.host_segments, host_segments));
  SortAnnotations();
  snapshot_.protocol = reader.protocol();
  snapshot_.era = Era();
  const auto warn = [&](uint64_t count, std::string_view what) {
    if (count > 0) snapshot_.warnings.push_back(Format("{}: {}", what, count));
  };
  warn(unknown_actions_, "events of an unknown kind, left out");
  warn(wrong_types_, "fields that are not of the type that PyTorch writes, read as empty");
  if (contexts_overflowed_) {
    snapshot_.warnings.push_back("too many different user_metadata texts: some are left out");
  }
  snapshot_.strings = std::move(reader.strings());
  return std::move(snapshot_);
}

// By time; those of the same time stay in the file's order.
void SnapshotBuilder::SortAnnotations() {
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < snapshot_.annotations.size(); ++i) {
    order.emplace_back(snapshot_.annotations[i].time_us, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<Annotation> sorted;
  for (const auto& [time, at] : order) sorted.push_back(snapshot_.annotations[at]);
  snapshot_.annotations = std::move(sorted);
}

std::vector<Range> SnapshotBuilder::DeviceRanges(PickleReader& reader, PickleValue traces) {
  std::vector<Range> devices;
  const PickleValue list = reader.Resolve(traces);
  if (list.is_custom(kEventList)) return {lists_[list.custom_number()]};  // one trace, no devices
  // A copy: resolving an inner list may move the table of containers.
  const std::span<const PickleValue> items = reader.Items(list);
  const std::vector<PickleValue> inner(items.begin(), items.end());
  for (const PickleValue trace : inner) devices.push_back(RangeOf(reader, trace, kEventList));
  return devices;
}

Status SnapshotBuilder::FinishSegments(std::vector<Segment>* out, Range rows) {
  constexpr int64_t kMostInAll = int64_t{1} << 60;
  int64_t total = 0;
  for (uint32_t i = rows.first; i < rows.end(); ++i) {
    Segment segment = segments_[i];
    uint64_t address = segment.address;
    int64_t in_blocks = 0;
    for (uint32_t b = segment.blocks.first; b < segment.blocks.end(); ++b) {
      Block& block = snapshot_.blocks[b];
      // PyTorch 1.13 to 2.0 writes no address: blocks fill the segment in order.
      if (block.address == 0) block.address = address;
      if (block.requested == 0) block.requested = block.size;
      address = block.address + static_cast<uint64_t>(block.size);
      in_blocks += block.size;
      if (in_blocks > kMostInAll) break;
    }
    if (segment.total == 0) segment.total = in_blocks;
    total += segment.total;
    if (total > kMostInAll || in_blocks > kMostInAll) {
      return Error::BadInput("segments of more bytes than any machine has: not opened");
    }
    out->push_back(segment);
  }
  return {};
}

void SnapshotBuilder::ReadSettings(PickleReader& reader, PickleValue settings) {
  if (!settings.is(Tag::kDict)) return;
  AllocatorSettings out;
  const std::span<const PickleValue> pairs = reader.Items(settings);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (!pairs[i].is(Tag::kString)) continue;
    const PickleValue value = pairs[i + 1];
    const auto number = static_cast<int64_t>(reader.AsUint64(value).value_or(0));
    keys_seen_ |= uint64_t{pairs[i].number() < 64} << (pairs[i].number() & 63);
    switch (SnapshotKey(pairs[i].number())) {
      case SnapshotKey::kCudaAllocConf:
      case SnapshotKey::kAllocConf:
        if (value.is(Tag::kString)) out.conf = reader.strings().Get(StringId(value.number()));
        break;
      case SnapshotKey::kMaxSplitSize:
        // -1, or SIZE_MAX read as two's complement: no limit.
        if (number > 0) out.max_split_size = Bytes(number);
        break;
      case SnapshotKey::kGarbageCollectionThreshold:
        out.garbage_collection_threshold = reader.AsFloat(value).value_or(0);
        break;
      case SnapshotKey::kExpandableSegments:
        out.expandable_segments = number != 0;
        break;
      case SnapshotKey::kTraceAllocOverflowed:
        out.trace_overflowed = number != 0;
        break;
      case SnapshotKey::kTraceAllocMaxEntries:
        out.trace_max_entries = number;
        break;
      case SnapshotKey::kRoundupPower2Divisions: {
        const std::span<const PickleValue> divisions = reader.Items(value);
        for (size_t d = 0; d + 1 < divisions.size(); d += 2) {
          if (!divisions[d].is(Tag::kString)) continue;
          const std::string key(reader.strings().Get(StringId(divisions[d].number())));
          const auto count = static_cast<int64_t>(reader.AsUint64(divisions[d + 1]).value_or(0));
          if (count > 0) out.roundup_power2_divisions[std::atoll(key.c_str())] = count;
        }
        break;
      }
      default:
        break;
    }
  }
  snapshot_.settings = std::move(out);
}

// Which PyTorch wrote the file, by the youngest field in it. The versions are those of the first
// files seen with the field (docs/snapshots.md), so "or newer" and "about" are meant.
std::string SnapshotBuilder::Era() const {
  const auto seen = [&](SnapshotKey key) {
    return (keys_seen_ >> static_cast<uint32_t>(key) & 1) != 0;
  };
  if (!snapshot_.host_devices.empty()) return "PyTorch 2.14 or newer";
  if (seen(SnapshotKey::kPoolId) || seen(SnapshotKey::kTraceAllocOverflowed)) {
    return "PyTorch 2.12 or newer";
  }
  if (seen(SnapshotKey::kUserMetadata)) return "PyTorch 2.10 or 2.11";
  if (seen(SnapshotKey::kCompileContext)) return "PyTorch 2.7 to 2.9";
  if (seen(SnapshotKey::kStage)) return "PyTorch 2.6";
  if (seen(SnapshotKey::kTimeUs)) return "PyTorch 2.3 to 2.5";
  if (seen(SnapshotKey::kIsExpandable)) return "PyTorch 2.1 or 2.2";
  if (seen(SnapshotKey::kHistory)) return "PyTorch 1.13 to 2.0";
  return "";
}

}  // namespace headroom::observe
