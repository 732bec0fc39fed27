// SPDX-License-Identifier: Apache-2.0
#include "engine/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/format.h"
#include "engine/data/random.h"

namespace headroom::engine {
namespace {

// What a generator decides about: the second word of its key.
enum class Draw : uint64_t { kSynthetic = 3, kSplit = 4 };

// The documents' np.random.randint(100, 30000); a vocabulary under 100 is drawn from as a whole.
constexpr int64_t kFirstId = 100;
constexpr int64_t kEndId = 30'000;

std::vector<int32_t> SyntheticIds(Random& random, int64_t count, int64_t vocabulary) {
  const int64_t end = std::min(vocabulary, kEndId);
  const int64_t first = end > kFirstId ? kFirstId : 0;
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(first) +
         static_cast<int32_t>(random.Below(static_cast<uint64_t>(end - first)));
  }
  return ids;
}

// Fails on the first of `values` that is not below `limit`.
Status CheckBelow(std::span<const int32_t> values, int64_t limit, std::string_view what,
                  std::string_view of) {
  const bool labels = what == "label";
  for (const int32_t value : values) {
    if (labels && value == kIgnoredLabel) continue;
    if (value >= 0 && (limit == 0 || value < limit)) continue;
    return Error::BadInput(Format("{} {} is beyond the model's {} {}", what, value, limit, of));
  }
  return {};
}

Status CheckLength(size_t length, int64_t limit, std::string_view what) {
  if (limit == 0 || static_cast<int64_t>(length) <= limit) return {};
  return Error::BadInput(
      Format("{} tokens{}, more than the {} that are taken", length, what, limit));
}

Status CheckLabels(const Example& example, const ModelLimits& limits) {
  const bool one_class =
      limits.task == Task::kSequenceClassification || limits.task == Task::kImageClassification;
  const bool decodes = limits.task == Task::kSeq2SeqLm;
  if (decodes != !example.decoder_ids.empty()) {
    return Error::BadInput(Format("{} decoder input, which {} {}", decodes ? "has no" : "has a",
                                  Name(limits.task), decodes ? "needs" : "does not take"));
  }
  const size_t outputs = one_class ? 1 : decodes ? example.decoder_ids.size() : example.ids.size();
  if (example.labels.size() != outputs) {
    return Error::BadInput(Format("has {} labels, where {} needs {}", example.labels.size(),
                                  Name(limits.task), outputs));
  }
  if (one_class || limits.task == Task::kTokenClassification) {
    return CheckBelow(example.labels, limits.classes, "label", "classes");
  }
  return CheckBelow(example.labels, limits.vocabulary, "label", "tokens");
}

Status CheckExample(const Example& example, const ModelLimits& limits) {
  if (example.ids.empty()) return Error::BadInput("holds no token");
  HEADROOM_RETURN_IF_ERROR(CheckBelow(example.ids, limits.vocabulary, "token", "tokens"));
  HEADROOM_RETURN_IF_ERROR(CheckBelow(example.decoder_ids, limits.vocabulary, "token", "tokens"));
  HEADROOM_RETURN_IF_ERROR(CheckBelow(example.type_ids, limits.types, "type", "types"));
  HEADROOM_RETURN_IF_ERROR(CheckLength(example.ids.size(), limits.sequence, ""));
  HEADROOM_RETURN_IF_ERROR(
      CheckLength(example.decoder_ids.size(), limits.decoder_sequence, " for the decoder"));
  return CheckLabels(example, limits);
}

int32_t Largest(std::span<const int32_t> values) {
  return values.empty() ? -1 : std::ranges::max(values);
}

}  // namespace

int64_t Dataset::LongestSequence() const {
  int64_t longest = 0;
  for (const Example& example : examples_) longest = std::max(longest, std::ssize(example.ids));
  return longest;
}

int64_t Dataset::LongestDecoderSequence() const {
  int64_t longest = 0;
  for (const Example& example : examples_) {
    longest = std::max(longest, std::ssize(example.decoder_ids));
  }
  return longest;
}

int32_t Dataset::LargestId() const {
  int32_t largest = -1;
  for (const Example& example : examples_) {
    largest = std::max({largest, Largest(example.ids), Largest(example.decoder_ids)});
  }
  return largest;
}

int32_t Dataset::LargestLabel() const {
  int32_t largest = -1;
  for (const Example& example : examples_) largest = std::max(largest, Largest(example.labels));
  return largest;
}

Status CheckExamples(const Dataset& dataset, const ModelLimits& limits) {
  if (dataset.size() == 0) return Error::BadInput("the dataset holds no example");
  for (int64_t i = 0; i < dataset.size(); ++i) {
    if (const Status status = CheckExample(dataset[i], limits); !status.ok()) {
      return status.error().In(Format("example {} of {}", i + 1, dataset.size()));
    }
  }
  return {};
}

Dataset SyntheticDataset(const SyntheticOptions& options) {
  HEADROOM_CHECK(options.rows > 0 && options.sequence > 0 && options.vocabulary > 0,
                 "a count that is not positive");
  const int64_t decoder_sequence =
      options.decoder_sequence > 0 ? options.decoder_sequence : options.sequence;
  std::vector<Example> examples(static_cast<size_t>(options.rows));
  Random random{options.seed, static_cast<uint64_t>(Draw::kSynthetic)};
  for (Example& example : examples) {
    example.ids = SyntheticIds(random, options.sequence, options.vocabulary);
    switch (options.task) {
      case Task::kSequenceClassification:
      case Task::kImageClassification:
        example.labels = {0};
        break;
      case Task::kTokenClassification:
        example.labels.assign(example.ids.size(), 0);
        break;
      case Task::kCausalLm:
      case Task::kMaskedLm:
        example.labels = example.ids;
        break;
      case Task::kSeq2SeqLm:
        example.decoder_ids = SyntheticIds(random, decoder_sequence, options.vocabulary);
        example.labels = example.decoder_ids;
        break;
    }
  }
  return Dataset(std::move(examples));
}

std::pair<Dataset, Dataset> Split(const Dataset& dataset, double fraction, uint64_t seed) {
  HEADROOM_CHECK(fraction >= 0 && fraction <= 1, "a fraction outside 0 to 1");
  auto second = static_cast<int64_t>(std::llround(fraction * static_cast<double>(dataset.size())));
  if (fraction > 0 && fraction < 1 && dataset.size() > 1) {
    second = std::clamp<int64_t>(second, 1, dataset.size() - 1);
  }
  std::vector<char> chosen(static_cast<size_t>(dataset.size()), 0);
  std::fill_n(chosen.begin(), second, char{1});
  Random random{seed, static_cast<uint64_t>(Draw::kSplit)};
  random.Shuffle(std::span(chosen));
  std::vector<Example> parts[2];
  for (int64_t i = 0; i < dataset.size(); ++i) {
    parts[static_cast<size_t>(chosen[static_cast<size_t>(i)])].push_back(dataset[i]);
  }
  std::pair<Dataset, Dataset> split{Dataset(std::move(parts[0])), Dataset(std::move(parts[1]))};
  split.first.set_label_names(dataset.label_names());
  split.second.set_label_names(dataset.label_names());
  return split;
}

}  // namespace headroom::engine
