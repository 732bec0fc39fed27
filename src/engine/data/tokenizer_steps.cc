// SPDX-License-Identifier: Apache-2.0
#include "engine/data/tokenizer_steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/data/tokenizer_access.h"

namespace headroom::engine {
namespace {

constexpr size_t kMostSteps = 64;

// What a "normalizer", "pre_tokenizer" … comes to: itself, or the members of its Sequence.
Result<std::vector<Json>> StepsOf(const Json& json, const char* members, std::string_view what) {
  std::vector<Json> steps;
  std::vector<Json> open = {json};
  while (!open.empty()) {
    const Json step = std::move(open.back());
    open.pop_back();
    if (step.is_null()) continue;
    if (!step.is_object()) return Wrong(what, "an object");
    if (Text(step, "type") == "Sequence") {
      const Json& inner = Member(step, members);
      if (!inner.is_array()) return Wrong(Format("{}.{}", what, members), "a list");
      open.insert(open.end(), inner.rbegin(), inner.rend());
    } else {
      steps.push_back(step);
    }
    if (steps.size() + open.size() > kMostSteps) return Wrong(what, "short");
  }
  return steps;
}

Result<SplitBehavior> ReadBehavior(const Json& step, SplitBehavior otherwise) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const Json& behavior = Member(step, "behavior");
  if (behavior.is_null()) return otherwise;
  for (const auto& [name, value] : kBehaviors) {
    if (behavior == name) return value;
  }
  return Unknown("pre_tokenizer behavior", behavior,
                 "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

std::string Escaped(std::string_view literal) {
  std::string expression;
  for (const char c : literal) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (!plain) expression += '\\';
    expression += c;
  }
  return expression;
}

Result<Pattern> ReadPattern(const Json& pattern) {
  if (pattern.is_object()) {
    if (const Json& regex = Member(pattern, "Regex"); regex.is_string()) {
      return Pattern::Compile(regex.get_ref<const std::string&>());
    }
    if (const Json& text = Member(pattern, "String"); text.is_string()) {
      return Pattern::Compile(Escaped(text.get_ref<const std::string&>()));
    }
  }
  return Wrong("pre_tokenizer pattern", "a Regex or a String");
}

Result<PreTokenizerStep> ReadPreTokenizerStep(const Json& step) {
  using Kind = PreTokenizerStep::Kind;
  const std::string type = Text(step, "type");
  PreTokenizerStep read;
  if (type == "BertPreTokenizer") return read;
  if (type == "WhitespaceSplit") {
    read.kind = Kind::kWhitespace;
  } else if (type == "Whitespace") {
    read.kind = Kind::kPattern;
    read.behavior = SplitBehavior::kRemoved;
    read.invert = true;
    HEADROOM_ASSIGN_OR_RETURN(
        read.pattern,
        Pattern::Compile(R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}]+|[^\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\s]+)"));
  } else if (type == "Punctuation") {
    read.kind = Kind::kPunctuation;
    HEADROOM_ASSIGN_OR_RETURN(read.behavior, ReadBehavior(step, SplitBehavior::kIsolated));
  } else if (type == "Digits") {
    read.kind = Kind::kDigits;
    read.behavior = Flag(step, "individual_digits", false) ? SplitBehavior::kIsolated
                                                           : SplitBehavior::kContiguous;
  } else if (type == "ByteLevel") {
    read.kind = Kind::kByteLevel;
    read.add_prefix_space = Flag(step, "add_prefix_space", true);
    if (Flag(step, "use_regex", true)) read.pattern = Gpt2Pattern();
  } else if (type == "Split") {
    read.kind = Kind::kPattern;
    read.invert = Flag(step, "invert", false);
    HEADROOM_ASSIGN_OR_RETURN(read.behavior, ReadBehavior(step, SplitBehavior::kRemoved));
    HEADROOM_ASSIGN_OR_RETURN(read.pattern, ReadPattern(Member(step, "pattern")));
  } else {
    return Unknown("pre_tokenizer", Member(step, "type"),
                   "BertPreTokenizer, ByteLevel, Split, Digits, Punctuation, Whitespace, "
                   "WhitespaceSplit");
  }
  return read;
}

// "special_tokens": {"[CLS]": {"ids": [101], …}}
Result<std::vector<int32_t>> TemplateIds(const Json& processor, const std::string& name,
                                         int64_t vocab_size) {
  const Json& table = Member(processor, "special_tokens");
  const Json& entry = table.is_object() ? Member(table, name.c_str()) : kNull;
  const Json& list = entry.is_object() ? Member(entry, "ids") : kNull;
  std::vector<int32_t> ids;
  for (const Json& value : list.is_array() ? list : Json::array()) {
    const std::optional<int32_t> id = IdIn(value);
    if (!id || *id >= vocab_size) {
      return Wrong(Format("post_processor: id {} of {}", Shown(value), Quoted(name)),
                   "one of the vocabulary");
    }
    ids.push_back(*id);
  }
  if (ids.empty()) return Wrong(Format("post_processor: token {}", Quoted(name)), "explained");
  return ids;
}

Result<std::vector<TemplatePiece>> ReadTemplate(const Json& processor, const char* which,
                                                int64_t vocab_size) {
  const Json& list = Member(processor, which);
  if (!list.is_array() || list.size() > kMostSteps) {
    return Wrong(Format("post_processor.{}", which), "a short list");
  }
  std::vector<TemplatePiece> pieces;
  for (const Json& entry : list) {
    const auto body = [&](const char* key) -> const Json& {
      const Json& value = entry.is_object() ? Member(entry, key) : kNull;
      return value.is_object() ? value : kNull;
    };
    const Json& sequence = body("Sequence");
    const Json& special = body("SpecialToken");
    const Json& either = sequence.is_null() ? special : sequence;
    if (either.is_null()) {
      return Wrong(Format("post_processor.{}: {}", which, Shown(entry)),
                   "a Sequence or a SpecialToken");
    }
    TemplatePiece piece{.type_id = IdIn(Member(either, "type_id")).value_or(0)};
    const std::string id = Text(either, "id");
    if (!special.is_null()) {
      piece.kind = TemplatePiece::Kind::kTokens;
      HEADROOM_ASSIGN_OR_RETURN(piece.ids, TemplateIds(processor, id, vocab_size));
    } else if (id == "B" && std::string_view(which) == "pair") {
      piece.kind = TemplatePiece::Kind::kSecond;
    } else if (id != "A") {
      return Wrong(Format("post_processor.{}: sequence {}", which, Quoted(id)),
                   "A, nor B of a pair");
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// BertProcessing and RobertaProcessing: "cls": ["[CLS]", 101], "sep": ["[SEP]", 102].
Result<PostProcessor> ReadFramed(const Json& processor, bool roberta, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (const char* key : {"cls", "sep"}) {
    const Json& token = Member(processor, key);
    const std::optional<int32_t> id =
        token.is_array() && token.size() == 2 ? IdIn(token[1]) : std::nullopt;
    if (!id || *id >= vocab_size) {
      return Wrong(Format("post_processor.{}", key), "a token and its id");
    }
    ids.push_back(*id);
  }
  using Kind = TemplatePiece::Kind;
  const TemplatePiece cls{.kind = Kind::kTokens, .ids = {ids[0]}};
  const TemplatePiece sep{.kind = Kind::kTokens, .ids = {ids[1]}};
  const int32_t second = roberta ? 0 : 1;
  std::vector<TemplatePiece> pair = {cls, {.kind = Kind::kFirst}, sep};
  std::vector<TemplatePiece> single = pair;
  if (roberta) pair.push_back(sep);
  pair.push_back({.kind = Kind::kSecond, .type_id = second});
  pair.push_back({.kind = Kind::kTokens, .ids = {ids[1]}, .type_id = second});
  return PostProcessor(std::move(single), std::move(pair));
}

}  // namespace

Result<Normalizer> ReadNormalizer(const Json& json) {
  using Kind = NormalizerStep::Kind;
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"BertNormalizer", Kind::kBert},
                                                          {"NFC", Kind::kNfc},
                                                          {"NFD", Kind::kNfd},
                                                          {"NFKC", Kind::kNfkc},
                                                          {"NFKD", Kind::kNfkd},
                                                          {"Lowercase", Kind::kLowercase},
                                                          {"StripAccents", Kind::kStripAccents}};
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<Json> list,
                            StepsOf(json, "normalizers", "normalizer"));
  std::vector<NormalizerStep> steps;
  for (const Json& step : list) {
    const std::string type = Text(step, "type");
    const auto kind =
        std::ranges::find(kKinds, type, [](const auto& entry) { return entry.first; });
    if (kind == std::end(kKinds)) {
      return Unknown("normalizer", Member(step, "type"),
                     "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents");
    }
    const bool lowercase = Flag(step, "lowercase", true);
    steps.push_back({.kind = kind->second,
                     .clean_text = Flag(step, "clean_text", true),
                     .handle_chinese_chars = Flag(step, "handle_chinese_chars", true),
                     .strip_accents = Flag(step, "strip_accents", lowercase),
                     .lowercase = lowercase});
  }
  return Normalizer(std::move(steps));
}

