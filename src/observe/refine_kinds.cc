// SPDX-License-Identifier: Apache-2.0
#include "observe/refine_kinds.h"

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

}  // namespace

void RefineKinds(const Replay& replay, std::span<BlockClass> blocks) {
  const Sizes sizes = ForwardSizes(replay, blocks);
  size_t dropout = blocks.size();  // the last dropout's result
  for (size_t i = 0; i < blocks.size(); ++i) {
    BlockClass& c = blocks[i];
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
    if (c.kind != Kind::kDropout) continue;
    // A dropout makes its result and then, one byte an element, its mask.
    const bool mask = dropout + 1 == i && size < replay.blocks[dropout].requested() &&
                      replay.blocks[i].stack == replay.blocks[dropout].stack;
    if (mask) {
      c.kind = Kind::kDropoutMask;
    } else {
      dropout = i;
    }
  }
}

}  // namespace headroom::observe
