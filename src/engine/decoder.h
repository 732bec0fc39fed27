// SPDX-License-Identifier: Apache-2.0
//
// GreedyDecode: what a trained language model writes, the likeliest token each time.
//
//   encoder-decoder   from the start token, given a source
//   decoder           on from a prompt
//
// Every token is a forward pass over all before it: meant to look at a few samples, not to serve.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/models/model_graph.h"

namespace headroom::engine {

struct DecodeOptions {
  int32_t pad_id = 0;
  int32_t start_id = 0;    // of a decoder behind an encoder
  int32_t end_id = -1;     // ends a row; -1: none does
  int64_t max_tokens = 0;  // 0: until the graph's sequence is full
};

// The tokens that follow each of `rows` (prompts, or sources of an encoder-decoder), without start
// and end tokens. REQUIRES: the graph ends in Head::kNextToken, has a batch of at least
// rows.size() and a sequence of at least the longest row's.
std::vector<std::vector<int32_t>> GreedyDecode(const ModelGraph& model, const Executor& executor,
                                               std::span<const std::vector<int32_t>> rows,
                                               const DecodeOptions& options);

}  // namespace headroom::engine
