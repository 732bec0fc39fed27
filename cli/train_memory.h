// SPDX-License-Identifier: Apache-2.0
//
// The memory of a native run, planned beside measured.
#pragma once

#include <vector>

#include "device.h"
#include "engine/trainer.h"
#include "ledger/ledger.h"
#include "report/train_report.h"
#include "resident_memory.h"

namespace headroom::cli {

// REQUIRES: the trainer has started; `growth` began before that.
std::vector<TrainMemoryRow> TrainMemory(const engine::Trainer& trainer,
                                        const ProcessGrowth& growth);

// The same on a GPU: the arena, what lies beside it, and the process's figure, read last.
std::vector<TrainMemoryRow> DeviceMemory(const Ledger& plan, const DeviceLadder& ladder);

}  // namespace headroom::cli
