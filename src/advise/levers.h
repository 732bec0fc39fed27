// SPDX-License-Identifier: Apache-2.0
//
// Levers: the changes to a recipe that lower its memory, as a table.
//
// A lever changes a Variant, or says that it does not apply (the recipe has it already, the GPU or
// the model cannot). Levers of one group exclude each other. What a lever saves is never written
// down here: it is predicted.
//
// The micro-batch (with accumulation, the same samples a step) is no entry of the table but a
// number that the search sets.
#pragma once

#include <span>
#include <string_view>

#include "ledger/component.h"
#include "model/catalogue.h"
#include "model/config.h"
#include "model/recipe.h"
#include "predict/allocator_options.h"

namespace headroom {

// What levers change.
struct Variant {
  Recipe recipe;
  AllocatorOptions allocator;

  bool operator==(const Variant&) const = default;
};

// What else a lever looks at.
struct LeverContext {
  const Gpu& gpu;
  AttnImplementation attn_used;  // what the asked recipe resolves to
};

// How far what is trained stays the same, the nearest first.
enum class Effect : uint8_t {
  kSame,      // the same numbers, up to the order of sums
  kRounding,  // the same method in fewer bits
  kTraining,  // another way of training: learning rates and results differ
};
std::string_view Name(Effect effect);  // "same result", …

struct Lever {
  std::string_view name;   // "gradient checkpointing"
  std::string_view group;  // "checkpointing"
  Effect effect;
  Component lowers;  // where it saves
  bool (*apply)(Variant& variant, const LeverContext& context);
  std::string_view note;  // what it costs beside time
};

std::span<const Lever> Levers();

}  // namespace headroom
