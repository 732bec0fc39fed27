// SPDX-License-Identifier: Apache-2.0
#include "ledger/module_path.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(ModulePath, TakesTheLayersOfAStackAsOne) {
  EXPECT_EQ(WithoutIndices("model.layers.11.mlp"), "model.layers.*.mlp");
  EXPECT_EQ(WithoutIndices("h.0"), "h.*");
  EXPECT_EQ(WithoutIndices("conv1d.layer2"), "conv1d.layer2");
  EXPECT_EQ(WithoutIndices(""), "");
}

TEST(ModulePath, LeavesOutWhatStandsBeforeTheStack) {
  EXPECT_EQ(FromStack("model.layers.*.mlp"), "layers.*.mlp");
  EXPECT_EQ(FromStack("h.*"), "h.*");
  EXPECT_EQ(FromStack("lm_head"), "lm_head");
}

}  // namespace
}  // namespace headroom
