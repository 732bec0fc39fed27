// SPDX-License-Identifier: Apache-2.0
//
// Paths of modules as the ledger has them, with the layers of a stack as one.
//
//   model.layers.11.mlp.up_proj   model.layers.*.mlp.up_proj   layers.*.mlp.up_proj
#pragma once

#include <string>
#include <string_view>

namespace headroom {

// "encoder.layer.11.output" -> "encoder.layer.*.output"
std::string WithoutIndices(std::string_view path);

// Of such a path: what stands before the stack is known, and left out.
std::string_view FromStack(std::string_view path);

}  // namespace headroom
