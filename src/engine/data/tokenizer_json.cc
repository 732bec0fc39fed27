// SPDX-License-Identifier: Apache-2.0
//
// tokenizer.json, as tokenizers 0.23 writes it. Of its "truncation" and "padding" nothing is used:
// how long a text may be and what it is padded to is the run's business.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "engine/data/byte_bpe.h"
#include "engine/data/tokenizer_access.h"
#include "engine/data/tokenizer_parts.h"
#include "engine/data/tokenizer_steps.h"
#include "engine/data/wordpiece.h"
#include "model/json_text.h"

namespace headroom::engine {
namespace {

using Json = nlohmann::json;

constexpr Bytes kLargestFile = MiB(128);
// A vocabulary may leave ids out, but not so many that a short file takes much memory.
constexpr int64_t kMostMissingIds = 65'536;

Result<std::shared_ptr<const Vocabulary>> ReadVocabulary(const Json& model) {
  const Json& json = Member(model, "vocab");
  if (!json.is_object() || json.empty()) return Wrong("model.vocab", "a table of tokens");
  auto vocabulary = std::make_shared<Vocabulary>();
  const int64_t most = static_cast<int64_t>(json.size()) + kMostMissingIds;
  for (const auto& [token, value] : json.items()) {
    const std::optional<int32_t> id = IdIn(value);
    if (!id || *id >= most) {
      return Error::BadInput(
          Format("model.vocab: token {} has the id {}, which is no whole number below {}",
                 Quoted(token), Shown(value), most));
    }
    if (!vocabulary->Token(*id).empty()) {
      return Error::BadInput(Format("model.vocab: tokens {} and {} share the id {}", Quoted(token),
                                    Quoted(vocabulary->Token(*id)), *id));
    }
    vocabulary->Add(token, *id);
  }
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
}

// A merge is "a b", or a list of the two.
Result<std::pair<std::string, std::string>> ReadMerge(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  }
  return Wrong(Format("model.merges: {}", Shown(merge)), "two tokens");
}

Result<std::shared_ptr<const TokenModel>> ReadBytePairs(
    const Json& model, std::shared_ptr<const Vocabulary> vocabulary) {
  if (Flag(model, "byte_fallback", false)) {
    return Error::Unsupported("model.byte_fallback (SentencePiece's) is not read by Headroom");
  }
  const Json& dropout = Member(model, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0) {
    return Error::Unsupported("model.dropout, which makes tokens random, is not read by Headroom");
  }
  const Json& list = Member(model, "merges");
  if (!list.is_array()) return Wrong("model.merges", "a list");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list.size());
  for (const Json& merge : list) {
    HEADROOM_ASSIGN_OR_RETURN(auto pair, ReadMerge(merge));
    merges.push_back(std::move(pair));
  }
  BytePairOptions options{.fuse_unknown = Flag(model, "fuse_unk", false),
                          .ignore_merges = Flag(model, "ignore_merges", false),
                          .continuing_prefix = Text(model, "continuing_subword_prefix"),
                          .end_suffix = Text(model, "end_of_word_suffix")};
  if (const std::string unknown = Text(model, "unk_token"); !unknown.empty()) {
    options.unknown_id = vocabulary->Find(unknown);
    if (!options.unknown_id) return Wrong(Format("model.unk_token {}", Quoted(unknown)), "a token");
  }
  HEADROOM_ASSIGN_OR_RETURN(auto pairs,
                            BytePairs::Make(std::move(vocabulary), merges, std::move(options)));
  return std::shared_ptr<const TokenModel>(std::move(pairs));
}

Result<std::shared_ptr<const TokenModel>> ReadWordPiece(
    const Json& model, std::shared_ptr<const Vocabulary> vocabulary) {
  const std::string unknown = Text(model, "unk_token", "[UNK]");
  const std::optional<int32_t> unknown_id = vocabulary->Find(unknown);
  if (!unknown_id) return Wrong(Format("model.unk_token {}", Quoted(unknown)), "a token");
  WordPieceOptions options{.unknown_id = *unknown_id,
                           .prefix = Text(model, "continuing_subword_prefix", "##")};
  if (const std::optional<int32_t> most = IdIn(Member(model, "max_input_chars_per_word"))) {
    options.longest_word = static_cast<size_t>(*most);
  }
  return std::shared_ptr<const TokenModel>(
      std::make_shared<WordPiece>(std::move(vocabulary), std::move(options)));
}

