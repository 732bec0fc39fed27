// SPDX-License-Identifier: Apache-2.0
//
// ModuleTree: bytes by module path as a tree, repeated layers folded into one node.
//
//   encoder.layer.0.dense  4 MiB          encoder.layer         14 MiB
//   encoder.layer.1.dense  4 MiB    ->      [0-1].dense x 2      8 MiB
//   encoder.layer.2.dense  6 MiB            2.dense              6 MiB
//
// A node's `total` is its own bytes and its children's. Layers are folded when they hold the same
// to a fiftieth; a folded node holds the sum of all that it stands for, so that every level adds
// up.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ledger/ledger.h"
#include "report/plan_report.h"

namespace headroom {

struct ModuleNode {
  std::string
      name;       // the last part of the path, or several where nothing branches: "encoder.layer"
  int count = 1;  // how many modules it stands for
  ComponentBytes own{};
  ComponentBytes total{};
  std::vector<ModuleNode> children;
};

// The root (named "") over all of `modules`.
ModuleNode BuildModuleTree(std::span<const ModuleBytes> modules);

}  // namespace headroom
