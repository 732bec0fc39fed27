// SPDX-License-Identifier: Apache-2.0
//
// One look at the cards: as text for a terminal, as a line of JSON for a pipe.
#pragma once

#include <string>
#include <vector>

#include "observe/nvml.h"
#include "observe/process_table.h"
#include "report/text.h"

namespace headroom::cli {

// `pids` are the only processes shown; empty for all.
std::string CardsText(const std::vector<observe::GpuMemory>& cards,
                      const observe::ProcessTable& table, const std::vector<uint32_t>& pids,
                      const TextStyle& style);

// {"time": seconds since 1970, "gpus": [{"index", "name", "uuid", "total", "reserved", "used",
// "free", "processes": [{"pid", "name", "type", "bytes"}], …}]}; sizes in bytes, null where the
// driver does not tell.
std::string CardsJson(double time, const std::vector<observe::GpuMemory>& cards,
                      const observe::ProcessTable& table, const std::vector<uint32_t>& pids);

}  // namespace headroom::cli
