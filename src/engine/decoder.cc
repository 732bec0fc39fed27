// SPDX-License-Identifier: Apache-2.0
#include "engine/decoder.h"

#include <algorithm>

#include "base/check.h"
#include "engine/logits.h"

namespace headroom::engine {
namespace {

using graph::kNoTensor;
using graph::Role;
using graph::TensorId;

class Decoding {
 public:
  Decoding(const ModelGraph& model, const Executor& executor, const DecodeOptions& options)
      : model_(model), executor_(executor), options_(options) {
    const bool both = model.graph.Find(Role::kInput, "decoder_input_ids") != kNoTensor;
    ids_ = Input(both ? "decoder_input_ids" : "input_ids");
    lengths_ = Input(both ? "decoder_lengths" : "lengths");
    batch_ = lengths_.shape.NumElements();
    sequence_ = ids_.shape.NumElements() / batch_;
    scalars_.training = false;
    if (both) source_ = Input("input_ids");
  }

  std::vector<std::vector<int32_t>> Run(std::span<const std::vector<int32_t>> rows) {
    HEADROOM_CHECK(static_cast<int64_t>(rows.size()) <= batch_, "more rows than the graph has");
    std::vector<std::vector<int32_t>> written(rows.size());
    Start(rows);
    std::vector<bool> ended(rows.size());
    const int64_t longest = options_.max_tokens > 0 ? options_.max_tokens : sequence_;
    for (int64_t token = 0; token < longest; ++token) {
      executor_.Run(graph::Phase::kForward, scalars_);
      bool any = false;
      for (size_t row = 0; row < rows.size(); ++row) {
        if (ended[row]) continue;
        const auto next = static_cast<int32_t>(
            Likeliest(executor_.View(model_.logits), static_cast<int64_t>(row)));
        ended[row] = next == options_.end_id || !Append(row, next);
        if (next != options_.end_id) written[row].push_back(next);
        any = any || !ended[row];
      }
      if (!any) break;
    }
    return written;
  }

 private:
  TensorView Input(const char* name) const {
    const TensorId id = model_.graph.Find(Role::kInput, name);
    HEADROOM_CHECK(id != kNoTensor, "a graph that decodes without lengths");
    return executor_.View(id);
  }

  void Fill(const TensorView& ids, const TensorView& lengths,
            std::span<const std::vector<int32_t>> rows) const {
    const int64_t width = ids.shape.NumElements() / batch_;
    std::fill_n(ids.As<int32_t>(), ids.shape.NumElements(), options_.pad_id);
    std::fill_n(lengths.As<int32_t>(), batch_, 1);
    for (size_t row = 0; row < rows.size(); ++row) {
      HEADROOM_CHECK(static_cast<int64_t>(rows[row].size()) <= width && !rows[row].empty(),
                     "a row that does not fit the graph");
      std::copy(rows[row].begin(), rows[row].end(),
                ids.As<int32_t>() + static_cast<int64_t>(row) * width);
      lengths.As<int32_t>()[row] = static_cast<int32_t>(rows[row].size());
    }
  }

  void Start(std::span<const std::vector<int32_t>> rows) {
    if (!source_) return Fill(ids_, lengths_, rows);
    Fill(source_, Input("lengths"), rows);
    const std::vector<std::vector<int32_t>> starts(rows.size(), {options_.start_id});
    Fill(ids_, lengths_, starts);
  }

  // False when the row is full.
  bool Append(size_t row, int32_t token) {
    int32_t& length = lengths_.As<int32_t>()[row];
    if (length >= sequence_) return false;
    ids_.As<int32_t>()[static_cast<int64_t>(row) * sequence_ + length++] = token;
    return true;
  }

  const ModelGraph& model_;
  const Executor& executor_;
  const DecodeOptions options_;
  TensorView ids_;
  TensorView lengths_;
  TensorView source_;
  int64_t batch_ = 0;
  int64_t sequence_ = 0;
  StepScalars scalars_;
};

}  // namespace

std::vector<std::vector<int32_t>> GreedyDecode(const ModelGraph& model, const Executor& executor,
                                               std::span<const std::vector<int32_t>> rows,
                                               const DecodeOptions& options) {
  return Decoding(model, executor, options).Run(rows);
}

}  // namespace headroom::engine
