// SPDX-License-Identifier: Apache-2.0
//
// The rules, those for unknown characters among them, are those of tokenizers 0.23,
// src/models/bpe/model.rs and word.rs.
#include "engine/data/byte_bpe.h"

#include <algorithm>

#include "base/format.h"
#include "engine/data/unicode.h"
#include "model/json_text.h"

namespace headroom::engine {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A merge that two symbols could make.
struct Candidate {
  int32_t rank = 0;
  int32_t at = 0;  // the left one
  int32_t id = 0;

  // For a heap whose top is the merge learnt first, and of those the leftmost.
  bool operator<(const Candidate& other) const {
    return std::pair(rank, at) > std::pair(other.rank, other.at);
  }
};

}  // namespace

// In a list that merges shorten; a symbol merged into its left neighbour has the id -1.
struct BytePairs::Symbol {
  int32_t id = 0;
  int32_t previous = 0;
  int32_t next = 0;
};

BytePairs::BytePairs(std::shared_ptr<const Vocabulary> vocabulary, BytePairOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

Result<std::shared_ptr<const BytePairs>> BytePairs::Make(
    std::shared_ptr<const Vocabulary> vocabulary,
    const std::vector<std::pair<std::string, std::string>>& merges, BytePairOptions options) {
  const std::shared_ptr<BytePairs> model(new BytePairs(std::move(vocabulary), std::move(options)));
  const std::string& prefix = model->options_.continuing_prefix;
  int32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const size_t skipped = right.starts_with(prefix) ? prefix.size() : 0;
    const std::string whole = left + right.substr(skipped);
    int32_t ids[3] = {};
    size_t filled = 0;
    for (const std::string* token : {&left, &right, &whole}) {
      const std::optional<int32_t> id = model->vocabulary_->Find(*token);
      if (!id) {
        return Error::BadInput(Format("merge {} of {} and {}: {} is no token of the vocabulary",
                                      rank, Quoted(left), Quoted(right), Quoted(*token)));
      }
      ids[filled++] = *id;
    }
    model->merges_.insert_or_assign(PairKey(ids[0], ids[1]), Merge{rank++, ids[2]});
  }
  return std::shared_ptr<const BytePairs>(model);
}

const BytePairs::Merge* BytePairs::MergeOf(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<BytePairs::Symbol> BytePairs::Characters(std::string_view word) const {
  std::vector<Symbol> symbols;
  std::string token;
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    NextCodePoint(word, at);
    token = begin > 0 ? options_.continuing_prefix : "";
    token += word.substr(begin, at - begin);
    if (at == word.size()) token += options_.end_suffix;
    std::optional<int32_t> id = vocabulary_->Find(token);
    const bool unknown = !id;
    if (unknown && !options_.unknown_id) continue;
    const bool fused = unknown && after_unknown && options_.fuse_unknown;
    after_unknown = unknown;
    if (fused) continue;
    const auto place = static_cast<int32_t>(symbols.size());
    symbols.push_back({unknown ? *options_.unknown_id : *id, place - 1, place + 1});
  }
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

void BytePairs::MergeAll(std::vector<Symbol>& symbols) const {
  const auto symbol = [&](int32_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  std::vector<Candidate> heap;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbol(left).next < 0) return;
    const Merge* const merge = MergeOf(symbol(left).id, symbol(symbol(left).next).id);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, left, merge->id});
    std::push_heap(heap.begin(), heap.end());
  };
  for (int32_t at = 0; at < std::ssize(symbols); ++at) consider(at);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbol(best.at);
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    // An earlier merge may have taken one of the two.
    const Merge* const merge = MergeOf(left.id, right.id);
    if (merge == nullptr || merge->rank != best.rank) continue;
    left.id = best.id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.at;
    consider(left.previous);
    consider(best.at);
  }
}

void BytePairs::Append(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const std::optional<int32_t> id = vocabulary_->Find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  std::vector<Symbol> symbols = Characters(word);
  MergeAll(symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

}  // namespace headroom::engine
