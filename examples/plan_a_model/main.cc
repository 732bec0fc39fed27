// SPDX-License-Identifier: Apache-2.0
//
// The memory of fine-tuning BERT-large at the moment it is highest, by component.
#include <cstdio>

#include "predict/predict.h"

int main() {
  const headroom::KnownModel* bert = headroom::FindKnownModel("bert-large-uncased");
  const auto config = headroom::ModelConfig::FromJson(bert->config_json, bert->name);
  const headroom::Recipe recipe = {.task = headroom::Task::kSequenceClassification,
                                   .per_device_train_batch_size = 4,
                                   .precision = headroom::Precision::kBf16};
  const auto plan = headroom::Predict(*config, recipe, headroom::MeasuredPlatform());
  if (!plan.ok()) return std::fprintf(stderr, "%s\n", plan.error().message.c_str()), 1;

  const auto at_peak = plan->ledger.ComponentsAt(plan->ledger.peak_event());
  for (size_t i = 0; i < at_peak.size(); ++i) {
    const std::string_view name = Name(static_cast<headroom::Component>(i));
    std::printf("%-12.*s %9.1f MiB\n", static_cast<int>(name.size()), name.data(),
                at_peak[i].mib());
  }
}
