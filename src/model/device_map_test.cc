// SPDX-License-Identifier: Apache-2.0
#include "model/device_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// 12 layers of 10 KiB, an embedding and a head of 4 KiB each, in one byte an element.
ParameterTable Decoder() {
  ParameterTable table;
  table.Add("model.embed_tokens.weight", {4, 1024});
  for (int layer = 0; layer < 12; ++layer) {
    const std::string path = "model.layers." + std::to_string(layer);
    table.Add(path + ".attn.weight", {4, 1024});
    table.Add(path + ".mlp.weight", {6, 1024});
  }
  table.Add("model.norm.weight", {8});
  table.Add("lm_head.weight", {4, 1024});
  return table;
}

std::vector<std::string> PathsOn(const std::vector<PlacedModule>& card) {
  std::vector<std::string> paths;
  for (const PlacedModule& module : card) paths.push_back(module.path);
  return paths;
}

TEST(DeviceMap, KeepsAModelThatFitsTheFirstCardWholeWhenSequential) {
  const DeviceMap map =
      InferDeviceMap(Decoder(), DType::kInt8, {KiB(200), KiB(200)}, DeviceMapKind::kSequential);
  EXPECT_THAT(PathsOn(map.cards[0]), ElementsAre("model", "lm_head"));
  EXPECT_THAT(map.cards[1], IsEmpty());
}

TEST(DeviceMap, BalancesLayersOverCardsWithRoomForAll) {
  const DeviceMap map =
      InferDeviceMap(Decoder(), DType::kInt8, {KiB(200), KiB(200)}, DeviceMapKind::kAuto);
  // A share is 64 KiB and 1.25 layers; the first card keeps room for a layer.
  EXPECT_EQ(PathsOn(map.cards[0]).front(), "model.embed_tokens");
  EXPECT_EQ(PathsOn(map.cards[0]).back(), "model.layers.5");
  EXPECT_EQ(PathsOn(map.cards[1]).front(), "model.layers.6");
  EXPECT_EQ(PathsOn(map.cards[1]).back(), "lm_head");
  EXPECT_THAT(map.offloaded, IsEmpty());
}

TEST(DeviceMap, NeverSplitsALayer) {
  const DeviceMap map = InferDeviceMap(Decoder(), DType::kInt8, {KiB(45), KiB(45), KiB(45)},
                                       DeviceMapKind::kSequential);
  for (const auto& card : map.cards) {
    for (const std::string& path : PathsOn(card)) {
      EXPECT_EQ(path.find(".mlp"), std::string::npos) << path;
    }
  }
}

TEST(DeviceMap, OffloadsWhatNoCardHolds) {
  const ParameterTable table = Decoder();
  const DeviceMap map =
      InferDeviceMap(table, DType::kInt8, {KiB(45), KiB(45)}, DeviceMapKind::kSequential);
  Bytes sum = DeviceMap::Sum(map.offloaded);
  EXPECT_GT(sum, Bytes(0));
  for (const auto& card : map.cards) sum += DeviceMap::Sum(card);
  EXPECT_EQ(sum, table.parameter_bytes(DType::kInt8));
}

TEST(DeviceMap, FindsTheLayerOfAName) {
  EXPECT_EQ(LayerOf("model.layers.11.mlp.experts.3.up.weight"), "model.layers.11");
  EXPECT_EQ(LayerOf("h.0"), "h.0");
  EXPECT_EQ(LayerOf("model.norm.weight"), "");
}

}  // namespace
}  // namespace headroom
