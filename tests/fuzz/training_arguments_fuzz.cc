// SPDX-License-Identifier: Apache-2.0
//
// ReadTrainingArguments on arbitrary bytes: no crash, messages of one line, recipes in range.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/training_arguments.h"

namespace headroom {
namespace {

void CheckOneLine(std::string_view message) {
  HEADROOM_CHECK(message.find('\n') == std::string_view::npos, "a message of two lines");
  HEADROOM_CHECK(message.size() < 2000, "a message that fills the screen");
}

void TryArguments(std::string_view text) {
  const Result<TrainingArgumentsReading> reading = ReadTrainingArguments(text, "fuzz");
  if (!reading.ok()) return CheckOneLine(reading.error().message);
  for (const std::string& warning : reading->warnings) CheckOneLine(warning);
  Recipe recipe;
  reading->ApplyTo(recipe);
  HEADROOM_CHECK(recipe.per_device_train_batch_size >= 1, "no batch");
  HEADROOM_CHECK(recipe.gradient_accumulation_steps >= 1, "no accumulation");
  HEADROOM_CHECK(recipe.sequence_length >= 1, "no sequence");
  HEADROOM_CHECK(recipe.max_grad_norm >= 0, "negative norm");
}

}  // namespace
}  // namespace headroom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headroom::TryArguments({reinterpret_cast<const char*>(data), size});
  return 0;
}
