// SPDX-License-Identifier: Apache-2.0
//
// The format is that of safetensors 0.6 (safetensors/src/tensor.rs): a header of at most 100 MB
// that starts with '{', tensors that fill the buffer without holes in the order of their offsets.
#include "model/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/format.h"
#include "model/json_text.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kLargestHeader = 100'000'000;  // MAX_HEADER_SIZE
constexpr Bytes kLargestIndex = MiB(64);
constexpr size_t kMostDimensions = 64;
constexpr std::string_view kIndexEnding = ".safetensors.index.json";

constexpr std::pair<std::string_view, int> kBits[] = {
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
    {"F32", 32}, {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

// Reads characters and counts them, so that a parser's events can be told a place in the text.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* count_;
};

// What both files share: objects whose keys stand once, told by place. A handler returns false to
// stop, with `failure` and `failed_at` set.
class Handler : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(std::string_view text) : text_(text) {}

  size_t* count() { return &count_; }
  const std::string& failure() const { return failure_; }
  size_t failed_at() const { return failed_at_; }

  bool parse_error(size_t position, const std::string&, const Json::exception&) final {
    return Stop("not JSON", position > 0 ? position - 1 : 0);
  }
  bool binary(Json::binary_t&) final { return Stop("not JSON", count_); }

 protected:
  // Where the string that was just read opens.
  size_t StringStart() const {
    size_t at = std::min(count_, text_.size());
    while (at > 0 && text_[at - 1] != '"') --at;  // behind the closing quote
    if (at > 0) --at;
    while (at > 0) {
      --at;
      if (text_[at] != '"') continue;
      size_t slashes = 0;
      while (slashes < at && text_[at - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) break;
    }
    return at;
  }
  bool Stop(std::string message, size_t at) {
    if (failure_.empty()) {
      failure_ = std::move(message);
      failed_at_ = at;
    }
    return false;
  }
  bool StopHere(std::string message) {
    return Stop(std::move(message), count_ > 0 ? count_ - 1 : 0);
  }
  size_t here() const { return count_; }

 private:
  std::string_view text_;
  size_t count_ = 0;
  std::string failure_;
  size_t failed_at_ = 0;
};

// A tensor and where its name stands.
struct PlacedTensor {
  StoredTensor tensor;
  size_t at = 0;
};

class HeaderHandler final : public Handler {
 public:
  using Handler::Handler;

  std::vector<PlacedTensor> Take() { return std::move(tensors_); }

  bool start_object(size_t) override {
    ++depth_;
    if (list_ != List::kNone || depth_ > 2) return StopHere("an object where none belongs");
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ != 1) return true;
    if (std::exchange(metadata_, false)) return true;
    return FinishTensor();
  }
  bool key(std::string& name) override {
    if (depth_ == 1) return StartEntry(name);
    if (metadata_) return true;
    return StartField(name);
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || list_ != List::kNone || metadata_)
      return StopHere("a list where none belongs");
    if (field_ == "shape") list_ = List::kShape;
    if (field_ == "data_offsets") list_ = List::kOffsets;
    return list_ != List::kNone || StopHere("a list where none belongs");
  }
  bool end_array() override {
    list_ = List::kNone;
    return true;
  }
  bool string(std::string& value) override {
    if (metadata_ && depth_ == 2) return true;
    if (depth_ != 2 || list_ != List::kNone || field_ != "dtype") {
      return Stop("a text where none belongs", StringStart());
    }
    if (!StoredBits(value)) return Stop("unknown dtype " + Quoted(value), StringStart());
    current_.tensor.dtype = value;
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return StopHere("a number beyond any file");
    }
    if (list_ == List::kShape) {
      if (current_.tensor.shape.size() == kMostDimensions) return StopHere("too many dimensions");
      current_.tensor.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (list_ != List::kOffsets || offsets_ == 2) return StopHere("a number where none belongs");
    (offsets_++ == 0 ? current_.tensor.begin : current_.tensor.end) = static_cast<int64_t>(value);
    return true;
  }
  bool number_integer(int64_t) override { return StopHere("a negative number"); }
  bool number_float(double, const std::string&) override { return StopHere("not a whole number"); }
  bool null() override { return StopHere("null where none belongs"); }
  bool boolean(bool) override { return StopHere("true or false where none belongs"); }

 private:
  enum class List : uint8_t { kNone, kShape, kOffsets };

  bool StartEntry(const std::string& name) {
    const size_t at = StringStart();
    if (!names_.insert(name).second) {
      return Stop(Format("tensor {} stands twice", Quoted(name)), at);
    }
    metadata_ = name == "__metadata__";
    current_ = PlacedTensor{};
    current_.tensor.name = name;
    current_.at = at;
    fields_.clear();
    offsets_ = 0;
    return true;
  }
  bool StartField(const std::string& name) {
    constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
    if (std::ranges::find(kFields, name) == std::end(kFields)) {
      return Stop("unknown field " + Quoted(name), StringStart());
    }
    if (!fields_.insert(name).second) {
      return Stop(Format("{} stands twice", Quoted(name)), StringStart());
    }
    field_ = name;
    return true;
  }
  bool FinishTensor() {
    if (fields_.size() != 3 || offsets_ != 2 || current_.tensor.dtype.empty()) {
      return Stop(
          Format("tensor {} lacks dtype, shape or data_offsets", Quoted(current_.tensor.name)),
          current_.at);
    }
    tensors_.push_back(std::move(current_));
    return true;
  }

  int depth_ = 0;
  bool metadata_ = false;
  List list_ = List::kNone;
  int offsets_ = 0;
  std::string field_;
  std::set<std::string, std::less<>> fields_;
  std::unordered_set<std::string> names_;
  PlacedTensor current_;
  std::vector<PlacedTensor> tensors_;
};

