// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint's folder of which one file is any bytes; the first says which. What loads is saved
// and loads as the same; what does not is refused in one line.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "engine/checkpoint.h"
#include "engine/tiny_models.h"
#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace headroom;
using namespace headroom::engine;

constexpr const char* kFiles[] = {"trainer_state.json", "model.safetensors",
                                  "optimizer.safetensors"};
constexpr const char* kState = kFiles[0];

TinyRun SmallRun() {
  const TinyModel model = {"small",
                           R"({"model_type": "gpt2", "vocab_size": 7, "n_embd": 8, "n_layer": 1,
                               "n_head": 2, "n_positions": 8})",
                           Task::kCausalLm};
  NativeOptions options = TinyOptions(model);
  options.model.rows.sequence = 8;
  options.precision = Precision::kBf16;
  return {model, options};
}

// A model, and for each file a whole checkpoint in which to replace it.
class Checkpoints {
 public:
  Checkpoints() : run_(SmallRun()), folder_("checkpoint_fuzz") {
    TrainerState state;
    state.global_step = 300;
    state.position = {.epoch = 2, .batch = 40};
    state.recipe = {{"optim", "adamw_torch"}};
    for (const char* file : kFiles) Save(file, state);
  }

  void Save(const char* name, const TrainerState& state) const {
    const Status saved =
        SaveCheckpoint(Folder(name), run_.step().model, run_.executor(), state, {});
    HEADROOM_CHECK(saved.ok(), saved.error().message);
  }
  Result<TrainerState> Load(const char* name) const {
    return LoadCheckpoint(Folder(name), run_.step().model, run_.executor(), {});
  }
  fs::path Folder(const char* name) const { return folder_.path() / name; }

 private:
  TinyRun run_;
  TemporaryFolder folder_;
};

bool Same(const TrainerState& a, const TrainerState& b) {
  const bool same_loss =
      a.loss_sum == b.loss_sum || (a.loss_sum != a.loss_sum && b.loss_sum != b.loss_sum);
  return same_loss && a.global_step == b.global_step && a.position == b.position &&
         a.scaler == b.scaler && a.clipped_steps == b.clipped_steps &&
         a.skipped_steps == b.skipped_steps && a.recipe == b.recipe;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const Checkpoints checkpoints;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const char* file = kFiles[data[0] % std::size(kFiles)];
  HEADROOM_CHECK(WriteFile(checkpoints.Folder(file) / file, text).ok(), "no disk");
  const Result<TrainerState> state = checkpoints.Load(file);
  if (!state.ok()) {
    const std::string& message = state.error().message;
    HEADROOM_CHECK(!message.empty() && message.find('\n') == std::string::npos, message);
    return 0;
  }
  if (file != kState) return 0;
  checkpoints.Save("again", *state);
  const Result<TrainerState> again = checkpoints.Load("again");
  HEADROOM_CHECK(again.ok() && Same(*state, *again), "a state that is not kept");
  return 0;
}
