// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing the tensors of safetensors files; model/safetensors.h reads their headers.
//
//   HEADROOM_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open("minilm/"));
//   reader.Read("embeddings.word_embeddings.weight", DType::kFloat32, destination);
//
//   HEADROOM_ASSIGN_OR_RETURN(SafetensorsWriter writer,
//                             SafetensorsWriter::Create("out/model.safetensors", tensors));
//   for (…) writer.Write(name, bytes);
//   writer.Finish();
//
// Neither holds a tensor in memory: the reader maps files, the writer knows where each tensor goes
// before the first is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/shape.h"
#include "engine/files/atomic_file.h"
#include "engine/files/mapped_file.h"

namespace headroom::engine {

// A tensor as it lies in a file.
struct TensorEntry {
  std::optional<DType> dtype;  // absent: one that Headroom does not compute with
  std::string stored_dtype;    // the file's word: "BF16", "F8_E4M3"
  Shape shape;
  std::span<const std::byte> bytes;  // little-endian, at any address
};

class SafetensorsReader {
 public:
  // `path`: a .safetensors file, an index (….safetensors.index.json) with its shards beside it, or
  // a folder that holds model.safetensors.index.json or model.safetensors. Fails on damaged files,
  // on shards that are missing and on a tensor that stands in two of them.
  static Result<SafetensorsReader> Open(const std::filesystem::path& path);

  // Null when there is none of that name. Valid as long as this lives.
  const TensorEntry* Find(std::string_view name) const;
  // All names, sorted.
  std::vector<std::string_view> Names() const;

  // Copies the tensor to `destination` as `want`. float16, bfloat16, float32 and float64 convert
  // into each other, rounded to nearest even; others are copied as they are. Fails on a name that
  // is not there and on a conversion that is none. REQUIRES: `destination` has the tensor's size.
  Status Read(std::string_view name, DType want, std::span<std::byte> destination) const;

 private:
  SafetensorsReader() = default;
  Status Add(const std::filesystem::path& file);

  std::string origin_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorEntry, std::less<>> tensors_;
};

class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::kFloat32;
    Shape shape;
  };

  // Begins the file `path` with a header of these tensors and `metadata`. Until Finish() succeeds,
  // the file of before is there (engine/files/atomic_file.h). REQUIRES: names stand once.
  static Result<SafetensorsWriter> Create(const std::filesystem::path& path,
                                          std::span<const Tensor> tensors,
                                          const std::map<std::string, std::string>& metadata = {
                                              {"format", "pt"}});

  // Writes bytes of the tensor from its byte `at` on: tensors in any order, in one piece or in
  // several. REQUIRES: `name` is one of the tensors and the bytes lie inside.
  Status Write(std::string_view name, std::span<const std::byte> bytes, int64_t at = 0);
  // REQUIRES: each tensor is written.
  Status Finish();

 private:
  struct Place {
    int64_t begin = 0;  // in the file
    int64_t size = 0;
    int64_t written = 0;
  };

  explicit SafetensorsWriter(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace headroom::engine
