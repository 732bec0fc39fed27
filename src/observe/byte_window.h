// SPDX-License-Identifier: Apache-2.0
//
// ByteWindow: a file seen through a window that only moves forward.
//
// A mapped file is one window that never moves. What is unzipped, decoded or piped in passes
// through a small buffer, so that a reader of 1 GB holds a few MiB of it and a gzip bomb costs
// time, not memory. The reader keeps two pointers, `at` and `end`, and asks for more only when they
// are too close:
//
//   |.....consumed.....|at ====== unread ======|end        Need(&at, 9) slides the unread bytes to
//                                                          the front and reads until nine are there
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom::observe {

// What feeds a window. One of these per kind of carrier.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills the front of `out` and returns how much; 0 at the end. REQUIRES: size > 0.
  virtual Result<size_t> Read(char* out, size_t size) = 0;
};

class ByteWindow {
 public:
  // `memory` itself; it must outlive the window.
  explicit ByteWindow(std::string_view memory);
  explicit ByteWindow(std::unique_ptr<ByteSource> source);

  const char* begin() const { return begin_; }
  const char* end() const { return end_; }
  // Position in the whole input of the byte that `at` points to.
  uint64_t OffsetOf(const char* at) const { return base_ + static_cast<uint64_t>(at - begin_); }

  // Makes `needed` bytes readable from *at on, moving *at with them. False when the input ends
  // before that or its source failed; status() tells which. REQUIRES: needed <= kLargestNeed.
  bool Need(const char** at, size_t needed);
  const Status& status() const { return status_; }

  static constexpr size_t kLargestNeed = size_t{1} << 21;

 private:
  std::unique_ptr<ByteSource> source_;  // null for memory
  std::unique_ptr<char[]> buffer_;
  const char* begin_ = nullptr;
  const char* end_ = nullptr;
  uint64_t base_ = 0;  // offset of *begin_
  Status status_;
};

// A regular file in memory, read-only, until the object dies.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// The unzipped content of the gzip stream in `packed`, members one after the other. Fails on what
// zlib refuses, on a stream cut short and beyond `limit` bytes.
std::unique_ptr<ByteSource> GunzipSource(std::unique_ptr<ByteWindow> packed, Bytes limit);

// The snapshot inside the HTML page that torch/cuda/_memory_viz.py writes: the first string in
// base64 that follows the key "base64". Fails when there is none.
std::unique_ptr<ByteSource> HtmlSource(std::unique_ptr<ByteWindow> page);

// `already_read`, then everything that can be read from a descriptor (a pipe); closes nothing.
std::unique_ptr<ByteSource> DescriptorSource(int descriptor, std::string already_read = "");

// How the bytes of a file are packed, from its first bytes.
enum class Carrier { kPlain, kGzip, kHtml };
Carrier DetectCarrier(std::string_view head);

}  // namespace headroom::observe
