// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "engine/files/safetensors_file.h"

namespace headroom::engine {
namespace {

using Json = nlohmann::json;

std::string_view StoredName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BOOL";
    case DType::kUInt8:
      return "U8";
    case DType::kInt8:
      return "I8";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      return "F64";
  }
  return "";
}

std::string InQuotes(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string MetadataText(const std::map<std::string, std::string>& metadata) {
  std::string text = "\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    if (text.back() != '{') text += ',';
    text += InQuotes(key) + ":" + InQuotes(value);
  }
  return text + "}";
}

std::string TensorText(const SafetensorsWriter::Tensor& tensor, int64_t begin, int64_t end) {
  std::string shape;
  for (const int64_t size : tensor.shape) {
    if (!shape.empty()) shape += ',';
    shape += std::to_string(size);
  }
  return Format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", InQuotes(tensor.name),
                StoredName(tensor.dtype), shape, begin, end);
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::filesystem::path& path, std::span<const Tensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  // Wider elements first, as safetensors' own serialize() has it, so that each is aligned.
  std::vector<const Tensor*> ordered;
  for (const Tensor& tensor : tensors) ordered.push_back(&tensor);
  std::ranges::stable_sort(ordered, std::greater<>(),
                           [](const Tensor* tensor) { return ElementSize(tensor->dtype); });

  HEADROOM_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  SafetensorsWriter writer(std::move(file));
  std::string header = "{" + MetadataText(metadata);
  int64_t at = 0;
  for (const Tensor* tensor : ordered) {
    const int64_t size = tensor->shape.NumElements() * ElementSize(tensor->dtype);
    header += "," + TensorText(*tensor, at, at + size);
    const bool once = writer.places_.emplace(tensor->name, Place{at, size, 0}).second;
    HEADROOM_CHECK(once, "a tensor that stands twice");
    at += size;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');

  std::string start;
  for (int i = 0; i < 8; ++i) start += static_cast<char>(uint64_t{header.size()} >> (8 * i) & 0xff);
  start += header;
  for (auto& [name, place] : writer.places_) place.begin += static_cast<int64_t>(start.size());
  HEADROOM_RETURN_IF_ERROR(writer.file_.Write(std::as_bytes(std::span(start)), 0));
  return writer;
}

Status SafetensorsWriter::Write(std::string_view name, std::span<const std::byte> bytes,
                                int64_t at) {
  const auto found = places_.find(name);
  HEADROOM_CHECK(found != places_.end(), "a tensor that the header does not name");
  Place& place = found->second;
  const auto size = static_cast<int64_t>(bytes.size());
  HEADROOM_CHECK(at >= 0 && at + size <= place.size, "bytes beyond the tensor");
  HEADROOM_RETURN_IF_ERROR(file_.Write(bytes, place.begin + at));
  place.written += size;
  return {};
}

Status SafetensorsWriter::Finish() {
  for (const auto& [name, place] : places_) {
    HEADROOM_CHECK(place.written == place.size, "a tensor that was not written: " + name);
  }
  return file_.Commit();
}

}  // namespace headroom::engine
