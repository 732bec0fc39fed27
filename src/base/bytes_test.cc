// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Bytes, ReadsWhatPeopleWrite) {
  EXPECT_EQ(*ParseBytes("12GiB"), GiB(12));
  EXPECT_EQ(*ParseBytes("12 gib"), GiB(12));
  EXPECT_EQ(*ParseBytes("12g"), GiB(12));
  EXPECT_EQ(*ParseBytes("12GB"), Bytes(12'000'000'000));
  EXPECT_EQ(*ParseBytes("1.5 MiB"), Bytes(3 << 19));
  EXPECT_EQ(*ParseBytes("4096"), Bytes(4096));
  EXPECT_EQ(*ParseBytes("0"), Bytes(0));
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "GiB", "12 apples", "-1GiB", "nan", "inf", "1e300", "12GiBB", "0x10"}) {
    const Result<Bytes> size = ParseBytes(text);
    EXPECT_FALSE(size.ok()) << text;
  }
}

TEST(Bytes, PrintsInTheUnitThatSuits) {
  EXPECT_EQ(FormatBytes(Bytes(512)), "512 B");
  EXPECT_EQ(FormatBytes(KiB(3)), "3.0 KiB");
  EXPECT_EQ(FormatBytes(MiB(1000)), "1,000.0 MiB");
  EXPECT_EQ(FormatBytes(GiB(3)), "3.00 GiB");
  EXPECT_EQ(FormatMiB(Bytes(6'898'000'000)), "6,578.4 MiB");
  EXPECT_EQ(FormatMiB(-MiB(1234)), "-1,234.0 MiB");
}

TEST(Bytes, RoundsUpToTheUnit) {
  EXPECT_EQ(RoundUp(Bytes(1), Bytes(512)), Bytes(512));
  EXPECT_EQ(RoundUp(Bytes(512), Bytes(512)), Bytes(512));
  EXPECT_EQ(RoundUp(Bytes(513), Bytes(512)), Bytes(1024));
  EXPECT_EQ(RoundUp(Bytes(0), Bytes(512)), Bytes(0));
}

}  // namespace
}  // namespace headroom
