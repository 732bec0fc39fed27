// SPDX-License-Identifier: Apache-2.0
//
// TokenModel: cuts one word into tokens of a vocabulary.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace headroom::engine {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the word's tokens to `ids`. Threads may call it at once. REQUIRES: valid UTF-8, not
  // empty.
  virtual void Append(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace headroom::engine
