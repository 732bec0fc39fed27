// SPDX-License-Identifier: Apache-2.0
#include "observe/byte_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <string>
#include <utility>

namespace headroom::observe {
namespace {

using ::testing::HasSubstr;

// Gives its text in pieces of a few bytes, to put every seam of a reader to the test.
class Dripping final : public ByteSource {
 public:
  Dripping(std::string text, size_t piece) : text_(std::move(text)), piece_(piece) {}
  Result<size_t> Read(char* out, size_t size) override {
    const size_t count = std::min({size, piece_, text_.size() - at_});
    text_.copy(out, count, at_);
    at_ += count;
    return count;
  }

 private:
  std::string text_;
  size_t piece_;
  size_t at_ = 0;
};

std::unique_ptr<ByteWindow> Drip(std::string text, size_t piece = 3) {
  return std::make_unique<ByteWindow>(std::make_unique<Dripping>(std::move(text), piece));
}

std::string Gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// All of a source, or the message of its error.
std::string Drain(std::unique_ptr<ByteSource> source) {
  ByteWindow window(std::move(source));
  const char* at = window.begin();
  std::string out;
  while (window.Need(&at, 1)) {
    out.append(at, window.end());
    at = window.end();
  }
  return window.status().ok() ? out : "error: " + window.status().error().message;
}

TEST(ByteWindow, SlidesOverASourceWithoutLosingItsPlace) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i) + ",";
  auto window = Drip(text, 7);
  const char* at = window->begin();
  std::string seen;
  while (window->Need(&at, 5)) {
    EXPECT_EQ(window->OffsetOf(at), seen.size());
    seen.append(at, 5);
    at += 5;
  }
  seen.append(at, window->end());
  EXPECT_EQ(seen, text);
}

TEST(Gunzip, UnpacksMembersOneAfterTheOther) {
  EXPECT_EQ(Drain(GunzipSource(Drip(Gzip("one ") + Gzip("two")), MiB(1))), "one two");
  EXPECT_EQ(Drain(GunzipSource(Drip(Gzip("one") + "padding"), MiB(1))), "one");
}

TEST(Gunzip, SaysWhatIsWrong) {
  const std::string packed = Gzip(std::string(10'000, 'x') + "end");
  EXPECT_THAT(Drain(GunzipSource(Drip(packed.substr(0, packed.size() / 2)), MiB(1))),
              HasSubstr("truncated?"));
  EXPECT_THAT(Drain(GunzipSource(Drip("\x1f\x8b nonsense"), MiB(1))),
              HasSubstr("not a sound gzip file"));
  std::string broken = packed;
  broken[broken.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(Drain(GunzipSource(Drip(broken), MiB(1))), HasSubstr("incorrect data check"));
}

TEST(Gunzip, StopsAtItsLimit) {
  const std::string bomb = Gzip(std::string(50'000'000, '\0'));
  EXPECT_LT(bomb.size(), 60'000U);
  EXPECT_THAT(Drain(GunzipSource(Drip(bomb, 4096), MiB(16))),
              HasSubstr("unpacks to more than 16.0 MiB"));
}

TEST(HtmlCarrier, FindsAndDecodesTheSnapshot) {
  const std::string head = "<html><script>const x = [{\"name\": \"s\", \"base64\": \"";
  EXPECT_EQ(Drain(HtmlSource(Drip(head + "aGVsbG8h\"}]"))), "hello!");
  EXPECT_EQ(Drain(HtmlSource(Drip(head + "aGVsbG8=\"}]"))), "hello");
  EXPECT_EQ(Drain(HtmlSource(Drip(head + "aGVsbA==\"}]"))), "hell");
  EXPECT_EQ(Drain(HtmlSource(Drip(std::string(70'000, ' ') + head + "aGVsbA\""))), "hell");
}

TEST(HtmlCarrier, SaysWhatIsWrong) {
  const std::string head = "<html><script>[{\"base64\": \"";
  EXPECT_THAT(Drain(HtmlSource(Drip("<html></html>"))), HasSubstr("without a memory snapshot"));
  EXPECT_THAT(Drain(HtmlSource(Drip("<a> \"base64\", 7"))), HasSubstr("holds none"));
  EXPECT_THAT(Drain(HtmlSource(Drip(head + "aGV-bG8"))), HasSubstr("not base64"));
  EXPECT_THAT(Drain(HtmlSource(Drip(head + "aGVs"))), HasSubstr("truncated?"));
}

TEST(DetectCarrier, LooksAtTheFirstBytes) {
  EXPECT_EQ(DetectCarrier("\x1f\x8b\x08"), Carrier::kGzip);
  EXPECT_EQ(DetectCarrier("\n<!DOCTYPE html>"), Carrier::kHtml);
  EXPECT_EQ(DetectCarrier("\x80\x04"), Carrier::kPlain);
  EXPECT_EQ(DetectCarrier(""), Carrier::kPlain);
}

TEST(MappedFile, SaysWhyItCannotBeOpened) {
  const Result<MappedFile> missing = MappedFile::Open("/no/such/file");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("No such file"));
}

}  // namespace
}  // namespace headroom::observe
