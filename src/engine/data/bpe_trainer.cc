// SPDX-License-Identifier: Apache-2.0
//
// The order in which pairs merge, ties included, is that of tokenizers 0.23, src/models/bpe/
// trainer.rs with min_frequency 2: the same lines give the same vocabulary.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/format.h"
#include "engine/data/pre_tokenizer.h"
#include "engine/data/tokenizer.h"
#include "engine/data/tokenizer_layouts.h"
#include "engine/data/tokenizer_parts.h"
#include "engine/data/unicode.h"

namespace headroom::engine {
namespace {

constexpr int64_t kLargestVocabulary = 1'000'000;
constexpr int64_t kLeastCount = 2;

struct Pair {
  int32_t left = 0;
  int32_t right = 0;

  auto operator<=>(const Pair&) const = default;
};

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key =
        uint64_t{static_cast<uint32_t>(pair.left)} << 32 | static_cast<uint32_t>(pair.right);
    return static_cast<size_t>((key ^ (key >> 29)) * 0x9E3779B97F4A7C15U);
  }
};

// A pair with the count it had when it was queued.
struct Queued {
  int64_t count = 0;
  Pair pair;

  bool operator<(const Queued& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct Word {
  std::vector<int32_t> symbols;
  int64_t count = 0;
};

class BpeTrainer {
 public:
  explicit BpeTrainer(const std::vector<std::string>& special_tokens) {
    for (const std::string& token : special_tokens) AddToken(token);
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      const auto character = static_cast<char>(byte);
      bytes.push_back(BytesToCharacters({&character, 1}));
    }
    std::ranges::sort(bytes);  // the order of UTF-8 is that of code points
    for (const std::string& byte : bytes) AddToken(byte);
  }

  int64_t size() const { return std::ssize(tokens_); }

  Status Count(std::span<const std::string> lines);
  void Learn(int64_t vocab_size);

  nlohmann::json Vocabulary() const {
    nlohmann::json vocabulary = nlohmann::json::object();
    for (size_t id = 0; id < tokens_.size(); ++id) vocabulary[tokens_[id]] = id;
    return vocabulary;
  }
  nlohmann::json Merges() const {
    nlohmann::json merges = nlohmann::json::array();
    for (const Pair& merge : merges_) {
      merges.push_back(Token(merge.left) + " " + Token(merge.right));
    }
    return merges;
  }

 private:
  int32_t AddToken(const std::string& token) {
    const auto [place, added] = ids_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (added) tokens_.push_back(token);
    return place->second;
  }
  const std::string& Token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }

  void CountPairs();
  void Queue(const Pair& pair) { queue_.push({counts_[pair], pair}); }
  void Merge(const Pair& pair, int32_t whole);
  void MergeIn(size_t word, const Pair& pair, int32_t whole, std::vector<Pair>& risen);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Pair> merges_;
  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::unordered_set<size_t>, PairHash> words_with_;
  std::priority_queue<Queued> queue_;
};

Status BpeTrainer::Count(std::span<const std::string> lines) {
  const PreTokenizer cut({{.kind = PreTokenizerStep::Kind::kByteLevel, .pattern = Gpt2Pattern()}});
  std::unordered_map<std::string, size_t> places;
  for (const std::string& line : lines) {
    HEADROOM_ASSIGN_OR_RETURN(const std::vector<std::string> pieces, cut.Split(ToValidUtf8(line)));
    for (const std::string& piece : pieces) {
      const auto [place, added] = places.emplace(piece, words_.size());
      if (added) {
        Word& word = words_.emplace_back();
        for (size_t at = 0; at < piece.size();) {
          const size_t begin = at;
          NextCodePoint(piece, at);
          word.symbols.push_back(ids_.at(piece.substr(begin, at - begin)));
        }
      }
      ++words_[place->second].count;
    }
  }
  CountPairs();
  return {};
}

void BpeTrainer::CountPairs() {
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::vector<int32_t>& symbols = words_[i].symbols;
    for (size_t at = 1; at < symbols.size(); ++at) {
      const Pair pair{symbols[at - 1], symbols[at]};
      counts_[pair] += words_[i].count;
      words_with_[pair].insert(i);
    }
  }
  for (const auto& [pair, count] : counts_) queue_.push({count, pair});
}

void BpeTrainer::Learn(int64_t vocab_size) {
  while (size() < vocab_size && !queue_.empty()) {
    const Queued top = queue_.top();
    queue_.pop();
    const int64_t count = counts_[top.pair];
    if (count != top.count) {
      if (count >= kLeastCount) Queue(top.pair);
      continue;
    }
    if (count < kLeastCount) break;
    const int32_t whole = AddToken(Token(top.pair.left) + Token(top.pair.right));
    merges_.push_back(top.pair);
    Merge(top.pair, whole);
  }
}

void BpeTrainer::Merge(const Pair& pair, int32_t whole) {
  const std::unordered_set<size_t> words = std::move(words_with_[pair]);
  words_with_.erase(pair);
  std::vector<Pair> risen;
  for (const size_t word : words) MergeIn(word, pair, whole, risen);
  counts_.erase(pair);
  std::ranges::sort(risen);
  const auto repeated = std::ranges::unique(risen);
  risen.erase(repeated.begin(), repeated.end());
  for (const Pair& changed : risen) Queue(changed);
}

void BpeTrainer::MergeIn(size_t word, const Pair& pair, int32_t whole, std::vector<Pair>& risen) {
  std::vector<int32_t>& symbols = words_[word].symbols;
  const int64_t count = words_[word].count;
  const auto falls = [&](int32_t left, int32_t right) { counts_[{left, right}] -= count; };
  const auto rises = [&](int32_t left, int32_t right) {
    counts_[{left, right}] += count;
    words_with_[{left, right}].insert(word);
    risen.push_back({left, right});
  };
  size_t kept = 0;
  for (size_t at = 0; at < symbols.size(); ++at) {
    const bool merges =
        symbols[at] == pair.left && at + 1 < symbols.size() && symbols[at + 1] == pair.right;
    if (!merges) {
      symbols[kept++] = symbols[at];
      continue;
    }
    if (kept > 0) {
      falls(symbols[kept - 1], pair.left);
      rises(symbols[kept - 1], whole);
    }
    ++at;
    if (at + 1 < symbols.size()) {
      falls(pair.right, symbols[at + 1]);
      rises(whole, symbols[at + 1]);
    }
    symbols[kept++] = whole;
  }
  symbols.resize(kept);
}

}  // namespace

Result<Tokenizer> TrainByteBpe(std::span<const std::string> lines, int64_t vocab_size,
                               const std::vector<std::string>& special_tokens) {
  BpeTrainer trainer(special_tokens);
  if (vocab_size < trainer.size() || vocab_size > kLargestVocabulary) {
    return Error::BadInput(
        Format("a vocabulary of {} tokens: bytes and special tokens are {}, and {} the most that "
               "is learnt",
               vocab_size, trainer.size(), kLargestVocabulary));
  }
  HEADROOM_RETURN_IF_ERROR(trainer.Count(lines));
  trainer.Learn(vocab_size);
  HEADROOM_ASSIGN_OR_RETURN(
      const nlohmann::json json,
      ByteLevelJson(trainer.Vocabulary(), trainer.Merges(), {.special_tokens = special_tokens}));
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<TokenizerParts> parts,
                            MakeTokenizerParts(json, "trained tokenizer"));
  parts->json = json.dump();
  return Tokenizer(std::move(parts));
}

}  // namespace headroom::engine
