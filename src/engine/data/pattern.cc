// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/data/pattern.h"

#include <pcre2.h>

#include <utility>

#include "base/format.h"
#include "model/json_text.h"

namespace headroom::engine {
namespace {

constexpr size_t kLongestExpression = 4096;
// GPT-2's and Llama-3's take a handful of steps per character.
constexpr uint32_t kMostSteps = 1'000'000;
constexpr uint32_t kMostHeapKiB = 64 * 1024;

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// PCRE2's \s has U+180E besides.
std::string SpellOutSpaces(std::string_view expression) {
  std::string spelled;
  bool in_class = false;
  for (size_t at = 0; at < expression.size(); ++at) {
    const char c = expression[at];
    if (c != '\\' || at + 1 == expression.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      spelled += c;
      continue;
    }
    const char escaped = expression[++at];
    if (escaped == 's') {
      spelled += in_class ? std::string(kSpaces) : Format("[{}]", kSpaces);
    } else if (escaped == 'S' && !in_class) {
      spelled += Format("[^{}]", kSpaces);
    } else {
      spelled += c;
      spelled += escaped;
    }
  }
  return spelled;
}

std::string MessageOf(int code) {
  PCRE2_UCHAR text[128];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct Pattern::Code {
  ~Code() {
    pcre2_code_free(expression);
    pcre2_match_context_free(limits);
  }
  pcre2_code* expression = nullptr;
  pcre2_match_context* limits = nullptr;
};

Result<Pattern> Pattern::Compile(std::string_view expression) {
  const auto refused = [&](std::string_view why) {
    return Error::BadInput(Format("regular expression {}: {}", Quoted(expression), why));
  };
  if (expression.size() > kLongestExpression) {
    return refused(Format("longer than {} bytes", kLongestExpression));
  }
  const std::string spelled = SpellOutSpaces(expression);
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  int failure = 0;
  size_t at = 0;
  auto code = std::make_shared<Code>();
  code->expression =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &failure, &at, context.get());
  if (code->expression == nullptr) return refused(MessageOf(failure));
  code->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code->limits, kMostSteps);
  pcre2_set_heap_limit(code->limits, kMostHeapKiB);
  // Ten times faster where it is there; what it cannot compile is interpreted.
  pcre2_jit_compile(code->expression, PCRE2_JIT_COMPLETE);
  Pattern pattern;
  pattern.code_ = std::move(code);
  pattern.expression_ = expression;
  return pattern;
}

Result<std::vector<Range>> Pattern::FindAll(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create_from_pattern(code_->expression, nullptr));
  const auto match = [&](size_t from, uint32_t options) {
    return pcre2_match(code_->expression, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from, options | PCRE2_NO_UTF_CHECK, data.get(), code_->limits);
  };
  std::vector<Range> matches;
  size_t from = 0;
  while (from < text.size()) {
    int found = match(from, PCRE2_NOTEMPTY);
    // Compiled code has a stack of its own, which long runs of one class may fill.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(from, PCRE2_NOTEMPTY | PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return Error::BadInput(Format("regular expression {}: {} after {} bytes of text",
                                    Quoted(expression_), MessageOf(found), from));
    }
    const size_t* const bounds = pcre2_get_ovector_pointer(data.get());
    // \K in a lookahead can put the end before the start, or before the last match.
    if (bounds[0] < from || bounds[1] <= bounds[0]) break;
    matches.push_back({bounds[0], bounds[1]});
    from = bounds[1];
  }
  return matches;
}

}  // namespace headroom::engine
