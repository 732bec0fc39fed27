// SPDX-License-Identifier: Apache-2.0
#include "observe/refine_kinds.h"

#include <algorithm>
#include <unordered_set>

namespace headroom::observe {
namespace {

// Smaller blocks share their size with too many others.
constexpr int64_t kTelling = int64_t{1} << 20;

struct Sizes {
  std::unordered_set<int64_t> logits;
  std::unordered_set<int64_t> scores;
  std::unordered_set<int64_t> others;
};

Sizes ForwardSizes(const Replay& replay, std::span<const BlockClass> blocks) {
  Sizes sizes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t size = replay.blocks[i].requested();
    if (blocks[i].stage != Stage::kForward || size < kTelling) continue;
    if (blocks[i].kind == Kind::kLogitsLoss) {
      sizes.logits.insert(size);
    } else if (blocks[i].kind == Kind::kAttentionScores) {
      sizes.scores.insert(size);
    } else {
      sizes.others.insert(size);
    }
  }
  return sizes;
}

// A dropout makes its result and a mask of one byte an element, one right after the other; which
// comes first has changed (native_dropout_cuda, aten/src/ATen/native/cuda/Dropout.cu).
void FindDropoutMasks(const Replay& replay, std::span<BlockClass> blocks) {
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    if (blocks[i].kind != Kind::kDropout || blocks[i + 1].kind != Kind::kDropout) continue;
    if (blocks[i].stated || blocks[i + 1].stated) continue;
    const int64_t first = replay.blocks[i].requested();
    const int64_t second = replay.blocks[i + 1].requested();
    const int64_t element = std::max(first, second) / std::max<int64_t>(1, std::min(first, second));
    const bool exact = std::min(first, second) * element == std::max(first, second);
    if (!exact || (element != 2 && element != 4 && element != 8)) continue;
    blocks[first < second ? i : i + 1].kind = Kind::kDropoutMask;
    ++i;
  }
}

}  // namespace

void RefineKinds(const Replay& replay, std::span<BlockClass> blocks) {
  FindDropoutMasks(replay, blocks);
  const Sizes sizes = ForwardSizes(replay, blocks);
  for (size_t i = 0; i < blocks.size(); ++i) {
    BlockClass& c = blocks[i];
    if (c.stated) continue;
    const int64_t size = replay.blocks[i].requested();
    // The logits' gradients run through nodes that any tensor could run through.
    const bool vague = c.kind == Kind::kOther || c.kind == Kind::kCast;
    if (c.component == Component::kTemporaries && c.stage == Stage::kBackward && vague &&
        sizes.logits.contains(size) && !sizes.others.contains(size)) {
      c.kind = Kind::kLogitsLoss;
    }
    // In attention written out, what is as large as the softmax is one of the score matrices.
    if (c.kind == Kind::kAttention &&
        (sizes.scores.contains(size) || sizes.scores.contains(2 * size))) {
      c.kind = Kind::kAttentionScores;
    }
  }
}

}  // namespace headroom::observe