class IndexHandler final : public Handler {
 public:
  using Handler::Handler;

  SafetensorsIndex Take() {
    index_.files.assign(files_.begin(), files_.end());
    index_.tensors = names_.size();
    return std::move(index_);
  }
  bool found_map() const { return found_map_; }

  bool start_object(size_t) override {
    ++depth_;
    found_map_ |= InMap();
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) section_ = name;
    field_ = name;
    if (!InMap()) return true;
    if (names_.insert(name).second) return true;
    return Stop(Format("tensor {} stands twice", Quoted(name)), StringStart());
  }
  bool string(std::string& value) override {
    if (!InMap()) return true;
    // A shard lies beside its index; a path out of the folder is no shard.
    if (value.empty() || value.find_first_of("/\\") != std::string::npos || value == ".." ||
        value.find('\0') != std::string::npos) {
      return Stop(Format("shard {} is no plain file name", Quoted(value)), StringStart());
    }
    files_.insert(value);
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    const bool total = depth_ == 2 && section_ == "metadata" && field_ == "total_size";
    if (total && value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      index_.total_size = static_cast<int64_t>(value);
    }
    return !InMap() || StopHere("a number where a shard belongs");
  }
  bool start_array(size_t) override { return Other(); }
  bool end_array() override { return true; }
  bool number_integer(int64_t) override { return Other(); }
  bool number_float(double, const std::string&) override { return Other(); }
  bool null() override { return Other(); }
  bool boolean(bool) override { return Other(); }

 private:
  bool InMap() const { return depth_ == 2 && section_ == "weight_map"; }
  bool Other() { return !InMap() || StopHere("something else where a shard belongs"); }

  int depth_ = 0;
  bool found_map_ = false;
  std::string section_;
  std::string field_;
  std::unordered_set<std::string> names_;
  std::set<std::string> files_;
  SafetensorsIndex index_;
};

// Brackets outside of strings that are open at once. nlohmann's parser keeps them on the heap; this
// bound keeps that small.
bool NestsDeeperThan(std::string_view text, int most) {
  int depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\') ++at;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > most) return true;
  }
  return false;
}

Error Damaged(std::string_view origin, std::string_view what, int64_t at) {
  return Error::BadInput(Format("{}: damaged: {} at byte {}: download it again", origin, what, at));
}

