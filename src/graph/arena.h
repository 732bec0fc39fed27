// SPDX-License-Identifier: Apache-2.0
//
// The arena planner: every buffer of a run gets an offset in one block of memory.
//
//   offset
//     ▲  ┌────────── c ──────────┐          buffers alive at the same time never share a byte;
//     │  ├── a ──┬───── d ───────┤          the arena is as high as the highest of them
//     │  │       │  ┌── e ──┐    │
//     └──┴───────┴──┴───────┴────┴──► op    lower bound: the live bytes where they are most
//
// Training lifetimes are nearly nested, so placing by size, the lowest free gap first, comes within
// a percent of the bound (arXiv 2001.03288 and our measurements in docs/engine.md); several orders
// are tried, and the lowest arena is kept. PlanArena is a pure function: same buffers, same plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom::graph {

// Alive from the start of op `first` to the end of op `last`, both included.
struct Buffer {
  Bytes size;
  int32_t first = 0;
  int32_t last = 0;

  bool Overlaps(const Buffer& other) const { return first <= other.last && other.first <= last; }
  bool operator==(const Buffer&) const = default;
};

struct ArenaPlan {
  std::vector<Bytes> offsets;  // by position of the buffer
  Bytes size;                  // highest end
  Bytes lower_bound;           // most bytes alive at once; no plan can be smaller

  // 1 where nothing is lost to gaps; 1 for an empty plan.
  double Ratio() const;
};

// What cuBLASLt, cuDNN and vector loads ask of an address.
inline constexpr Bytes kArenaAlignment{256};

// Sizes are rounded up to the alignment, the bound counts them so. REQUIRES: sizes >= 0,
// first <= last, and less than 2^62 bytes together.
ArenaPlan PlanArena(std::span<const Buffer> buffers);

// Proves a plan without knowing how it was made: offsets aligned and inside, and no two buffers
// that are alive together overlap. Names the first pair that does, by position.
Status CheckArena(std::span<const Buffer> buffers, const ArenaPlan& plan);

// The most bytes alive at once, sizes rounded up to the alignment.
Bytes LowerBound(std::span<const Buffer> buffers);

}  // namespace headroom::graph
