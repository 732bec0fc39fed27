// SPDX-License-Identifier: Apache-2.0
#include "engine/tiny_training.h"

#include "base/check.h"

namespace headroom::engine {
ModelConfig ConfigOf(const TinyModel& model) {
  Result<ModelConfig> config = ModelConfig::FromJson(model.config, model.name);
  HEADROOM_CHECK(config.ok(), config.error().message);
  return *config;
}

TrainData DataFor(const TinyModel& model, int64_t rows) {
  SyntheticOptions options{.rows = rows, .sequence = 12, .vocabulary = 61, .task = model.task};
  TrainData data{.train = SyntheticDataset(options), .evaluation = {}, .pad_id = 1, .masking = {}};
  options.rows = 6;
  options.seed = 1;
  data.evaluation = SyntheticDataset(options);
  if (model.task == Task::kMaskedLm) {
    data.masking = {.probability = 0.15F, .mask_id = 3, .vocabulary = 61};
  }
  return data;
}

TrainOptions OptionsFor(const TinyModel& model) {
  TrainOptions options;
  options.task = model.task;
  options.per_device_train_batch_size = 4;
  options.gradient_accumulation_steps = 2;
  options.max_steps = 8;
  options.learning_rate = 1e-3;
  options.warmup_steps = 2;
  options.weight_decay = 0.01;
  return options;
}

Outcome TrainOn(const TinyModel& model, const TrainOptions& options, const Trainer::Origin& origin,
                int stop_after) {
  Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model));
  HEADROOM_CHECK(trainer.ok(), trainer.error().message);
  const Status started = trainer->Start(origin);
  HEADROOM_CHECK(started.ok(), started.error().message);
  Recorder recorder;
  recorder.stop_after = stop_after;
  Result<TrainResult> result = trainer->Run(recorder);
  HEADROOM_CHECK(result.ok(), result.error().message);
  return {recorder.losses, *result, trainer->other_algorithms()};
}

}  // namespace headroom::engine
