// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "engine/tiny_models.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : model_(TinyModels().front()), run_(model_, TinyOptions(model_)) {
    std::string name = (fs::temp_directory_path() / "headroom_checkpoint_XXXXXX").string();
    root_ = mkdtemp(name.data());
    folder_ = root_ / "checkpoint-3";
  }
  ~CheckpointTest() override { fs::remove_all(root_); }

  Status Save(const TrainerState& state) const {
    return SaveCheckpoint(folder_, run_.step().model, run_.executor(), state, {});
  }
  Result<TrainerState> Load() const {
    return LoadCheckpoint(folder_, run_.step().model, run_.executor(), {});
  }
  // Of loading what was saved, once `part` of its trainer_state.json is `by`.
  std::string RefusalOf(const std::string& part, const std::string& by) const {
    HEADROOM_CHECK(Save(kState).ok(), "no disk");
    std::string text = *ReadFile(folder_ / "trainer_state.json");
    const size_t at = text.find(part);
    HEADROOM_CHECK(at != std::string::npos, "no such part");
    text.replace(at, part.size(), by);
    HEADROOM_CHECK(WriteFile(folder_ / "trainer_state.json", text).ok(), "no disk");
    const Result<TrainerState> loaded = Load();
    return loaded.ok() ? "" : loaded.error().message;
  }

  const TrainerState kState = {.global_step = 3,
                               .position = {.epoch = 1, .batch = 2},
                               .scaler = {.scale = 1024, .growth_tracker = 7},
                               .loss_sum = 4.5,
                               .clipped_steps = 1,
                               .skipped_steps = 1,
                               .recipe = {{"optim", "adamw_torch"}}};
  TinyModel model_;
  TinyRun run_;
  fs::path root_;
  fs::path folder_;
};

TEST_F(CheckpointTest, KeepsTheTrainerState) {
  ASSERT_TRUE(Save(kState).ok());
  const Result<TrainerState> loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->global_step, 3);
  EXPECT_EQ(loaded->position, kState.position);
  EXPECT_EQ(loaded->scaler, kState.scaler);
  EXPECT_EQ(loaded->loss_sum, 4.5);
  EXPECT_EQ(loaded->clipped_steps, 1);
  EXPECT_EQ(loaded->skipped_steps, 1);
  EXPECT_EQ(loaded->recipe, kState.recipe);
}

// In float16 a loss may overflow; that step is skipped, and the run goes on.
TEST_F(CheckpointTest, LoadsAfterALossThatOverflowed) {
  TrainerState state = kState;
  for (const double sum : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    state.loss_sum = sum;
    ASSERT_TRUE(Save(state).ok());
    const Result<TrainerState> loaded = Load();
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_TRUE(std::isnan(loaded->loss_sum));
  }
}

TEST_F(CheckpointTest, RefusesValuesThatNoRunHas) {
  constexpr std::pair<const char*, const char*> kDamages[] = {
      {"\"global_step\": 3", "\"global_step\": -3"},
      {"\"global_step\": 3", "\"global_step\": 3.5"},
      {"\"global_step\": 3", "\"global_step\": 1"},
      {"\"global_step\": 3", "\"global_step\": 9223372036854775807"},
      {"\"batch\": 2", "\"batch\": 1e300"},
      {"\"scale\": 1024.0", "\"scale\": 1e300"},
      {"\"scale\": 1024.0", "\"scale\": 0"},
      {"\"growth_tracker\": 7", "\"growth_tracker\": 4294967303"},
      {"\"skipped_steps\": 1", "\"skipped_steps\": true"},
      {"\"adamw_torch\"", "\"two\\nlines\""},
  };
  for (const auto& [part, by] : kDamages) {
    EXPECT_THAT(RefusalOf(part, by), EndsWith("trainer_state.json: values that no run has")) << by;
  }
}

TEST_F(CheckpointTest, RefusesWhatIsNoTrainerState) {
  EXPECT_THAT(RefusalOf("{", "["), HasSubstr("not valid JSON at line"));
  EXPECT_THAT(RefusalOf("\"loss_sum\": 4.5", "\"loss_sum\": \"x\""),
              EndsWith("no trainer state of headroom"));
  EXPECT_THAT(RefusalOf("\"position\"", "\"positions\""), EndsWith("no trainer state of headroom"));
  EXPECT_THAT(RefusalOf("trainer_state.2", "trainer_state.9"),
              EndsWith("written by another version of headroom"));
}

}  // namespace
}  // namespace headroom::engine
