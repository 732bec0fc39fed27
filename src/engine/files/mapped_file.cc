// SPDX-License-Identifier: Apache-2.0
#include "engine/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace headroom::engine {

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  const auto refused = [&](std::string_view what) {
    return Error::BadInput(Format("{}: {}", path.string(), what));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return refused(std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  MappedFile file;
  bool mapped = true;
  if (regular && status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* const start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    mapped = start != MAP_FAILED;
    if (mapped) file.bytes_ = {static_cast<const std::byte*>(start), size};
  }
  const int reason = errno;
  ::close(descriptor);
  if (!regular) return refused("is no regular file");
  if (!mapped) return refused(std::strerror(reason));
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace headroom::engine
