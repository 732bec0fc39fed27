// SPDX-License-Identifier: Apache-2.0
//
// The memory of a native run, planned beside measured.
#pragma once

#include <vector>

#include "engine/trainer.h"
#include "report/train_report.h"
#include "resident_memory.h"

namespace headroom::cli {

// REQUIRES: the trainer has started; `growth` began before that.
std::vector<TrainMemoryRow> TrainMemory(const engine::Trainer& trainer,
                                        const ProcessGrowth& growth);

}  // namespace headroom::cli
