// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/format.h"

namespace headroom {

Result<std::string> ReadFile(const std::filesystem::path& path, Bytes limit) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    return Error::BadInput(Format("{}: no such file", path.string()));
  }
  if (std::filesystem::is_directory(status)) {
    return Error::BadInput(Format("{}: is a folder, not a file", path.string()));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return Error::BadInput(Format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
  }
  // Read in pieces: a pipe or device has no size to ask for beforehand.
  std::string content;
  char piece[1 << 16];
  while (in.read(piece, sizeof(piece)) || in.gcount() > 0) {
    content.append(piece, static_cast<size_t>(in.gcount()));
    if (static_cast<int64_t>(content.size()) > limit.count()) {
      return Error::BadInput(Format("{}: larger than {}, the most that is read here", path.string(),
                                    FormatBytes(limit)));
    }
  }
  if (in.bad()) return Error::BadInput(Format("{}: reading failed", path.string()));
  return content;
}

Status WriteFile(const std::filesystem::path& path, std::string_view content) {
  const auto failed = [&](std::string_view what) {
    return Error::BadInput(Format("{}: {}: {}", path.string(), what, std::strerror(errno)));
  };
  // A device or pipe (/dev/stdout) cannot be renamed over; write to it directly.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  const bool special = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  std::filesystem::path target = path;
  if (!special) target += Format(".{}.part", ::getpid());
  std::ofstream out(target, std::ios::binary | std::ios::trunc);
  if (!out) return failed("cannot be written");
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  if (!out) {
    const Status error = failed("writing failed");
    if (!special) std::filesystem::remove(target, ignored);
    return error;
  }
  if (special) return {};
  std::error_code failure;
  std::filesystem::rename(target, path, failure);
  if (failure) {
    std::filesystem::remove(target, ignored);
    return Error::BadInput(Format("{}: cannot be written: {}", path.string(), failure.message()));
  }
  return {};
}

}  // namespace headroom
