// SPDX-License-Identifier: Apache-2.0
#include "observe/byte_window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace headroom::observe {
namespace {

// Twice the largest need, so that sliding copies at most as much as it reads.
constexpr size_t kBufferSize = 2 * ByteWindow::kLargestNeed;

class FromDescriptor final : public ByteSource {
 public:
  FromDescriptor(int descriptor, std::string already_read)
      : descriptor_(descriptor), already_read_(std::move(already_read)) {}

  Result<size_t> Read(char* out, size_t size) override {
    if (given_ < already_read_.size()) {
      const size_t part = std::min(size, already_read_.size() - given_);
      std::memcpy(out, already_read_.data() + given_, part);
      given_ += part;
      return part;
    }
    for (;;) {
      const ssize_t got = ::read(descriptor_, out, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) {
        return Error::BadInput(Format("reading failed: {}", std::strerror(errno)));
      }
    }
  }

 private:
  int descriptor_;
  std::string already_read_;
  size_t given_ = 0;  // of already_read_
};

}  // namespace

ByteWindow::ByteWindow(std::string_view memory)
    : begin_(memory.data()), end_(memory.data() + memory.size()) {}

ByteWindow::ByteWindow(std::unique_ptr<ByteSource> source)
    : source_(std::move(source)), buffer_(std::make_unique_for_overwrite<char[]>(kBufferSize)) {
  begin_ = end_ = buffer_.get();
}

bool ByteWindow::Need(const char** at, size_t needed) {
  HEADROOM_CHECK(needed <= kLargestNeed, "more asked of a window than it holds");
  const auto unread = static_cast<size_t>(end_ - *at);
  if (unread >= needed) return true;
  if (source_ == nullptr) return false;
  base_ += static_cast<uint64_t>(*at - begin_);
  std::memmove(buffer_.get(), *at, unread);
  begin_ = *at = buffer_.get();
  size_t held = unread;
  while (held < needed) {
    Result<size_t> got = source_->Read(buffer_.get() + held, kBufferSize - held);
    if (!got.ok()) {
      status_ = got.error();
      break;
    }
    if (*got == 0) break;
    held += *got;
  }
  end_ = buffer_.get() + held;
  return held >= needed;
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Error::BadInput(Format("cannot be opened: {}", std::strerror(errno)));
  }
  MappedFile file;
  struct stat status {};
  void* data = nullptr;
  const bool known = ::fstat(descriptor, &status) == 0;
  if (known && status.st_size > 0) {
    file.size_ = static_cast<size_t>(status.st_size);
    data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  const int reason = errno;
  ::close(descriptor);
  if (!known || data == MAP_FAILED) {
    file.size_ = 0;
    return Error::BadInput(Format("cannot be mapped: {}", std::strerror(reason)));
  }
  if (data != nullptr) ::madvise(data, file.size_, MADV_SEQUENTIAL);
  file.data_ = static_cast<const char*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

std::unique_ptr<ByteSource> DescriptorSource(int descriptor, std::string already_read) {
  return std::make_unique<FromDescriptor>(descriptor, std::move(already_read));
}

Carrier DetectCarrier(std::string_view head) {
  if (head.starts_with("\x1f\x8b")) return Carrier::kGzip;
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && head[first] == '<') return Carrier::kHtml;
  return Carrier::kPlain;
}

}  // namespace headroom::observe
