// SPDX-License-Identifier: Apache-2.0
//
// How long `headroom plan` and `fit` take as whole processes: start, predict, print, exit.
//
//   plan_bench build/release/cli/headroom [RUNS]
//
// Plans are run in turn, so that a busy moment of the machine hits all alike; those that may take a
// second, every fifth time. Exits with 1 when the fastest run of a plan takes longer than it may:
// what is slower than the fastest is the machine's.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace {

struct Plan {
  std::vector<std::string> words;
  double limit_ms;
};

const std::vector<Plan> kPlans = {
    {{"plan", "bert-large-uncased", "--batch", "4", "--seq", "512", "--bf16"}, 30},
    {{"plan", "meta-llama/Llama-3.1-8B", "--batch", "1", "--seq", "4096", "--bf16"}, 100},
    {{"plan", "meta-llama/Llama-3.1-70B", "--batch", "1", "--seq", "4096", "--bf16"}, 150},
    {{"fit", "bert-large-uncased", "--batch", "64", "--bf16", "--gpu", "RTX 3060"}, 2000},
    {{"fit", "meta-llama/Llama-3.1-8B", "--batch", "4", "--seq", "4096", "--bf16", "--gpu",
      "H100 80GB"},
     2000},
    // The catalogue's longest encoder and decoder.
    {{"fit", "google/flan-t5-xxl", "--batch", "8", "--seq", "512", "--bf16", "--gpu", "A100 80GB"},
     2000},
};

struct Run {
  double ms = 0;
  double mib = 0;  // peak resident memory
};

// Output goes to /dev/null. Nothing when the program does not start or fails.
std::optional<Run> Time(const std::string& program, const Plan& plan) {
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& word : plan.words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);

  const auto start = std::chrono::steady_clock::now();
  pid_t child = 0;
  const int failure =
      posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  rusage usage{};
  if (failure != 0 || wait4(child, &status, 0, &usage) != child || status != 0) return {};
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  return Run{elapsed.count(), static_cast<double>(usage.ru_maxrss) / 1024};
}

std::string Text(const Plan& plan) {
  std::string text = "headroom";
  for (const std::string& word : plan.words) text += " " + word;
  return text;
}

// Prints a plan's row; false when its fastest run is over the limit.
bool Report(const Plan& plan, std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.ms < b.ms; });
  const double best = runs.front().ms;
  const bool within = best <= plan.limit_ms;
  std::printf("%8.1f %8.1f %8.1f %8.0f %10.1f  %s%s\n", best, runs[runs.size() / 2].ms,
              runs[runs.size() * 95 / 100].ms, plan.limit_ms, runs.front().mib, Text(plan).c_str(),
              within ? "" : "  TOO SLOW");
  return within;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 2 ? std::atoi(argv[2]) : 20;
  if (argc < 2 || argc > 3 || count < 1) {
    std::fprintf(stderr, "Usage: plan_bench HEADROOM [RUNS]\n");
    return 2;
  }
  std::vector<std::vector<Run>> runs(kPlans.size());
  for (int i = 0; i < count; ++i) {
    for (size_t plan = 0; plan < kPlans.size(); ++plan) {
      if (kPlans[plan].limit_ms >= 1000 && i % 5 != 0) continue;
      const std::optional<Run> run = Time(argv[1], kPlans[plan]);
      if (!run) {
        std::fprintf(stderr, "plan_bench: this failed: %s (%s)\n", Text(kPlans[plan]).c_str(),
                     argv[1]);
        return 2;
      }
      runs[plan].push_back(*run);
    }
  }
  std::printf("%8s %8s %8s %8s %10s  whole process, %d runs\n", "best ms", "median", "95 %",
              "limit", "peak MiB", count);
  bool within = true;
  for (size_t plan = 0; plan < kPlans.size(); ++plan) within &= Report(kPlans[plan], runs[plan]);
  return within ? 0 : 1;
}
