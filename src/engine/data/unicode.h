// SPDX-License-Identifier: Apache-2.0
//
// Characters as tokenizers see them: code points in UTF-8, their classes, and Unicode's forms.
//
// Classes are utf8proc's (Unicode 15). The tokenizers library has those of Unicode 8 for BERT's
// normaliser and punctuation, so that 568 rare characters, nearly all assigned since then (U+2E43 …
// U+2E5D among them), are punctuation, marks or control characters here and letters there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::engine {

// `text` with U+FFFD in place of each longest piece that begins a character and does not end it, as
// the WHATWG's decoders and Rust's from_utf8_lossy do.
std::string ToValidUtf8(std::string_view text);
bool IsValidUtf8(std::string_view text);

// The code point at `at`, which moves behind it. REQUIRES: valid UTF-8, at < text.size().
char32_t NextCodePoint(std::string_view text, size_t& at);
void AppendUtf8(char32_t code, std::string& text);

bool IsWhitespace(char32_t code);      // Unicode's White_Space
bool IsControl(char32_t code);         // Cc, Cf, Co, but for tab, line feed, carriage return
bool IsPunctuation(char32_t code);     // P*, and the ASCII symbols
bool IsChinese(char32_t code);         // BERT's blocks of ideographs
bool IsNonspacingMark(char32_t code);  // Mn
bool IsMark(char32_t code);            // Mn, Mc, Me
bool IsNumeric(char32_t code);         // Nd, Nl, No
bool IsWordCharacter(char32_t code);   // a regular expression's \w

// Each character's lower case, without regard to its neighbours.
std::string ToLower(std::string_view text);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// REQUIRES: valid UTF-8.
std::string Normalized(std::string_view text, NormalForm form);

}  // namespace headroom::engine
