// SPDX-License-Identifier: Apache-2.0
//
// BytePairs: byte-pair encoding as GPT-2 and Llama-3 use it. A word begins as its characters; of
// all neighbours that merge, those whose merge was learnt first do, until none is left.
//
//   merges "l o", "lo w", "e r":   l o w e r  ->  lo w e r  ->  low e r  ->  low er
//
// Its characters usually stand for bytes (BytesToCharacters in engine/data/pre_tokenizer.h), so
// that no text is unknown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/data/token_model.h"
#include "engine/data/vocabulary.h"

namespace headroom::engine {

struct BytePairOptions {
  std::optional<int32_t> unknown_id = {};  // absent: characters that are no token are left out
  bool fuse_unknown = false;               // one unknown token for several in a row
  bool ignore_merges = false;              // a word that is a token needs no merges (Llama-3)
  std::string continuing_prefix = {};      // of all characters but a word's first
  std::string end_suffix = {};             // of a word's last
};

class BytePairs final : public TokenModel {
 public:
  // `merges`, the first learnt first. Fails on a merge whose parts or whole are no tokens.
  static Result<std::shared_ptr<const BytePairs>> Make(
      std::shared_ptr<const Vocabulary> vocabulary,
      const std::vector<std::pair<std::string, std::string>>& merges, BytePairOptions options);

  void Append(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;  // of the whole
  };
  struct Symbol;

  BytePairs(std::shared_ptr<const Vocabulary> vocabulary, BytePairOptions options);
  const Merge* MergeOf(int32_t left, int32_t right) const;
  std::vector<Symbol> Characters(std::string_view word) const;
  void MergeAll(std::vector<Symbol>& symbols) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BytePairOptions options_;
  std::unordered_map<uint64_t, Merge> merges_;  // by left id << 32 | right id
};

}  // namespace headroom::engine
