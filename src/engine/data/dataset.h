// SPDX-License-Identifier: Apache-2.0
//
// Dataset: the examples a model learns from, as token ids, all of them in memory.
//
//   task                    ids            labels                          decoder_ids
//   sequence-classification a text         one class
//   token-classification    a text         one per token, or -100
//   causal-lm               a text         the ids themselves (the batch shifts them)
//   masked-lm               a text         the ids themselves (the batch masks)
//   seq2seq-lm              the source     the target and the end token    the start token and the
//                                                                          target
//
// What loaders refuse, they refuse with file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/recipe.h"

namespace headroom::engine {

class Tokenizer;

// The label of what does not count in the loss: PyTorch's ignore_index.
inline constexpr int32_t kIgnoredLabel = -100;

struct Example {
  std::vector<int32_t> ids = {};       // at least one
  std::vector<int32_t> type_ids = {};  // one per id, or empty: all 0
  std::vector<int32_t> labels = {};
  std::vector<int32_t> decoder_ids = {};  // as many as labels; empty without a decoder

  bool operator==(const Example&) const = default;
};

class Dataset {
 public:
  Dataset() = default;
  explicit Dataset(std::vector<Example> examples) : examples_(std::move(examples)) {}

  int64_t size() const { return static_cast<int64_t>(examples_.size()); }
  const Example& operator[](int64_t index) const { return examples_[static_cast<size_t>(index)]; }

  // The classes' names, by id; empty where the file holds numbers.
  const std::vector<std::string>& label_names() const { return label_names_; }
  void set_label_names(std::vector<std::string> names) { label_names_ = std::move(names); }

  int64_t LongestSequence() const;         // ids of the longest example; 0 without any
  int64_t LongestDecoderSequence() const;  // decoder_ids
  int32_t LargestId() const;               // among ids and decoder_ids; -1 without any
  int32_t LargestLabel() const;            // -1 without any

 private:
  std::vector<Example> examples_;
  std::vector<std::string> label_names_;
};

// What a model can take; 0: any number.
struct ModelLimits {
  Task task = Task::kSequenceClassification;
  int64_t vocabulary = 0;
  int64_t classes = 0;  // of classifications
  int64_t types = 0;    // of type_ids
  int64_t sequence = 0;
  int64_t decoder_sequence = 0;
};

// Fails on the first example that is none for such a model: labels of another task, ids beyond the
// vocabulary, more tokens than positions. BatchStream and the ops take it for granted.
Status CheckExamples(const Dataset& dataset, const ModelLimits& limits);

struct SyntheticOptions {
  int64_t rows = 512;
  int64_t sequence = 512;
  int64_t decoder_sequence = 0;  // 0: as `sequence`
  int64_t vocabulary = 30'000;
  Task task = Task::kSequenceClassification;
  uint64_t seed = 42;
};

// The data of Hugging Face's memory pages: ids drawn from 100 … 29,999 (of the vocabulary alone
// where it is smaller), class 0 everywhere; language models learn the ids themselves.
// REQUIRES: every count is positive.
Dataset SyntheticDataset(const SyntheticOptions& options);

// Two parts, drawn by `seed`: the second has `fraction` of the examples (rounded, at least one
// where there are two), in the order they had.
std::pair<Dataset, Dataset> Split(const Dataset& dataset, double fraction, uint64_t seed);

// A text for language modelling, or a folder of .txt files (in the order of their names): the
// tokens of all of them, an end token behind each, cut every `sequence` tokens. The last piece is
// shorter. For kMaskedLm each piece stands between the tokenizer's own tokens ([CLS] … [SEP]),
// which count. REQUIRES: sequence is positive.
Result<Dataset> LoadText(const std::filesystem::path& path, const Tokenizer& tokenizer,
                         int64_t sequence, Task task = Task::kCausalLm);

// Lines "text<TAB>label" or "text<TAB>text<TAB>label", all alike; a first line that ends in "label"
// is a heading. Labels are numbers, or else names whose ids are the order they are first seen in;
// `names` fixes that order instead (an evaluation set's is its training set's), and refuses others.
// Texts are cut to `max_length` tokens. Empty lines are left out.
Result<Dataset> LoadClassificationTsv(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                      int64_t max_length,
                                      const std::vector<std::string>& names = {});

// Lines "source<TAB>target". The source ends with the end token (`end`), the decoder's input starts
// with `start`; each side is cut to `max_length` tokens with these.
Result<Dataset> LoadTranslationTsv(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                   int64_t max_length, int32_t start, int32_t end);

// Lines of JSON: {"input_ids": [5, 17, …], "labels": 1}, of Hugging Face's names: token_type_ids,
// labels (a number or a list), decoder_input_ids, attention_mask (what it ends with zeros is
// padding, and is cut off). Without labels they are the ids. Fails on ids that are none of the
// vocabulary, naming file and line.
Result<Dataset> LoadPretokenised(const std::filesystem::path& path, int64_t vocabulary);

}  // namespace headroom::engine
