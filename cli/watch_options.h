// SPDX-License-Identifier: Apache-2.0
//
// What `headroom watch` is asked for. Everything behind "--" is the command, whatever it looks
// like.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"
#include "base/result.h"
#include "observe/nvml.h"

namespace headroom::cli {

struct WatchOptions {
  std::vector<std::string> command;  // empty: what is there already is watched
  std::vector<uint32_t> pids;        // empty: all
  std::vector<int> gpus;             // empty: all
  double interval = 1;               // seconds
  std::optional<int64_t> count;      // samples; unset: until it is stopped
  std::string json_path;             // empty: no recording is written
  std::string html_path;             // empty: no page is written
};

const Syntax& WatchSyntax();

// `arguments` are those in front of "--", `command` what follows it.
Result<WatchOptions> ReadWatchOptions(const Arguments& arguments,
                                      std::span<const std::string> command);

// The cards that the options name, as they are now.
Result<std::vector<observe::GpuMemory>> ReadCards(const observe::Nvml& nvml,
                                                  const WatchOptions& options);

}  // namespace headroom::cli