// Runs `handler` over `text`, which starts at byte `base` of the file.
Status Read(std::string_view text, Handler& handler, std::string_view origin, int64_t base) {
  constexpr int kDeepest = 16;
  if (NestsDeeperThan(text, kDeepest)) return Damaged(origin, "nested too deeply", base);
  const CountingIterator begin(text.data(), handler.count());
  const CountingIterator end(text.data() + text.size(), handler.count());
  if (Json::sax_parse(begin, end, &handler)) return {};
  const std::string what = handler.failure().empty() ? "not JSON" : handler.failure();
  return Damaged(origin, what, base + static_cast<int64_t>(handler.failed_at()));
}

// Elements, or nullopt when they are more than 63 bits count.
std::optional<int64_t> Elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  return elements;
}

// What the tensor's shape and dtype need, in bytes; nullopt when it is no number of bytes.
std::optional<int64_t> BytesNeeded(const StoredTensor& tensor) {
  const std::optional<int64_t> elements = Elements(tensor.shape);
  int64_t bits = 0;
  if (!elements || __builtin_mul_overflow(*elements, *StoredBits(tensor.dtype), &bits)) {
    return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// validate(): in the order of their offsets the tensors fill the buffer, which has `buffer` bytes
// and starts at byte `data` of the file. Errors name where the tensor stands in the header.
Status CheckOffsets(std::vector<PlacedTensor>& tensors, int64_t data, int64_t buffer,
                    std::string_view origin) {
  std::ranges::stable_sort(
      tensors, {}, [](const PlacedTensor& t) { return std::pair(t.tensor.begin, t.tensor.end); });
  int64_t filled = 0;
  for (const PlacedTensor& placed : tensors) {
    const StoredTensor& tensor = placed.tensor;
    const auto damaged = [&](std::string_view what) {
      return Damaged(origin, Format("tensor {} {}", Quoted(tensor.name), what),
                     kLengthBytes + static_cast<int64_t>(placed.at));
    };
    if (tensor.end < tensor.begin) return damaged("ends before it begins");
    if (tensor.begin < filled) return damaged("overlaps the one before");
    if (tensor.begin > filled) return damaged("leaves a hole before it");
    if (BytesNeeded(tensor) != tensor.end - tensor.begin) {
      return damaged(Format("has {} bytes, which is not what its shape and {} need",
                            tensor.end - tensor.begin, tensor.dtype));
    }
    if (tensor.end > buffer) {
      return damaged(Format("ends at {} of the {} bytes behind the header", tensor.end, buffer));
    }
    filled = tensor.end;
  }
  if (filled == buffer) return {};
  return Damaged(origin, Format("{} bytes that belong to no tensor", buffer - filled),
                 data + filled);
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

// The header's length. REQUIRES: `start` holds eight bytes.
Result<int64_t> HeaderLength(std::string_view start, int64_t file_size, std::string_view origin) {
  const uint64_t length = LittleEndian(start);
  const auto most = static_cast<uint64_t>(file_size - kLengthBytes);
  if (length > most) {
    return Damaged(origin, Format("a header of {} bytes in a file of {}", length, file_size), 0);
  }
  if (length > static_cast<uint64_t>(kLargestHeader)) {
    return Damaged(origin, Format("a header of {} bytes, over the format's 100 MB", length), 0);
  }
  return static_cast<int64_t>(length);
}

Result<std::string> ReadStart(std::ifstream& file, int64_t bytes, std::string_view origin) {
  std::string start(static_cast<size_t>(bytes), '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  if (file.gcount() == static_cast<std::streamsize>(start.size())) return start;
  return Error::BadInput(Format("{}: reading it failed", origin));
}

Result<std::vector<StoredTensor>> ReadHeaderOf(const fs::path& path) {
  const std::string origin = path.string();
  std::error_code failure;
  const auto size = static_cast<int64_t>(fs::file_size(path, failure));
  if (failure) return Error::BadInput(Format("{}: {}", origin, failure.message()));
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error::BadInput(Format("{}: cannot be opened", origin));
  if (size < kLengthBytes) return ParseSafetensorsHeader("", size, origin);
  HEADROOM_ASSIGN_OR_RETURN(std::string start, ReadStart(file, kLengthBytes, origin));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t length, HeaderLength(start, size, origin));
  HEADROOM_ASSIGN_OR_RETURN(const std::string header, ReadStart(file, length, origin));
  return ParseSafetensorsHeader(start + header, size, origin);
}

void Append(StoredWeights& weights, std::vector<StoredTensor> tensors) {
  for (StoredTensor& tensor : tensors) {
    weights.total += tensor.bytes();
    weights.tensors.push_back(std::move(tensor));
  }
}

// The shards that the index names, when they are all there; else its own sum.
Result<StoredWeights> ReadIndexed(const fs::path& path) {
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestIndex));
  HEADROOM_ASSIGN_OR_RETURN(SafetensorsIndex index, ParseSafetensorsIndex(text, path.string()));
  StoredWeights weights;
  weights.files = std::move(index.files);
  std::vector<fs::path> there;
  std::error_code ignored;
  for (const std::string& file : weights.files) {
    const fs::path shard = path.parent_path() / file;
    if (fs::is_regular_file(shard, ignored)) there.push_back(shard);
  }
  if (there.size() == weights.files.size()) {
    for (const fs::path& shard : there) {
      HEADROOM_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ReadHeaderOf(shard));
      Append(weights, std::move(tensors));
    }
    return weights;
  }
  if (!there.empty()) {
    return Error::BadInput(
        Format("{}: {} of its {} shards are missing: download them, or give "
               "the index alone",
               path.string(), weights.files.size() - there.size(), weights.files.size()));
  }
  if (!index.total_size) {
    return Error::BadInput(
        Format("{}: names no total_size, and its shards are not beside it", path.string()));
  }
  weights.total = Bytes(*index.total_size);
  return weights;
}

}  // namespace

