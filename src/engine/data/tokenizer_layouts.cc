// SPDX-License-Identifier: Apache-2.0
#include "engine/data/tokenizer_layouts.h"

#include <utility>

#include "engine/data/tokenizer_access.h"

namespace headroom::engine {
namespace {

Json AddedTokenJson(const std::string& content, const Json& id, bool lstrip = false) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", lstrip},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json PieceJson(const char* kind, const std::string& id, int type_id) {
  return {{kind, {{"id", id}, {"type_id", type_id}}}};
}

Json TemplateTokenJson(const std::string& token, const Json& id) {
  return {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}};
}

Json ByteLevelStep(bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

Json Frame() {
  return {{"version", "1.0"},      {"truncation", nullptr},
          {"padding", nullptr},    {"added_tokens", Json::array()},
          {"normalizer", nullptr}, {"post_processor", nullptr}};
}

}  // namespace

Result<Json> BertJson(const Json& vocabulary, const BertLayout& layout) {
  for (const char* token : {"[UNK]", "[CLS]", "[SEP]"}) {
    if (!vocabulary.contains(token)) {
      return Error::BadInput(Format("lacks the token {}, which BERT's tokenizer needs", token));
    }
  }
  Json json = Frame();
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (!vocabulary.contains(token)) continue;
    json["added_tokens"].push_back(AddedTokenJson(token, vocabulary[token]));
  }
  json["normalizer"] = {
      {"type", "BertNormalizer"},
      {"clean_text", true},
      {"handle_chinese_chars", layout.chinese_chars},
      {"strip_accents", layout.strip_accents ? Json(*layout.strip_accents) : Json()},
      {"lowercase", layout.lowercase}};
  json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  const Json single = {PieceJson("SpecialToken", "[CLS]", 0), PieceJson("Sequence", "A", 0),
                       PieceJson("SpecialToken", "[SEP]", 0)};
  Json pair = single;
  pair.push_back(PieceJson("Sequence", "B", 1));
  pair.push_back(PieceJson("SpecialToken", "[SEP]", 1));
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", single},
                            {"pair", pair},
                            {"special_tokens",
                             {{"[CLS]", TemplateTokenJson("[CLS]", vocabulary["[CLS]"])},
                              {"[SEP]", TemplateTokenJson("[SEP]", vocabulary["[SEP]"])}}}};
  json["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  json["model"] = {{"type", "WordPiece"},
                   {"unk_token", "[UNK]"},
                   {"continuing_subword_prefix", "##"},
                   {"max_input_chars_per_word", 100},
                   {"vocab", vocabulary}};
  return json;
}

Result<Json> ByteLevelJson(Json vocabulary, Json merges, const ByteLevelLayout& layout) {
  Json json = Frame();
  for (const std::string& token : layout.special_tokens) {
    if (!vocabulary.contains(token)) continue;
    // RobertaTokenizer's mask stands for a word with the space before it.
    const bool lstrip = layout.roberta && token == "<mask>";
    json["added_tokens"].push_back(AddedTokenJson(token, vocabulary[token], lstrip));
  }
  json["pre_tokenizer"] = ByteLevelStep(layout.add_prefix_space);
  json["decoder"] = ByteLevelStep(true);
  if (layout.roberta) {
    for (const char* token : {"<s>", "</s>"}) {
      if (!vocabulary.contains(token)) {
        return Error::BadInput(
            Format("lacks the token {}, which RoBERTa's tokenizer needs", token));
      }
    }
    json["post_processor"] = {{"type", "RobertaProcessing"},
                              {"sep", Json::array({"</s>", vocabulary["</s>"]})},
                              {"cls", Json::array({"<s>", vocabulary["<s>"]})},
                              {"trim_offsets", true},
                              {"add_prefix_space", layout.add_prefix_space}};
  }
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", std::move(vocabulary)},
                   {"merges", std::move(merges)}};
  return json;
}

}  // namespace headroom::engine
