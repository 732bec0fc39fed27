// SPDX-License-Identifier: Apache-2.0
//
// Vocabulary: tokens and their ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace headroom::engine {

class Vocabulary {
 public:
  // Of two tokens with one id the later one is its token; of two ids of a token, the later one.
  void Add(std::string_view token, int32_t id) {
    ids_.insert_or_assign(std::string(token), id);
    if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
    tokens_[static_cast<size_t>(id)] = token;
  }

  std::optional<int32_t> Find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  // Empty for an id that is none.
  std::string_view Token(int32_t id) const {
    if (id < 0 || static_cast<size_t>(id) >= tokens_.size()) return {};
    return tokens_[static_cast<size_t>(id)];
  }
  // The largest id and one: ids between may be none.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
};

}  // namespace headroom::engine
