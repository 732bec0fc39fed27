// SPDX-License-Identifier: Apache-2.0
//
// The rules are those of tokenizers 0.23, src/tokenizer/added_vocabulary.rs.
#include "engine/data/added_tokens.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/data/unicode.h"

namespace headroom::engine {
namespace {

// Where the character before `at` begins. REQUIRES: at > 0.
size_t PreviousCharacter(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80);
  return at;
}

bool WordEndsAt(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t begin = PreviousCharacter(text, at);
  return IsWordCharacter(NextCodePoint(text, begin));
}

bool WordBeginsAt(std::string_view text, size_t at) {
  return at < text.size() && IsWordCharacter(NextCodePoint(text, at));
}

size_t SkipSpacesBefore(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const size_t begin = PreviousCharacter(text, at);
    size_t next = begin;
    if (begin < least || !IsWhitespace(NextCodePoint(text, next))) break;
    at = begin;
  }
  return at;
}

size_t SkipSpacesBehind(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!IsWhitespace(NextCodePoint(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(std::move(tokens)), raw_(256), normalized_(256) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    by_id_.insert_or_assign(token.id, i);
    std::string text = token.normalized ? normalizer.Apply(token.content) : token.content;
    if (text.empty()) continue;
    Table& table = token.normalized ? normalized_ : raw_;
    table[static_cast<unsigned char>(text[0])].push_back({std::move(text), i});
  }
  for (Table* table : {&raw_, &normalized_}) {
    for (std::vector<Sought>& sought : *table) {
      std::ranges::stable_sort(sought, std::greater<>(),
                               [](const Sought& entry) { return entry.text.size(); });
    }
  }
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::Find(std::string_view content) const {
  const auto found = std::ranges::find(tokens_, content, &AddedToken::content);
  return found == tokens_.end() ? nullptr : &*found;
}

const AddedTokens::Sought* AddedTokens::FindAt(std::string_view text, size_t at,
                                               const Table& table) {
  for (const Sought& sought : table[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at).starts_with(sought.text)) return &sought;
  }
  return nullptr;
}

std::vector<TextPart> AddedTokens::Cut(std::string_view text, const Table& table) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !table.empty();) {
    const Sought* const found = FindAt(text, at, table);
    if (found == nullptr) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found->token];
    size_t begin = at;
    size_t end = at + found->text.size();
    at = end;
    if (token.single_word && (WordEndsAt(text, begin) || WordBeginsAt(text, end))) continue;
    // What an rstrip before it has taken along may reach beyond its start.
    if (begin < done) continue;
    if (token.lstrip) begin = SkipSpacesBefore(text, begin, done);
    if (token.rstrip) end = SkipSpacesBehind(text, end);
    if (begin > done) parts.push_back({text.substr(done, begin - done), {}});
    parts.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), {}});
  return parts;
}

}  // namespace headroom::engine
