// SPDX-License-Identifier: Apache-2.0
#include "engine/data/batches.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/data/random.h"

namespace headroom::engine {
namespace {

// What a generator decides about: the second word of its key.
enum class Draw : uint64_t { kOrder = 1, kMask = 2 };

int64_t RoundUpTo(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t LengthOf(const Example& example) {
  return static_cast<int64_t>(example.ids.size() + example.decoder_ids.size());
}

bool HasOneLabel(Task task) {
  return task == Task::kSequenceClassification || task == Task::kImageClassification;
}

// Part `part` of `parts` of the largest length.
int64_t BucketLength(int64_t largest, int part, int parts, int64_t multiple) {
  if (part == parts) return largest;
  const int64_t share = (largest * part + parts - 1) / parts;
  return std::min(RoundUpTo(share, multiple), largest);
}

std::vector<BatchShape> MakeShapes(const Dataset& dataset, const BatchOptions& options) {
  const auto largest = [&](int64_t wanted, int64_t longest) {
    HEADROOM_CHECK(wanted == 0 || longest <= wanted, "an example longer than the largest shape");
    return wanted > 0 ? wanted : RoundUpTo(longest, options.multiple);
  };
  const int64_t sequence = largest(options.sequence, dataset.LongestSequence());
  const int64_t decoder_longest = dataset.LongestDecoderSequence();
  const int64_t decoder_sequence =
      decoder_longest == 0 ? 0 : largest(options.decoder_sequence, decoder_longest);
  std::vector<BatchShape> shapes;
  for (int part = 1; part <= options.buckets; ++part) {
    const BatchShape shape{
        .sequence = BucketLength(sequence, part, options.buckets, options.multiple),
        .decoder_sequence =
            BucketLength(decoder_sequence, part, options.buckets, options.multiple)};
    if (shapes.empty() || shape != shapes.back()) shapes.push_back(shape);
  }
  return shapes;
}

std::span<int32_t> Row(std::vector<int32_t>& values, int64_t row, int64_t length) {
  return std::span(values).subspan(static_cast<size_t>(row * length), static_cast<size_t>(length));
}

}  // namespace

BatchStream::BatchStream(const Dataset& dataset, BatchOptions options)
    : dataset_(&dataset), options_(std::move(options)) {
  HEADROOM_CHECK(dataset.size() > 0, "batches of an empty dataset");
  HEADROOM_CHECK(options_.batch_size > 0 && options_.multiple > 0 && options_.buckets > 0,
                 "a count that is not positive");
  HEADROOM_CHECK(options_.masking.probability == 0 || options_.masking.vocabulary > 0,
                 "masking without a vocabulary");
  shapes_ = MakeShapes(dataset, options_);
}

int64_t BatchStream::batches_per_epoch() const {
  return (dataset_->size() + options_.batch_size - 1) / options_.batch_size;
}

Position BatchStream::After(Position position) const {
  if (position.batch + 1 < batches_per_epoch()) return {position.epoch, position.batch + 1};
  return {position.epoch + 1, 0};
}

void BatchStream::Seek(Position position) {
  HEADROOM_CHECK(position.epoch >= 0 && position.batch >= 0 && position.batch < batches_per_epoch(),
                 "a position outside the epoch");
  position_ = position;
}

void BatchStream::OrderEpoch(int64_t epoch) {
  if (ordered_epoch_ == epoch) return;
  ordered_epoch_ = epoch;
  order_.resize(static_cast<size_t>(dataset_->size()));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (!options_.shuffle) return;
  Random random{options_.seed, static_cast<uint64_t>(Draw::kOrder), static_cast<uint64_t>(epoch)};
  random.Shuffle(std::span(order_));
  if (options_.group_by_length) GroupByLength();
}

// get_length_grouped_indices(), transformers 5.17.0, trainer_pt_utils.py: the order is cut into
// pieces of up to 50 batches, each piece is sorted, and the longest example of all comes first, so
// that what does not fit fails at once.
void BatchStream::GroupByLength() {
  constexpr int64_t kMostBatches = 50;
  const int64_t size = dataset_->size();
  const int64_t batches = std::clamp<int64_t>(size / (options_.batch_size * 4), 1, kMostBatches);
  const auto piece = static_cast<size_t>(batches * options_.batch_size);
  const auto length = [&](int64_t index) { return LengthOf((*dataset_)[index]); };
  size_t longest = 0;
  for (size_t begin = 0; begin < order_.size(); begin += piece) {
    const auto first = order_.begin() + static_cast<ptrdiff_t>(begin);
    const auto last =
        order_.begin() + static_cast<ptrdiff_t>(std::min(begin + piece, order_.size()));
    std::stable_sort(first, last, [&](int64_t a, int64_t b) { return length(a) > length(b); });
    if (length(order_[begin]) > length(order_[longest])) longest = begin;
  }
  std::swap(order_[0], order_[longest]);
}

const BatchShape& BatchStream::ShapeFor(const BatchShape& longest) const {
  const auto fits = [&](const BatchShape& shape) {
    return longest.sequence <= shape.sequence && longest.decoder_sequence <= shape.decoder_sequence;
  };
  return *std::ranges::find_if(shapes_, fits);
}

void BatchStream::Next(Batch& batch) {
  OrderEpoch(position_.epoch);
  const auto first = static_cast<size_t>(position_.batch * options_.batch_size);
  const size_t rows = std::min(static_cast<size_t>(options_.batch_size), order_.size() - first);
  const auto indices = std::span(order_).subspan(first, rows);
  BatchShape longest;
  for (const int64_t index : indices) {
    const Example& example = (*dataset_)[index];
    longest.sequence = std::max(longest.sequence, std::ssize(example.ids));
    longest.decoder_sequence = std::max(longest.decoder_sequence, std::ssize(example.decoder_ids));
  }
  const BatchShape& shape = ShapeFor(longest);
  batch.position = position_;
  batch.rows = static_cast<int64_t>(rows);
  batch.sequence = shape.sequence;
  batch.decoder_sequence = shape.decoder_sequence;
  batch.targets = 0;
  const size_t tokens = rows * static_cast<size_t>(shape.sequence);
  const size_t decoder_tokens = rows * static_cast<size_t>(shape.decoder_sequence);
  batch.ids.assign(tokens, options_.pad_id);
  batch.type_ids.assign(tokens, 0);
  batch.lengths.assign(rows, 0);
  batch.decoder_ids.assign(decoder_tokens, options_.pad_id);
  batch.decoder_lengths.assign(decoder_tokens > 0 ? rows : 0, 0);
  const size_t labels = decoder_tokens > 0 ? decoder_tokens : tokens;
  batch.labels.assign(HasOneLabel(options_.task) ? rows : labels, kIgnoredLabel);
  for (size_t row = 0; row < rows; ++row) {
    Fill(batch, static_cast<int64_t>(row), indices[row]);
  }
  batch.targets = std::ranges::count_if(batch.labels, [](int32_t l) { return l != kIgnoredLabel; });
  position_ = After(position_);
}

void BatchStream::Fill(Batch& batch, int64_t row, int64_t index) const {
  const Example& example = (*dataset_)[index];
  std::ranges::copy(example.ids, Row(batch.ids, row, batch.sequence).begin());
  std::ranges::copy(example.type_ids, Row(batch.type_ids, row, batch.sequence).begin());
  batch.lengths[static_cast<size_t>(row)] = static_cast<int32_t>(example.ids.size());
  if (batch.decoder_sequence > 0) {
    std::ranges::copy(example.decoder_ids,
                      Row(batch.decoder_ids, row, batch.decoder_sequence).begin());
    batch.decoder_lengths[static_cast<size_t>(row)] =
        static_cast<int32_t>(example.decoder_ids.size());
  }
  if (options_.task == Task::kMaskedLm && options_.masking.probability > 0) {
    return Mask(batch, row, index);
  }
  std::span<const int32_t> labels = example.labels;
  // The output at a token predicts the next one, as in transformers' ForCausalLMLoss.
  if (options_.task == Task::kCausalLm && !labels.empty()) labels = labels.subspan(1);
  const int64_t length = std::ssize(batch.labels) / batch.rows;
  HEADROOM_CHECK(std::ssize(labels) <= length, "more labels than outputs");
  std::ranges::copy(labels, Row(batch.labels, row, length).begin());
}

void BatchStream::Mask(Batch& batch, int64_t row, int64_t index) const {
  const Masking& masking = options_.masking;
  const std::vector<int32_t>& original = (*dataset_)[index].ids;
  const std::span<int32_t> ids = Row(batch.ids, row, batch.sequence);
  const std::span<int32_t> labels = Row(batch.labels, row, batch.sequence);
  Random random{options_.seed, static_cast<uint64_t>(Draw::kMask),
                static_cast<uint64_t>(batch.position.epoch), static_cast<uint64_t>(index)};
  const auto hide = [&](size_t at) {
    labels[at] = original[at];
    const double fate = random.Unit();
    if (fate < 0.8) {
      ids[at] = masking.mask_id;
    } else if (fate < 0.9) {
      ids[at] = static_cast<int32_t>(random.Below(static_cast<uint64_t>(masking.vocabulary)));
    }
  };
  size_t candidates = 0;
  size_t spare = 0;  // one of the candidates, each as likely
  bool hidden = false;
  for (size_t at = 0; at < original.size(); ++at) {
    if (std::ranges::find(masking.special_ids, original[at]) != masking.special_ids.end()) continue;
    if (random.Below(++candidates) == 0) spare = at;
    if (random.Unit() >= static_cast<double>(masking.probability)) continue;
    hide(at);
    hidden = true;
  }
  if (!hidden && candidates > 0) hide(spare);
}

}  // namespace headroom::engine
