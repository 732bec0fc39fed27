// SPDX-License-Identifier: Apache-2.0
#include "engine/data/tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/data/tokenizer_parts.h"
#include "engine/data/unicode.h"

namespace headroom::engine {

std::optional<int32_t> TokenizerParts::Id(std::string_view token) const {
  if (const AddedToken* const found = added.Find(token)) return found->id;
  return vocabulary->Find(token);
}

std::string_view TokenizerParts::Token(int32_t id) const {
  if (const AddedToken* const found = added.Find(id)) return found->content;
  return vocabulary->Token(id);
}

int64_t TokenizerParts::vocab_size() const {
  int64_t size = vocabulary->size();
  for (const AddedToken& token : added.tokens()) size = std::max<int64_t>(size, token.id + 1);
  return size;
}

Result<Tokenizer> Tokenizer::Parse(std::string_view json, std::string_view origin) {
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<TokenizerParts> parts,
                            ParseTokenizerParts(json, origin));
  return Tokenizer(std::move(parts));
}

Status Tokenizer::AppendNormalized(std::string_view text, std::vector<int32_t>& ids) const {
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                            parts_->pre_tokenizer.Split(text));
  for (const std::string& word : words) parts_->model->Append(word, ids);
  return {};
}

Result<std::vector<int32_t>> Tokenizer::EncodeText(std::string_view text) const {
  const std::string valid = ToValidUtf8(text);
  std::vector<int32_t> ids;
  for (const TextPart& raw : parts_->added.CutRaw(valid)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      continue;
    }
    const std::string normalized = parts_->normalizer.Apply(raw.text);
    for (const TextPart& part : parts_->added.CutNormalized(normalized)) {
      if (part.id) {
        ids.push_back(*part.id);
      } else {
        HEADROOM_RETURN_IF_ERROR(AppendNormalized(part.text, ids));
      }
    }
  }
  return ids;
}

Result<Encoding> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  HEADROOM_ASSIGN_OR_RETURN(std::vector<int32_t> first, EncodeText(text));
  std::vector<int32_t> second;
  std::vector<int32_t>* const pair = options.pair ? &second : nullptr;
  if (options.pair) {
    HEADROOM_ASSIGN_OR_RETURN(second, EncodeText(*options.pair));
  }
  if (options.max_length > 0) {
    const int64_t around =
        options.add_special_tokens ? parts_->post_processor.AddedTo(options.pair.has_value()) : 0;
    TruncateLongestFirst(first, pair, std::max<int64_t>(0, options.max_length - around));
  }
  return parts_->post_processor.Apply(first, pair, options.add_special_tokens);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, SpecialTokens special) const {
  std::vector<std::string_view> tokens;
  for (const int32_t id : ids) {
    const std::string_view token = parts_->Token(id);
    if (token.empty()) continue;
    const AddedToken* const added = parts_->added.Find(id);
    if (special == SpecialTokens::kSkip && added != nullptr && added->special) continue;
    tokens.push_back(token);
  }
  return parts_->decoder.Decode(tokens);
}

std::optional<int32_t> Tokenizer::Id(std::string_view token) const { return parts_->Id(token); }

std::string_view Tokenizer::Token(int32_t id) const { return parts_->Token(id); }

const SpecialIds& Tokenizer::special() const { return parts_->special; }

std::vector<int32_t> Tokenizer::AllSpecialIds() const {
  std::vector<int32_t> ids;
  for (const AddedToken& token : parts_->added.tokens()) {
    if (token.special) ids.push_back(token.id);
  }
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

int64_t Tokenizer::vocab_size() const { return parts_->vocab_size(); }

}  // namespace headroom::engine