int64_t StoredTensor::elements() const { return Elements(shape).value_or(0); }

std::optional<int> StoredBits(std::string_view dtype) {
  for (const auto& [name, bits] : kBits) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

Result<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view start, int64_t file_size,
                                                         std::string_view origin) {
  if (file_size < kLengthBytes || start.size() < static_cast<size_t>(kLengthBytes)) {
    return Damaged(origin, Format("{} bytes, too few for a header,", file_size), 0);
  }
  HEADROOM_ASSIGN_OR_RETURN(const int64_t length, HeaderLength(start, file_size, origin));
  const int64_t base = kLengthBytes + length;
  if (start.size() < static_cast<size_t>(base)) {
    return Damaged(origin, "a header that is cut off", static_cast<int64_t>(start.size()));
  }
  const std::string_view text = start.substr(kLengthBytes, static_cast<size_t>(length));
  if (!text.starts_with('{')) return Damaged(origin, "a header that is no object", kLengthBytes);
  HeaderHandler handler(text);
  HEADROOM_RETURN_IF_ERROR(Read(text, handler, origin, kLengthBytes));
  std::vector<PlacedTensor> placed = handler.Take();
  HEADROOM_RETURN_IF_ERROR(CheckOffsets(placed, base, file_size - base, origin));
  std::vector<StoredTensor> tensors;
  tensors.reserve(placed.size());
  for (PlacedTensor& tensor : placed) tensors.push_back(std::move(tensor.tensor));
  return tensors;
}

Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view text, std::string_view origin) {
  IndexHandler handler(text);
  HEADROOM_RETURN_IF_ERROR(Read(text, handler, origin, 0));
  SafetensorsIndex index = handler.Take();
  if (!handler.found_map() || index.files.empty()) {
    return Error::BadInput(Format("{}: no index of safetensors: it has no weight_map", origin));
  }
  return index;
}

Result<std::optional<StoredWeights>> ReadStoredWeights(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
      if (fs::exists(path / name, ignored)) return ReadStoredWeights(path / name);
    }
    return std::optional<StoredWeights>();
  }
  const std::string name = path.filename().string();
  if (name.ends_with(kIndexEnding)) {
    HEADROOM_ASSIGN_OR_RETURN(StoredWeights weights, ReadIndexed(path));
    return std::optional(std::move(weights));
  }
  if (!name.ends_with(".safetensors")) return std::optional<StoredWeights>();
  StoredWeights weights;
  weights.files = {name};
  HEADROOM_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ReadHeaderOf(path));
  Append(weights, std::move(tensors));
  return std::optional(std::move(weights));
}

}  // namespace headroom
