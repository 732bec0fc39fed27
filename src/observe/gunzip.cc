// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/format.h"
#include "observe/byte_window.h"

namespace headroom::observe {
namespace {

class Gunzip final : public ByteSource {
 public:
  Gunzip(std::unique_ptr<ByteWindow> packed, Bytes limit)
      : packed_(std::move(packed)), at_(packed_->begin()), limit_(limit) {
    // 15 window bits, the largest; +16 takes a gzip header and nothing else (zlib.h, inflateInit2).
    ready_ = inflateInit2(&stream_, 15 + 16) == Z_OK;
  }
  ~Gunzip() override { inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  Result<size_t> Read(char* out, size_t size) override {
    if (!ready_) return Error::Internal("zlib has no memory left");
    size = std::min<size_t>(size, std::numeric_limits<uInt>::max());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size && !done_) HEADROOM_RETURN_IF_ERROR(Step());
    const size_t got = size - stream_.avail_out;
    produced_ += Bytes(static_cast<int64_t>(got));
    if (produced_ > limit_) {
      return Error::BadInput(
          Format("unpacks to more than {}, the most that is read here", FormatBytes(limit_)));
    }
    return got;
  }

 private:
  // Gives zlib what the window holds. A member that ends may be followed by another.
  Status Step() {
    if (!packed_->Need(&at_, 1)) {
      HEADROOM_RETURN_IF_ERROR(packed_->status());
      if (!AfterAMember()) return Error::BadInput("the gzip stream ends in the middle: truncated?");
      done_ = true;
      return {};
    }
    const auto unread = static_cast<size_t>(packed_->end() - at_);
    const auto given = static_cast<uInt>(std::min<size_t>(unread, 1U << 30));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(at_));
    stream_.avail_in = given;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    at_ += given - stream_.avail_in;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      // Padding after a whole member (tar, tape) is no error; gzip ignores it too.
      if (AfterAMember()) {
        done_ = true;
        return {};
      }
      return Error::BadInput(Format("not a sound gzip file: {} (at byte {})",
                                    stream_.msg != nullptr ? stream_.msg : "corrupt data",
                                    packed_->OffsetOf(at_)));
    }
    if (result == Z_STREAM_END) {
      ++members_;
      inflateReset(&stream_);
    }
    return {};
  }

  bool AfterAMember() const { return members_ > 0 && stream_.total_out == 0; }

  std::unique_ptr<ByteWindow> packed_;
  const char* at_;
  z_stream stream_{};
  Bytes limit_;
  Bytes produced_;
  bool ready_ = false;
  uint64_t members_ = 0;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> GunzipSource(std::unique_ptr<ByteWindow> packed, Bytes limit) {
  return std::make_unique<Gunzip>(std::move(packed), limit);
}

}  // namespace headroom::observe
