// SPDX-License-Identifier: Apache-2.0
//
// MappedFile: a file's bytes in the address space, read from the disk where they are touched. A
// checkpoint larger than the memory is thus read tensor by tensor, and pages that were read can be
// dropped again by the system.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace headroom::engine {

class MappedFile {
 public:
  // Fails on what is no regular file and on what cannot be opened; the message names the path.
  static Result<MappedFile> Open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Valid until this dies. Whoever cuts the file short meanwhile ends the process (SIGBUS).
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  std::span<const std::byte> bytes_;
};

}  // namespace headroom::engine
