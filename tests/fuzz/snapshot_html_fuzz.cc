// SPDX-License-Identifier: Apache-2.0
//
// The HTML carrier on arbitrary pages, given whole and in pieces of a few bytes: no crash, and both
// ways find the same bytes or fail with the same words.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "observe/byte_window.h"

namespace headroom::observe {
namespace {

class Dripping final : public ByteSource {
 public:
  Dripping(std::string_view text, size_t piece) : text_(text), piece_(piece) {}
  Result<size_t> Read(char* out, size_t size) override {
    const size_t count = std::min({size, piece_, text_.size()});
    text_.copy(out, count);
    text_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view text_;
  size_t piece_;
};

std::string Drain(std::unique_ptr<ByteWindow> page) {
  ByteWindow content(HtmlSource(std::move(page)));
  const char* at = content.begin();
  std::string out;
  while (content.Need(&at, 1)) {
    out.append(at, content.end());
    at = content.end();
  }
  return content.status().ok() ? out : "error: " + content.status().error().message;
}

}  // namespace
}  // namespace headroom::observe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::observe::ByteWindow;
  using headroom::observe::Drain;
  using headroom::observe::Dripping;
  if (size == 0) return 0;
  const size_t piece = data[0] % 64 + 1;
  const std::string_view page(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = Drain(std::make_unique<ByteWindow>(page));
  const std::string pieces =
      Drain(std::make_unique<ByteWindow>(std::make_unique<Dripping>(page, piece)));
  HEADROOM_CHECK(whole == pieces, "a page read in pieces differs");
  return 0;
}
