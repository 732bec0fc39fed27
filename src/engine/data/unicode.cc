// SPDX-License-Identifier: Apache-2.0
#include "engine/data/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace headroom::engine {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

utf8proc_category_t CategoryOf(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool IsAmong(char32_t code, utf8proc_category_t first, utf8proc_category_t last) {
  const utf8proc_category_t category = CategoryOf(code);
  return category >= first && category <= last;
}

// Bytes of a character that `text` begins with, or, negated, of the longest piece that only begins
// one (Unicode's table 3-7 of well-formed sequences). REQUIRES: not empty.
int CharacterLength(std::string_view text) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return -1;
  for (int at = 2; at < length; ++at) {
    if ((byte(static_cast<size_t>(at)) & 0xC0U) != 0x80) return -at;
  }
  return length;
}

}  // namespace

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const int length = CharacterLength(text);
    const auto bytes = static_cast<size_t>(std::abs(length));
    if (length > 0) {
      valid += text.substr(0, bytes);
    } else {
      AppendUtf8(kReplacement, valid);
    }
    text.remove_prefix(bytes);
  }
  return valid;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const int length = CharacterLength(text);
    if (length < 0) return false;
    text.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

char32_t NextCodePoint(std::string_view text, size_t& at) {
  const auto next = [&] { return static_cast<unsigned char>(text[at++]); };
  const char32_t lead = next();
  if (lead < 0x80) return lead;
  const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t code = lead & (0x3FU >> more);
  for (int i = 0; i < more; ++i) code = (code << 6) | (next() & 0x3FU);
  return code;
}

void AppendUtf8(char32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool IsWhitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || IsAmong(code, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool IsControl(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const utf8proc_category_t category = CategoryOf(code);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

bool IsPunctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  return IsAmong(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool IsChinese(char32_t code) {
  // is_chinese_char() of tokenizers 0.23, normalizers/bert.rs; the sixth begins at 2B920 there,
  // where BERT's own code has 2B820.
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  if (code < 0x3400) return false;
  for (const auto& [first, last] : kBlocks) {
    if (code >= first && code <= last) return true;
  }
  return false;
}

bool IsNonspacingMark(char32_t code) {
  return code >= 0x80 && CategoryOf(code) == UTF8PROC_CATEGORY_MN;
}

bool IsMark(char32_t code) {
  return code >= 0x80 && IsAmong(code, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool IsNumeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return IsAmong(code, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool IsWordCharacter(char32_t code) {
  constexpr char32_t kJoiners[] = {0x200C, 0x200D};
  const utf8proc_category_t category = CategoryOf(code);
  return IsAmong(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC || code == kJoiners[0] || code == kJoiners[1];
}

std::string ToLower(std::string_view text) {
  constexpr char32_t kDottedCapitalI = 0x130;
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t code = NextCodePoint(text, at);
    if (code < 0x80) {
      lower += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    } else if (code == kDottedCapitalI) {
      lower += "i\u0307";  // the one lower case of two characters
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))),
                 lower);
    }
  }
  return lower;
}

std::string Normalized(std::string_view text, NormalForm form) {
  unsigned options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(options));
  HEADROOM_CHECK(length >= 0, "a text that is not UTF-8, or no memory");
  std::string normalized(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
  return normalized;
}

}  // namespace headroom::engine
