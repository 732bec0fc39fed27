// SPDX-License-Identifier: Apache-2.0
//
// The rules are those of tokenizers 0.23, src/pre_tokenizers and tokenizer/normalizer.rs (split).
#include "engine/data/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "engine/data/unicode.h"

namespace headroom::engine {
namespace {

// The whole of a text, cut into what matches and what does not.
struct Segment {
  Range range;
  bool match = false;
};

std::vector<Segment> Segments(size_t size, std::span<const Range> matches, bool invert) {
  std::vector<Segment> segments;
  size_t at = 0;
  for (const Range& match : matches) {
    if (match.begin > at) segments.push_back({{at, match.begin}, invert});
    segments.push_back({match, !invert});
    at = match.end;
  }
  if (at < size) segments.push_back({{at, size}, invert});
  return segments;
}

// Each match is one character.
template <typename Matches>
std::vector<Range> FindCharacters(std::string_view text, Matches matches) {
  std::vector<Range> found;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (matches(NextCodePoint(text, at))) found.push_back({begin, at});
  }
  return found;
}

std::vector<Range> MergeWithPrevious(std::span<const Segment> segments) {
  std::vector<Range> words;
  bool after_match = false;
  for (const Segment& segment : segments) {
    if (segment.match && !after_match && !words.empty()) {
      words.back().end = segment.range.end;
    } else {
      words.push_back(segment.range);
    }
    after_match = segment.match;
  }
  return words;
}

std::vector<Range> MergeWithNext(std::span<const Segment> segments) {
  std::vector<Range> words;
  bool before_match = false;
  for (size_t i = segments.size(); i-- > 0;) {
    const Segment& segment = segments[i];
    if (segment.match && !before_match && !words.empty()) {
      words.back().begin = segment.range.begin;
    } else {
      words.push_back(segment.range);
    }
    before_match = segment.match;
  }
  std::ranges::reverse(words);
  return words;
}

std::vector<Range> Words(std::span<const Segment> segments, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kMergedWithPrevious) return MergeWithPrevious(segments);
  if (behavior == SplitBehavior::kMergedWithNext) return MergeWithNext(segments);
  std::vector<Range> words;
  for (size_t i = 0; i < segments.size(); ++i) {
    const bool continues = i > 0 && segments[i].match == segments[i - 1].match;
    if (behavior == SplitBehavior::kRemoved && segments[i].match) continue;
    if (behavior == SplitBehavior::kContiguous && continues) {
      words.back().end = segments[i].range.end;
    } else {
      words.push_back(segments[i].range);
    }
  }
  return words;
}

void Cut(std::string_view text, std::span<const Range> matches, SplitBehavior behavior, bool invert,
         std::vector<std::string>& words) {
  for (const Range& word : Words(Segments(text.size(), matches, invert), behavior)) {
    words.emplace_back(text.substr(word.begin, word.end - word.begin));
  }
}

Status CutBytes(const PreTokenizerStep& step, std::string_view text,
                std::vector<std::string>& words) {
  std::string prefixed;
  if (step.add_prefix_space && !text.starts_with(' ')) {
    prefixed = ' ' + std::string(text);
    text = prefixed;
  }
  if (!step.pattern) {
    words.push_back(BytesToCharacters(text));
    return {};
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<Range> matches, step.pattern->FindAll(text));
  const size_t first = words.size();
  Cut(text, matches, SplitBehavior::kIsolated, false, words);
  for (size_t i = first; i < words.size(); ++i) words[i] = BytesToCharacters(words[i]);
  return {};
}

void CutBert(std::string_view text, std::vector<std::string>& words) {
  std::vector<std::string> parts;
  Cut(text, FindCharacters(text, IsWhitespace), SplitBehavior::kRemoved, false, parts);
  for (const std::string& part : parts) {
    Cut(part, FindCharacters(part, IsPunctuation), SplitBehavior::kIsolated, false, words);
  }
}

Status Apply(const PreTokenizerStep& step, std::string_view text, std::vector<std::string>& words) {
  using Kind = PreTokenizerStep::Kind;
  switch (step.kind) {
    case Kind::kPattern: {
      HEADROOM_ASSIGN_OR_RETURN(const std::vector<Range> matches, step.pattern->FindAll(text));
      Cut(text, matches, step.behavior, step.invert, words);
      return {};
    }
    case Kind::kBert:
      CutBert(text, words);
      return {};
    case Kind::kWhitespace:
      Cut(text, FindCharacters(text, IsWhitespace), SplitBehavior::kRemoved, false, words);
      return {};
    case Kind::kPunctuation:
      Cut(text, FindCharacters(text, IsPunctuation), step.behavior, false, words);
      return {};
    case Kind::kDigits:
      Cut(text, FindCharacters(text, IsNumeric), step.behavior, false, words);
      return {};
    case Kind::kByteLevel:
      return CutBytes(step, text, words);
  }
  return {};
}

struct ByteCharacters {
  std::array<char32_t, 256> characters{};
  std::array<int16_t, 512> bytes{};  // -1: none
};

// bytes_to_unicode(), GPT-2's encoder.py: bytes that print are themselves, the others come behind
// U+0100 in their order.
constexpr ByteCharacters MakeByteCharacters() {
  ByteCharacters table;
  for (int16_t& byte : table.bytes) byte = -1;
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    table.characters[byte] = prints ? byte : next++;
    table.bytes[table.characters[byte]] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr ByteCharacters kByteCharacters = MakeByteCharacters();

}  // namespace

Result<std::vector<std::string>> PreTokenizer::Split(std::string_view text) const {
  std::vector<std::string> words;
  if (!text.empty()) words.emplace_back(text);
  for (const PreTokenizerStep& step : steps_) {
    std::vector<std::string> finer;
    for (const std::string& word : words) HEADROOM_RETURN_IF_ERROR(Apply(step, word, finer));
    words = std::move(finer);
  }
  return words;
}

Pattern Gpt2Pattern() {
  // tokenizers 0.23, src/pre_tokenizers/byte_level.rs.
  Result<Pattern> pattern = Pattern::Compile(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  HEADROOM_CHECK(pattern.ok(), "GPT-2's pattern");
  return *std::move(pattern);
}

std::string BytesToCharacters(std::string_view bytes) {
  std::string characters;
  characters.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    AppendUtf8(kByteCharacters.characters[static_cast<unsigned char>(byte)], characters);
  }
  return characters;
}

std::optional<std::string> CharactersToBytes(std::string_view characters) {
  std::string bytes;
  for (size_t at = 0; at < characters.size();) {
    const char32_t code = NextCodePoint(characters, at);
    if (code >= kByteCharacters.bytes.size() || kByteCharacters.bytes[code] < 0) return {};
    bytes += static_cast<char>(kByteCharacters.bytes[code]);
  }
  return bytes;
}

}  // namespace headroom::engine
