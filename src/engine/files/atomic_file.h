// SPDX-License-Identifier: Apache-2.0
//
// AtomicFile: a file that is there as a whole or not at all.
//
// It is written as NAME.tmp, brought to the disk and renamed to NAME. Whatever fails before that (a
// full disk, a signal, the power) leaves the NAME of before untouched; what is not committed is
// removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"

namespace headroom::engine {

class AtomicFile {
 public:
  // Fails when NAME.tmp cannot be made.
  static Result<AtomicFile> Create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Writes `bytes` at offset `at`. After a failure the file cannot be committed.
  Status Write(std::span<const std::byte> bytes, int64_t at);
  // Makes it the file `path`. REQUIRES: not committed yet.
  Status Commit();

 private:
  AtomicFile() = default;
  Error Failed(std::string_view what, int reason) const;
  void Abandon();

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: committed, or moved from
  int descriptor_ = -1;
  bool failed_ = false;
};

// The file `path` with this content, or the one of before.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content);

}  // namespace headroom::engine