Status ReadModel(const Json& model, TokenizerParts& parts) {
  if (!model.is_object()) return Wrong("model", "an object");
  std::string type = Text(model, "type");
  // Early files do not name it.
  if (type.empty()) type = model.contains("merges") ? "BPE" : "WordPiece";
  if (type != "BPE" && type != "WordPiece") {
    return Unknown("model", Member(model, "type"), "WordPiece, BPE");
  }
  HEADROOM_ASSIGN_OR_RETURN(parts.vocabulary, ReadVocabulary(model));
  if (type == "BPE") {
    HEADROOM_ASSIGN_OR_RETURN(parts.model, ReadBytePairs(model, parts.vocabulary));
  } else {
    HEADROOM_ASSIGN_OR_RETURN(parts.model, ReadWordPiece(model, parts.vocabulary));
  }
  const std::string unknown = Text(model, "unk_token");
  if (!unknown.empty()) parts.special.unk = parts.vocabulary->Find(unknown);
  return {};
}

Result<AddedTokens> ReadAddedTokens(const Json& json, const TokenizerParts& parts) {
  if (json.is_null()) return AddedTokens();
  if (!json.is_array()) return Wrong("added_tokens", "a list");
  const int64_t most =
      parts.vocabulary->size() + static_cast<int64_t>(json.size()) + kMostMissingIds;
  std::vector<AddedToken> tokens;
  for (const Json& entry : json) {
    if (!entry.is_object() || !Member(entry, "content").is_string()) {
      return Wrong(Format("added_tokens: {}", Shown(entry)), "a token with its content");
    }
    const std::optional<int32_t> id = IdIn(Member(entry, "id"));
    if (!id || *id >= most) {
      return Error::BadInput(Format("added_tokens: {} has no id, which is a whole number below {}",
                                    Shown(Member(entry, "content")), most));
    }
    const bool special = Flag(entry, "special", false);
    tokens.push_back({.content = Text(entry, "content"),
                      .id = *id,
                      .special = special,
                      .normalized = Flag(entry, "normalized", !special),
                      .single_word = Flag(entry, "single_word", false),
                      .lstrip = Flag(entry, "lstrip", false),
                      .rstrip = Flag(entry, "rstrip", false)});
  }
  return AddedTokens(std::move(tokens), parts.normalizer);
}

// The parts that tokens play by what they are called.
void NameSpecialTokens(TokenizerParts& parts) {
  using Names = std::vector<std::string_view>;
  const std::pair<std::optional<int32_t>*, Names> roles[] = {
      {&parts.special.pad, {"[PAD]", "<pad>", "<|pad|>", "<|endofpad|>"}},
      {&parts.special.cls, {"[CLS]"}},
      {&parts.special.sep, {"[SEP]"}},
      {&parts.special.bos,
       {"<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"}},
      {&parts.special.eos, {"</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"}},
      {&parts.special.unk, {"[UNK]", "<unk>"}},
      {&parts.special.mask, {"[MASK]", "<mask>"}},
  };
  for (const auto& [role, names] : roles) {
    for (const std::string_view name : names) {
      if (!role->has_value()) *role = parts.Id(name);
    }
  }
}

Status ReadParts(const Json& json, TokenizerParts& parts) {
  HEADROOM_RETURN_IF_ERROR(ReadModel(Member(json, "model"), parts));
  HEADROOM_ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(Member(json, "normalizer")));
  HEADROOM_ASSIGN_OR_RETURN(parts.pre_tokenizer, ReadPreTokenizer(Member(json, "pre_tokenizer")));
  HEADROOM_ASSIGN_OR_RETURN(parts.added, ReadAddedTokens(Member(json, "added_tokens"), parts));
  HEADROOM_ASSIGN_OR_RETURN(parts.post_processor,
                            ReadPostProcessor(Member(json, "post_processor"), parts.vocab_size()));
  HEADROOM_ASSIGN_OR_RETURN(parts.decoder, ReadDecoder(Member(json, "decoder")));
  NameSpecialTokens(parts);
  return {};
}

}  // namespace

Result<std::shared_ptr<TokenizerParts>> MakeTokenizerParts(const Json& json,
                                                           std::string_view origin) {
  auto parts = std::make_shared<TokenizerParts>();
  if (const Status read = ReadParts(json, *parts); !read.ok()) {
    return read.error().In(std::string(origin));
  }
  return parts;
}

Result<std::shared_ptr<TokenizerParts>> ParseTokenizerParts(std::string_view text,
                                                            std::string_view origin) {
  std::vector<std::string> ignored;
  HEADROOM_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, origin, kLargestFile, ignored));
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<TokenizerParts> parts,
                            MakeTokenizerParts(json, origin));
  parts->json = text;
  return parts;
}

}  // namespace headroom::engine
