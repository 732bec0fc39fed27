// SPDX-License-Identifier: Apache-2.0
//
// AlgorithmStore: which of cuBLASLt's algorithms computes a matrix product, by the product's shape.
//
// Algorithms sum in different orders. A run that shall repeat another to the bit has to multiply as
// the other did, and the fastest of several is not the same at every start, as times vary. So a
// choice is made once and kept: in a file of the user's cache folder, which later starts read, and
// in checkpoints. It holds for one kind of card, driver and cuBLASLt alone, as the file says:
//
//   {"schema": "headroom.gemm_algorithms.1",
//    "gpu": "NVIDIA H200", "compute_capability": "9.0", "driver": 13000, "cublaslt": 130100,
//    "algorithms": [
//      {"shape": [1024, 512, 1024, ...], "algorithm": "2a00...", "milliseconds": 0.0192},
//      ...]}
//
// `shape` is what GemmLibrary tells products apart by, `algorithm` the 64 bytes of a
// cublasLtMatmulAlgo_t in hexadecimal, and `milliseconds` decides whether a bias's gradient comes
// with a product. No header of CUDA is needed here, nor a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace headroom::engine::cuda {

// What choices hold for.
struct AlgorithmIdentity {
  std::string gpu;                 // "NVIDIA H200"
  std::string compute_capability;  // "9.0"
  int64_t driver = 0;              // the newest CUDA that it knows, as 13000
  int64_t cublaslt = 0;            // version of the library, as 130100

  bool operator==(const AlgorithmIdentity&) const = default;
  // "NVIDIA H200 (9.0), driver of CUDA 13.0, cuBLASLt 13.1.0": for messages.
  std::string ToString() const;
};

// Everything an algorithm depends on, as GemmLibrary lists it. Another order or meaning of the
// values is another schema of the file.
using GemmShape = std::array<int64_t, 23>;

struct GemmAlgorithm {
  std::array<uint8_t, 64> bytes{};
  float milliseconds = 0;  // 0: it was not timed

  bool operator==(const GemmAlgorithm&) const = default;
};

class AlgorithmStore {
 public:
  AlgorithmStore() = default;
  explicit AlgorithmStore(AlgorithmIdentity identity) : identity_(std::move(identity)) {}

  // Fails with one line on what is no text of ToText(). `origin` names it in the message.
  static Result<AlgorithmStore> Parse(std::string_view text, std::string_view origin);
  // JSON as above, a line for each algorithm.
  std::string ToText() const;

  const AlgorithmIdentity& identity() const { return identity_; }
  const std::map<GemmShape, GemmAlgorithm>& algorithms() const { return algorithms_; }
  // Null where there is none.
  const GemmAlgorithm* Find(const GemmShape& shape) const;
  // The first algorithm of a shape stays: who has used it goes on with it.
  void Add(const GemmShape& shape, const GemmAlgorithm& algorithm);
  void Merge(const AlgorithmStore& other);

 private:
  AlgorithmIdentity identity_;
  std::map<GemmShape, GemmAlgorithm> algorithms_;
};

// The identity's file in a folder: "gemm-NVIDIA-H200-9.0-13000-130100.json".
std::filesystem::path StoreFile(const std::filesystem::path& folder,
                                const AlgorithmIdentity& identity);
// What the folder has for the identity. Nothing where there is no file, where it cannot be read, or
// where it is of another identity.
AlgorithmStore ReadStore(const std::filesystem::path& folder, const AlgorithmIdentity& identity);
// Puts the choices into the file, in place of those of the same shapes, and makes the folder.
// Fails where the folder cannot be written.
Status AddToStore(const std::filesystem::path& folder, const AlgorithmStore& chosen);

}  // namespace headroom::engine::cuda
