// SPDX-License-Identifier: Apache-2.0
//
// headroom: finds the subcommand and runs it.

#include <algorithm>
#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "base/nearest.h"
#include "command.h"
#include "output.h"

namespace headroom::cli {
namespace {

constexpr Command kCommands[] = {
    {"plan", "the memory of a training run, from its config and recipe", &RunPlan},
    {"fit", "what fits, and what to change so that it does, cheapest first", &RunFit},
    {"ops", "what a training step computes and moves, by class of operation", &RunOps},
    {"train", "trains natively, in memory that is known before it starts", &RunTrain},
    {"explain", "where the memory of a recorded or failed run went", &RunExplain},
    {"diff", "two runs side by side: plans, recordings, or one of each", &RunDiff},
    {"watch", "device memory now, or while a command runs", &RunWatch},
    {"score", "predictions beside measured runs, row by row", &RunScore},
    {"models", "the models known by name", &RunModels},
    {"gpus", "the GPUs known by name", &RunGpus},
};

std::string Help() {
  std::string out =
      "headroom: where every byte of GPU memory goes when a Transformer trains,\n"
      "before it runs. It needs no GPU and no Python.\n\n"
      "Usage: headroom COMMAND [arguments]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    out += Format("  {:<10}{}\n", command.name, command.summary);
  }
  return out +
         "\n  headroom COMMAND --help explains one of them; headroom --version says which\n"
         "  headroom this is.\n\n"
         "Example:\n"
         "  headroom plan bert-large-uncased --batch 4 --seq 512 --bf16 --gpu \"RTX 4090\"\n\n"
         "Exit codes: 0 done or fits, 1 does not fit, 2 bad input, 3 our own failure.\n";
}

ExitCode UnknownCommand(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  const bool flag = name.starts_with('-');
  if (flag) names = {"--help", "--version"};
  const std::string near = DidYouMean(name, names);
  return Fail("", Error::BadInput(Format("unknown {} \"{}\"{}", flag ? "flag" : "command", name,
                                         near.empty() ? ": see headroom --help" : near)));
}

ExitCode Run(const std::vector<std::string>& words) {
  if (words.empty()) {
    return Fail("", Error::BadInput("no command: try headroom plan bert-base-uncased, or see "
                                    "headroom --help"));
  }
  const std::string& first = words.front();
  if (first == "--help" || first == "-h" || first == "help") return Print(Help());
  if (first == "--version" || first == "-V") return Print(Generator() + '\n');
  for (const Command& command : kCommands) {
    if (first == command.name) return command.run(std::span(words).subspan(1));
  }
  return UnknownCommand(first);
}

}  // namespace
}  // namespace headroom::cli

int main(int argc, char** argv) {
  using headroom::cli::ExitCode;
  // A reader that goes away (`headroom … | head`) is an error of write(), not a death.
  std::signal(SIGPIPE, SIG_IGN);
  ExitCode code = ExitCode::kInternal;
  try {
    code = headroom::cli::Run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const std::bad_alloc&) {
    headroom::cli::Warn("", "out of memory");
  } catch (const std::exception& failure) {
    headroom::cli::Warn("", headroom::Format("headroom has a bug: {}", failure.what()));
  }
  return static_cast<int>(code);
}
