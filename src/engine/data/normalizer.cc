// SPDX-License-Identifier: Apache-2.0
//
// The rules are those of tokenizers 0.23, src/normalizers/bert.rs and unicode.rs.
#include "engine/data/normalizer.h"

#include "engine/data/unicode.h"

namespace headroom::engine {
namespace {

template <typename Drop>
std::string Without(std::string_view text, Drop drop) {
  std::string kept;
  kept.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!drop(NextCodePoint(text, at))) kept += text.substr(begin, at - begin);
  }
  return kept;
}

std::string CleanText(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = NextCodePoint(text, at);
    if (code == 0 || code == 0xFFFD || IsControl(code)) continue;
    if (IsWhitespace(code)) {
      clean += ' ';
    } else {
      clean += text.substr(begin, at - begin);
    }
  }
  return clean;
}

std::string SpaceOutChinese(std::string_view text) {
  std::string spaced;
  spaced.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool chinese = IsChinese(NextCodePoint(text, at));
    if (chinese) spaced += ' ';
    spaced += text.substr(begin, at - begin);
    if (chinese) spaced += ' ';
  }
  return spaced;
}

std::string ApplyBert(const NormalizerStep& step, std::string text) {
  if (step.clean_text) text = CleanText(text);
  if (step.handle_chinese_chars) text = SpaceOutChinese(text);
  if (step.strip_accents) {
    text = Without(Normalized(text, NormalForm::kNfd), IsNonspacingMark);
  }
  if (step.lowercase) text = ToLower(text);
  return text;
}

}  // namespace

std::string Normalizer::Apply(std::string_view text) const {
  using Kind = NormalizerStep::Kind;
  std::string result(text);
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case Kind::kBert:
        result = ApplyBert(step, std::move(result));
        break;
      case Kind::kNfc:
        result = Normalized(result, NormalForm::kNfc);
        break;
      case Kind::kNfd:
        result = Normalized(result, NormalForm::kNfd);
        break;
      case Kind::kNfkc:
        result = Normalized(result, NormalForm::kNfkc);
        break;
      case Kind::kNfkd:
        result = Normalized(result, NormalForm::kNfkd);
        break;
      case Kind::kLowercase:
        result = ToLower(result);
        break;
      case Kind::kStripAccents:
        result = Without(result, IsMark);
        break;
    }
  }
  return result;
}

}  // namespace headroom::engine
