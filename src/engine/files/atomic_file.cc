// SPDX-License-Identifier: Apache-2.0
#include "engine/files/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace headroom::engine {

namespace fs = std::filesystem;

Result<AtomicFile> AtomicFile::Create(const fs::path& path) {
  AtomicFile file;
  file.path_ = path;
  file.temporary_ = path;
  file.temporary_ += ".tmp";
  file.descriptor_ =
      ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.descriptor_ >= 0) return file;
  const int reason = errno;
  file.temporary_.clear();
  return Error::BadInput(Format("{}: cannot be written: {}", path.string(), std::strerror(reason)));
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  Abandon();
  path_ = std::move(other.path_);
  temporary_ = std::exchange(other.temporary_, {});
  descriptor_ = std::exchange(other.descriptor_, -1);
  failed_ = other.failed_;
  return *this;
}

AtomicFile::~AtomicFile() { Abandon(); }

void AtomicFile::Abandon() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

Error AtomicFile::Failed(std::string_view what, int reason) const {
  std::error_code ignored;
  const bool old = fs::exists(path_, ignored);
  return Error::Internal(Format("{}: {}: {}{}", path_.string(), what, std::strerror(reason),
                                old ? "; the file of before is intact" : ""));
}

Status AtomicFile::Write(std::span<const std::byte> bytes, int64_t at) {
  // Linux writes at most 2 GiB in one call.
  constexpr size_t kPiece = size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kPiece), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      failed_ = true;
      return Failed("writing failed", written == 0 ? ENOSPC : errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    at += written;
  }
  return {};
}

Status AtomicFile::Commit() {
  HEADROOM_CHECK(!temporary_.empty() && !failed_, "committing a file that is none");
  if (::fsync(descriptor_) != 0) return Failed("writing failed", errno);
  // Some network file systems report a full disk only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) return Failed("writing failed", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Failed("cannot be replaced", errno);
  }
  temporary_.clear();
  // The new name itself is on the disk once its folder is; where that cannot be asked for, the file
  // is as safe as any other.
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
  return {};
}

Status WriteFileAtomically(const fs::path& path, std::string_view content) {
  HEADROOM_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  HEADROOM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(content)), 0));
  return file.Commit();
}

}  // namespace headroom::engine
