// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer: texts as token ids and back, the same ids as Hugging Face's tokenizers library gives.
//
//   HEADROOM_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load("minilm/"));
//   tokenizer.Encode("Hello world!")  ->  ids {101, 7592, 2088, 999, 102}
//
// A text goes through: added tokens cut out, normalising, words, the model (WordPiece or byte-pair
// encoding), the tokens around it. A file that asks for a step that is none of ours is refused
// instead of read wrongly; so are SentencePiece models. A tokenizer is immutable and cheap to copy;
// threads may share it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/data/post_processor.h"

namespace headroom::engine {

// The tokens that have a part to play, where there are such.
struct SpecialIds {
  std::optional<int32_t> pad = {};
  std::optional<int32_t> cls = {};
  std::optional<int32_t> sep = {};
  std::optional<int32_t> bos = {};
  std::optional<int32_t> eos = {};
  std::optional<int32_t> unk = {};
  std::optional<int32_t> mask = {};
};

struct EncodeOptions {
  std::optional<std::string_view> pair = {};
  bool add_special_tokens = true;  // [CLS] … [SEP] and their like
  int64_t max_length = 0;          // tokens, special ones included; 0: any number
};

enum class SpecialTokens : uint8_t { kSkip, kKeep };

struct TokenizerParts;

class Tokenizer {
 public:
  // `path`: a tokenizer.json, a vocab.txt (BERT's), or a folder that holds one of these or
  // vocab.json and merges.txt (GPT-2's or RoBERTa's). tokenizer_config.json and
  // special_tokens_map.json beside it say which token plays which part.
  static Result<Tokenizer> Load(const std::filesystem::path& path);
  // The text of a tokenizer.json.
  static Result<Tokenizer> Parse(std::string_view json, std::string_view origin);

  // Bytes that are no UTF-8 count as U+FFFD. What max_length cuts off is the end, of a pair that of
  // the longer text. Fails only where a regular expression of the file does.
  Result<Encoding> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Ids that are none are left out.
  std::string Decode(std::span<const int32_t> ids,
                     SpecialTokens special = SpecialTokens::kSkip) const;

  std::optional<int32_t> Id(std::string_view token) const;
  // Empty for an id that is none.
  std::string_view Token(int32_t id) const;
  const SpecialIds& special() const;
  // All ids that decoding skips, sorted, each once.
  std::vector<int32_t> AllSpecialIds() const;
  // The largest id and one: rows that an embedding needs.
  int64_t vocab_size() const;

  // tokenizer.json and tokenizer_config.json, which transformers loads: their texts by name.
  std::map<std::string, std::string> Files() const;
  // Writes them.
  Status Save(const std::filesystem::path& folder) const;

 private:
  friend Result<Tokenizer> TrainByteBpe(std::span<const std::string> lines, int64_t vocab_size,
                                        const std::vector<std::string>& special_tokens);
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  Result<std::vector<int32_t>> EncodeText(std::string_view text) const;
  Status AppendNormalized(std::string_view text, std::vector<int32_t>& ids) const;

  std::shared_ptr<const TokenizerParts> parts_;
};

// Learns byte-pair merges from `lines` until the vocabulary has `vocab_size` tokens or no pair
// stands twice: special tokens first, then the 256 bytes, then merges, of equally frequent ones the
// one with smaller ids. Special tokens named "<pad>", "<s>", "</s>", "<|endoftext|>" … get their
// part. Fails on a vocabulary too small for bytes and special tokens, or over a million.
Result<Tokenizer> TrainByteBpe(std::span<const std::string> lines, int64_t vocab_size,
                               const std::vector<std::string>& special_tokens);

}  // namespace headroom::engine
