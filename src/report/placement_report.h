// SPDX-License-Identifier: Apache-2.0
//
// PlacementReport: what lies on each card when a model is spread over several with device_map.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "report/text.h"

namespace headroom {

struct CardReport {
  std::vector<std::string> modules;  // paths, in order
  Bytes weights;                     // parameters and buffers
  Bytes kv_cache;                    // of the layers that lie here

  Bytes used(Bytes context) const { return weights + kv_cache + context; }
};

struct PlacementReport {
  std::string model;
  std::vector<std::string> recipe;
  int64_t parameters = 0;
  Bytes model_bytes;
  std::string gpu;  // empty when only a size was given
  Bytes memory;     // of each card
  Bytes context;    // of each card
  std::vector<CardReport> cards;
  Bytes offloaded;  // to host memory, because no card has room
  std::vector<std::string> offloaded_modules;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;

  bool fits() const;  // everything lies on cards, and none is overfull
  size_t fullest() const;
};

// "transformer.word_embeddings, transformer.h.0 … 8": runs of layers as one.
std::string ModulesInWords(const std::vector<std::string>& paths, const TextStyle& style);

std::string PlacementText(const PlacementReport& report, const TextStyle& style);
// {"model", "cards": [{"modules", "weights", "kv_cache", "device"}], "offloaded", "fullest",
// "fits", "assumptions"}; sizes in bytes.
std::string PlacementJson(const PlacementReport& report);

}  // namespace headroom
