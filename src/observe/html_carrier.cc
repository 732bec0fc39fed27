// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "observe/byte_window.h"

namespace headroom::observe {
namespace {

constexpr int8_t kInvalid = -1;

constexpr std::array<int8_t, 256> Base64Values() {
  std::array<int8_t, 256> values{};
  for (auto& value : values) value = kInvalid;
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  return values;
}
constexpr std::array<int8_t, 256> kBase64 = Base64Values();

class FromHtml final : public ByteSource {
 public:
  explicit FromHtml(std::unique_ptr<ByteWindow> page)
      : page_(std::move(page)), at_(page_->begin()) {}

  Result<size_t> Read(char* out, size_t size) override {
    if (!found_) HEADROOM_RETURN_IF_ERROR(FindSnapshot());
    size_t written = 0;
    while (written < size && !done_) {
      if (at_ == page_->end() && !page_->Need(&at_, 1)) {
        HEADROOM_RETURN_IF_ERROR(page_->status());
        return Error::BadInput("the page's snapshot ends in the middle: truncated?");
      }
      HEADROOM_RETURN_IF_ERROR(Take(*at_++, out, &written));
    }
    return written;
  }

 private:
  // json.dumps writes {"name": "snapshot.pickle", "base64": "gASV…"} (torch/cuda/_memory_viz.py,
  // _format_viz, 2.11).
  Status FindSnapshot() {
    constexpr std::string_view kKey = "\"base64\"";
    while (page_->Need(&at_, kKey.size())) {
      const auto unread = static_cast<size_t>(page_->end() - at_);
      const size_t place = std::string_view(at_, unread).find(kKey);
      if (place == std::string_view::npos) {
        at_ += unread - (kKey.size() - 1);
        continue;
      }
      at_ += place + kKey.size();
      return SkipTo('"');
    }
    HEADROOM_RETURN_IF_ERROR(page_->status());
    return Error::BadInput(
        "an HTML page without a memory snapshot in it: give a page that torch.cuda._memory_viz "
        "wrote");
  }

  Status SkipTo(char opening) {
    while (page_->Need(&at_, 1)) {
      const char next = *at_++;
      if (next == opening) {
        found_ = true;
        return {};
      }
      if (std::strchr(" \t\r\n:", next) == nullptr || next == '\0') break;
    }
    HEADROOM_RETURN_IF_ERROR(page_->status());
    return Error::BadInput("the page names a base64 snapshot and holds none");
  }

  Status Take(char next, char* out, size_t* written) {
    if (next == '"' || next == '=') {
      done_ = true;
      return {};
    }
    const int8_t digit = kBase64[static_cast<uint8_t>(next)];
    if (digit == kInvalid) {
      return Error::BadInput("the page's snapshot holds a character that is not base64");
    }
    bits_ = bits_ << 6 | static_cast<uint32_t>(digit);
    if (++digits_ % 4 == 1) return {};  // six bits: not yet a byte
    const uint32_t spare = digits_ % 4 == 2 ? 4 : digits_ % 4 == 3 ? 2 : 0;
    out[(*written)++] = static_cast<char>(bits_ >> spare & 0xff);
    return {};
  }

  std::unique_ptr<ByteWindow> page_;
  const char* at_;
  uint32_t bits_ = 0;
  uint32_t digits_ = 0;
  bool found_ = false;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> HtmlSource(std::unique_ptr<ByteWindow> page) {
  return std::make_unique<FromHtml>(std::move(page));
}

}  // namespace headroom::observe