Result<PreTokenizer> ReadPreTokenizer(const Json& json) {
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<Json> list,
                            StepsOf(json, "pretokenizers", "pre_tokenizer"));
  std::vector<PreTokenizerStep> steps;
  for (const Json& step : list) {
    HEADROOM_ASSIGN_OR_RETURN(PreTokenizerStep read, ReadPreTokenizerStep(step));
    steps.push_back(std::move(read));
  }
  return PreTokenizer(std::move(steps));
}

Result<PostProcessor> ReadPostProcessor(const Json& json, int64_t vocab_size) {
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<Json> steps,
                            StepsOf(json, "processors", "post_processor"));
  PostProcessor read;
  int framing = 0;
  for (const Json& step : steps) {
    const std::string type = Text(step, "type");
    if (type == "ByteLevel") continue;  // about offsets, which nobody asks for here
    if (++framing > 1) {
      return Error::Unsupported("post_processor: more than one step that adds tokens");
    }
    if (type == "TemplateProcessing") {
      HEADROOM_ASSIGN_OR_RETURN(auto single, ReadTemplate(step, "single", vocab_size));
      HEADROOM_ASSIGN_OR_RETURN(auto pair, ReadTemplate(step, "pair", vocab_size));
      read = PostProcessor(std::move(single), std::move(pair));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      HEADROOM_ASSIGN_OR_RETURN(read, ReadFramed(step, type == "RobertaProcessing", vocab_size));
    } else {
      return Unknown("post_processor", Member(step, "type"),
                     "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel");
    }
  }
  return read;
}

Result<TokenDecoder> ReadDecoder(const Json& json) {
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<Json> steps, StepsOf(json, "decoders", "decoder"));
  TokenDecoder decoder;
  if (steps.empty()) return decoder;
  const std::string type = Text(steps[0], "type");
  if (steps.size() > 1 || (type != "WordPiece" && type != "ByteLevel")) {
    return Unknown("decoder", Member(steps[0], "type"), "WordPiece, ByteLevel, each alone");
  }
  decoder.kind =
      type == "WordPiece" ? TokenDecoder::Kind::kWordPiece : TokenDecoder::Kind::kByteLevel;
  decoder.prefix = Text(steps[0], "prefix", "##");
  decoder.cleanup = Flag(steps[0], "cleanup", true);
  return decoder;
}

}  // namespace headroom::engine
