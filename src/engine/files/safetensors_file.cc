// SPDX-License-Identifier: Apache-2.0
#include "engine/files/safetensors_file.h"

#include <bit>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"
#include "base/format.h"
#include "engine/files/convert.h"
#include "model/json_text.h"
#include "model/safetensors.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::string_view kIndexEnding = ".safetensors.index.json";

std::optional<DType> ComputedDType(std::string_view stored) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"BOOL", DType::kBool},     {"U8", DType::kUInt8},    {"I8", DType::kInt8},
      {"I32", DType::kInt32},     {"I64", DType::kInt64},   {"F16", DType::kFloat16},
      {"BF16", DType::kBFloat16}, {"F32", DType::kFloat32}, {"F64", DType::kFloat64},
  };
  for (const auto& [name, dtype] : kNames) {
    if (name == stored) return dtype;
  }
  return std::nullopt;
}

// Where the tensors begin. REQUIRES: the header is a valid one.
size_t DataStart(std::span<const std::byte> file) {
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{std::to_integer<uint8_t>(file[i])} << (8 * i);
  return 8 + static_cast<size_t>(length);
}

// The files of a model, an index resolved.
Result<std::vector<fs::path>> FilesOf(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
      if (fs::exists(path / name, ignored)) return FilesOf(path / name);
    }
    return Error::BadInput(
        Format("{}: no weights here: neither model.safetensors nor "
               "model.safetensors.index.json",
               path.string()));
  }
  if (!path.filename().string().ends_with(kIndexEnding)) return std::vector<fs::path>{path};
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  HEADROOM_ASSIGN_OR_RETURN(const SafetensorsIndex index,
                            ParseSafetensorsIndex(text, path.string()));
  std::vector<fs::path> files;
  for (const std::string& file : index.files) files.push_back(path.parent_path() / file);
  return files;
}

}  // namespace

Result<SafetensorsReader> SafetensorsReader::Open(const fs::path& path) {
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesOf(path));
  SafetensorsReader reader;
  reader.origin_ = path.string();
  for (const fs::path& file : files) HEADROOM_RETURN_IF_ERROR(reader.Add(file));
  return reader;
}

Status SafetensorsReader::Add(const fs::path& file) {
  HEADROOM_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(file));
  const std::span<const std::byte> bytes = mapped.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  HEADROOM_ASSIGN_OR_RETURN(
      const std::vector<StoredTensor> stored,
      ParseSafetensorsHeader(text, static_cast<int64_t>(bytes.size()), file.string()));
  const std::span<const std::byte> data = bytes.subspan(DataStart(bytes));
  for (const StoredTensor& tensor : stored) {
    if (tensor.shape.size() > static_cast<size_t>(Shape::kMaxRank)) {
      return Error::Unsupported(Format("{}: tensor {} has {} dimensions, more than {}",
                                       file.string(), Quoted(tensor.name), tensor.shape.size(),
                                       Shape::kMaxRank));
    }
    TensorEntry entry{.dtype = ComputedDType(tensor.dtype),
                      .stored_dtype = tensor.dtype,
                      .shape = Shape(tensor.shape),
                      .bytes = data.subspan(static_cast<size_t>(tensor.begin),
                                            static_cast<size_t>(tensor.bytes().count()))};
    if (!tensors_.emplace(tensor.name, std::move(entry)).second) {
      return Error::BadInput(
          Format("{}: tensor {} stands in another shard too", file.string(), Quoted(tensor.name)));
    }
  }
  files_.push_back(std::move(mapped));
  return {};
}

const TensorEntry* SafetensorsReader::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::string_view> SafetensorsReader::Names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

Status SafetensorsReader::Read(std::string_view name, DType want,
                               std::span<std::byte> destination) const {
  const TensorEntry* const entry = Find(name);
  if (entry == nullptr) {
    return Error::BadInput(Format("{}: has no tensor {}", origin_, Quoted(name)));
  }
  if (!entry->dtype || !Converts(*entry->dtype, want)) {
    return Error::Unsupported(Format("{}: tensor {} is {}, which does not convert to {}", origin_,
                                     Quoted(name), entry->stored_dtype, Name(want)));
  }
  const int64_t size = entry->shape.NumElements() * ElementSize(want);
  HEADROOM_CHECK(static_cast<int64_t>(destination.size()) == size, "a destination of another size");
  Convert(entry->bytes, *entry->dtype, destination, want);
  return {};
}

}  // namespace headroom::engine
