// SPDX-License-Identifier: Apache-2.0
#include "engine/data/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace headroom::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Split(PreTokenizerStep step, std::string_view text) {
  auto words = PreTokenizer({std::move(step)}).Split(text);
  EXPECT_TRUE(words.ok());
  return *std::move(words);
}

std::vector<std::string> SplitAtDashes(SplitBehavior behavior, bool invert = false) {
  return Split({.kind = PreTokenizerStep::Kind::kPattern,
                .behavior = behavior,
                .pattern = *Pattern::Compile("-"),
                .invert = invert},
               "the-final--countdown");
}

// The examples of tokenizers' documentation of SplitDelimiterBehavior.
TEST(PreTokenizer, SplitsInFiveWays) {
  EXPECT_THAT(SplitAtDashes(SplitBehavior::kRemoved), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(SplitAtDashes(SplitBehavior::kIsolated),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(SplitAtDashes(SplitBehavior::kMergedWithPrevious),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(SplitAtDashes(SplitBehavior::kMergedWithNext),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(SplitAtDashes(SplitBehavior::kContiguous),
              ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(SplitAtDashes(SplitBehavior::kRemoved, true), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, CutsAsBertDoes) {
  EXPECT_THAT(Split({}, "Hey friend!     How are you?!?"),
              ElementsAre("Hey", "friend", "!", "How", "are", "you", "?", "!", "?"));
  EXPECT_THAT(Split({}, ""), ElementsAre());
}

TEST(PreTokenizer, CutsAsGpt2Does) {
  const PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kByteLevel, .pattern = Gpt2Pattern()};
  EXPECT_THAT(Split(step, "Hello  world's 42!\n"),
              ElementsAre("Hello", "Ġ", "Ġworld", "'s", "Ġ42", "!", "Ċ"));
}

TEST(ByteCharacters, StandForEachByteOnce) {
  std::set<std::string> seen;
  for (int i = 0; i < 256; ++i) {
    const std::string byte(1, static_cast<char>(i));
    const std::string character = BytesToCharacters(byte);
    EXPECT_TRUE(seen.insert(character).second);
    EXPECT_EQ(CharactersToBytes(character), byte);
  }
  EXPECT_EQ(BytesToCharacters(" \n\xAD"), "ĠĊŃ");
  EXPECT_EQ(CharactersToBytes(" "), std::nullopt);
  EXPECT_EQ(CharactersToBytes("語"), std::nullopt);
}

TEST(Pattern, RefusesWhatIsNoExpression) {
  EXPECT_THAT(Pattern::Compile("(a").error().message, HasSubstr("regular expression \"(a\":"));
  EXPECT_FALSE(Pattern::Compile(std::string(5000, 'a')).ok());
  EXPECT_FALSE(Pattern::Compile("\\C").ok());
}

TEST(Pattern, GivesUpOnWhatTakesForever) {
  const auto pattern = Pattern::Compile("(a+)+$");
  ASSERT_TRUE(pattern.ok());
  EXPECT_THAT(pattern->FindAll(std::string(100, 'a') + "b").error().message,
              HasSubstr("match limit exceeded"));
}

TEST(Pattern, LeavesEmptyMatchesOut) {
  const auto pattern = Pattern::Compile("b*");
  ASSERT_TRUE(pattern.ok());
  EXPECT_THAT(*pattern->FindAll("abbac"), ElementsAre(Range{1, 3}));
}

TEST(Pattern, HasTheWhitespaceOfUnicode) {
  const auto pattern = Pattern::Compile(R"(\s)");
  const auto others = Pattern::Compile(R"([^\sx]|\S)");
  ASSERT_TRUE(pattern.ok() && others.ok());
  EXPECT_TRUE(pattern->FindAll("\u180E")->empty());
  EXPECT_EQ(others->FindAll("\u180E")->size(), 1u);
  EXPECT_EQ(pattern->FindAll("\u0085\u00A0\u3000 \t")->size(), 5u);
  EXPECT_TRUE(others->FindAll("\u0085\u00A0\u3000 \t")->empty());
}

TEST(Pattern, MatchesLongRunsOfOneClass) {
  const auto pattern = Pattern::Compile(R"(\s+(?!\S)|\s+)");
  ASSERT_TRUE(pattern.ok());
  const std::string spaces(3'000'000, ' ');
  EXPECT_THAT(*pattern->FindAll(spaces + "x"),
              ElementsAre(Range{0, spaces.size() - 1}, Range{spaces.size() - 1, spaces.size()}));
}

}  // namespace
}  // namespace headroom::engine
