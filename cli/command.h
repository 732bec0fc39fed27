// SPDX-License-Identifier: Apache-2.0
//
// A subcommand: main.cc holds the one table of them, each has a file of its own.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "exit_code.h"

namespace headroom::cli {

struct Command {
  std::string_view name;
  std::string_view summary;                             // a line of `headroom --help`
  ExitCode (*run)(std::span<const std::string> words);  // what follows the name
};

ExitCode RunPlan(std::span<const std::string> words);
ExitCode RunWatch(std::span<const std::string> words);
ExitCode RunFit(std::span<const std::string> words);
ExitCode RunOps(std::span<const std::string> words);
ExitCode RunTrain(std::span<const std::string> words);
ExitCode RunExplain(std::span<const std::string> words);
ExitCode RunDiff(std::span<const std::string> words);
ExitCode RunScore(std::span<const std::string> words);
ExitCode RunModels(std::span<const std::string> words);
ExitCode RunGpus(std::span<const std::string> words);

}  // namespace headroom::cli
