// SPDX-License-Identifier: Apache-2.0
//
// Offsets are those of APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 (central
// directory) and 4.3.16 (its end).
#include "observe/zip_member.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/format.h"

namespace headroom::observe {
namespace {

constexpr std::string_view kEndOfDirectory("PK\x05\x06", 4);
constexpr std::string_view kEntry("PK\x01\x02", 4);
constexpr std::string_view kLocal("PK\x03\x04", 4);
constexpr size_t kEndSize = 22;
constexpr size_t kEntrySize = 46;
constexpr size_t kLocalSize = 30;
constexpr size_t kLongestComment = 65535;
constexpr uint64_t kStored = 0;
constexpr uint64_t kDeflated = 8;

// `size` bytes at `at`, little-endian. REQUIRES: they lie in `bytes`.
uint64_t Number(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  }
  return value;
}

struct Member {
  uint64_t method = 0;
  uint64_t packed = 0;
  uint64_t size = 0;
  uint64_t offset = 0;  // of its local header
};

std::optional<Member> FindMember(std::string_view archive, std::string_view suffix) {
  const size_t window = std::min(archive.size(), kEndSize + kLongestComment);
  const std::string_view tail = archive.substr(archive.size() - window);
  const size_t end = tail.rfind(kEndOfDirectory);
  if (end == std::string_view::npos || tail.size() - end < kEndSize) return std::nullopt;
  size_t at = Number(tail, end + 16, 4);
  while (at < archive.size() && archive.size() - at >= kEntrySize &&
         archive.substr(at, 4) == kEntry) {
    const size_t name_size = Number(archive, at + 28, 2);
    const size_t extra = Number(archive, at + 30, 2) + Number(archive, at + 32, 2);
    const std::string_view name = archive.substr(at + kEntrySize, name_size);
    if (name.ends_with(suffix)) {
      return Member{Number(archive, at + 10, 2), Number(archive, at + 20, 4),
                    Number(archive, at + 24, 4), Number(archive, at + 42, 4)};
    }
    at += kEntrySize + name_size + extra;
  }
  return std::nullopt;
}

Result<std::string> Inflate(std::string_view packed, size_t size) {
  std::string out(size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) return Error::Internal("zlib has no memory left");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = inflate(&stream, Z_FINISH);
  const bool whole = result == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  if (!whole) return Error::BadInput("a damaged zip archive");
  return out;
}

}  // namespace

Result<std::string> ReadZipMember(std::string_view archive, std::string_view suffix, Bytes limit) {
  if (!archive.starts_with(kLocal)) return Error::BadInput("no zip archive");
  const std::optional<Member> member = FindMember(archive, suffix);
  if (!member) {
    return Error::BadInput(Format("a zip archive without a member *{}: truncated?", suffix));
  }
  if (member->size > static_cast<uint64_t>(limit.count()) ||
      member->packed > static_cast<uint64_t>(limit.count())) {
    return Error::BadInput(Format("*{} is larger than {}", suffix, FormatBytes(limit)));
  }
  const size_t header = member->offset;
  const bool inside = header < archive.size() && archive.size() - header >= kLocalSize &&
                      archive.substr(header, 4) == kLocal;
  if (!inside) return Error::BadInput("a damaged zip archive");
  const size_t data =
      header + kLocalSize + Number(archive, header + 26, 2) + Number(archive, header + 28, 2);
  if (data > archive.size() || archive.size() - data < member->packed) {
    return Error::BadInput("a damaged zip archive: truncated?");
  }
  const std::string_view packed = archive.substr(data, member->packed);
  if (member->method == kStored) return std::string(packed);
  if (member->method == kDeflated) return Inflate(packed, member->size);
  return Error::BadInput(Format("a zip archive packed by method {}", member->method));
}

}  // namespace headroom::observe
