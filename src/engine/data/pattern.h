// SPDX-License-Identifier: Apache-2.0
//
// Pattern: a regular expression of a tokenizer.json, matched by PCRE2.
//
// The file comes from a stranger: an expression may be wrong, or take forever. Both are errors.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::engine {

struct Range {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const Range&) const = default;
};

class Pattern {
 public:
  // \s is Unicode's White_Space, as in Oniguruma, which these files are written for.
  static Result<Pattern> Compile(std::string_view expression);

  // All matches from left to right; empty ones are left out. Fails when the expression takes more
  // steps than any of a tokenizer does. REQUIRES: `text` is valid UTF-8.
  Result<std::vector<Range>> FindAll(std::string_view text) const;

 private:
  struct Code;
  Pattern() = default;
  std::shared_ptr<const Code> code_;  // immutable: threads may share it
  std::string expression_;
};

}  // namespace headroom::engine
