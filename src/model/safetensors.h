// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file, and the index of a model in several of them: exactly how many
// bytes the weights have, without reading a weight.
//
//   8 bytes   N, little-endian
//   N bytes   {"wte.weight": {"dtype": "F32", "shape": [50257, 768], "data_offsets": [0,
//   154389504]},
//              "__metadata__": {"format": "pt"}}
//   the rest  the tensors, without holes or overlaps
//
// Files come from strangers: what is damaged is refused, with the byte of the file where it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom {

struct StoredTensor {
  std::string name;
  std::string dtype;  // as the file says: "F32", "BF16", "F8_E4M3", …
  std::vector<int64_t> shape;
  int64_t begin = 0;  // of its bytes behind the header
  int64_t end = 0;

  Bytes bytes() const { return Bytes(end - begin); }
  int64_t elements() const;
};

struct StoredWeights {
  std::vector<std::string> files;     // as they were read, or as the index names them
  std::vector<StoredTensor> tensors;  // in the order of the files; empty when no shard was there
  Bytes total;                        // of all tensors
};

// Bits of an element of a safetensors dtype; nullopt for a name that is none.
std::optional<int> StoredBits(std::string_view dtype);

// Reads a header. `start`: the file's first bytes, its whole header among them; `file_size`: of all
// of it. Fails, naming `origin` and the byte, on a length beyond the file, on what is no JSON or no
// table of tensors, on names that stand twice, and on bytes that overlap, leave a hole, lie beyond
// the file or are not what shape and dtype need.
Result<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view start, int64_t file_size,
                                                         std::string_view origin);

// A shard for each tensor, and the sum that the writer noted.
struct SafetensorsIndex {
  std::optional<int64_t> total_size;
  std::vector<std::string> files;  // sorted, each once
  size_t tensors = 0;
};

// Reads "model.safetensors.index.json". Fails on tensors that stand twice and on shards that are
// not plain file names.
Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view text, std::string_view origin);

// The weights of `path`: a .safetensors file, a .safetensors.index.json (its shards beside it, all
// of them or none), or a folder that holds model.safetensors.index.json or model.safetensors. Null
// when it is none of these. Reads headers only.
Result<std::optional<StoredWeights>> ReadStoredWeights(const std::filesystem::path& path);

}  // namespace headroom
