// SPDX-License-Identifier: Apache-2.0
//
// headroom gpus: the GPUs that --gpu knows.

#include <nlohmann/json.hpp>

#include "arguments.h"
#include "base/format.h"
#include "command.h"
#include "model/catalogue.h"
#include "output.h"

namespace headroom::cli {
namespace {

constexpr Flag kFlags[] = {
    {"--json", Takes::kNothing, "", "one JSON object; sizes in bytes, rates a second"},
    kColorFlag,
};
constexpr FlagGroup kGroups[] = {{"Output", kFlags}};
constexpr Syntax kSyntax = {
    .command = "gpus",
    .summary =
        "Lists the GPUs known by name: the memory a process can use, as cudaMemGetInfo "
        "reports it on an idle card, and what else decides memory or time.",
    .positional = "",
    .positional_help = "",
    .groups = kGroups,
    .examples =
        "  headroom gpus\n"
        "  headroom plan meta-llama/Llama-3.1-8B --bf16 --gpu H200\n",
};

std::string Json() {
  nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
  for (const Gpu& gpu : KnownGpus()) {
    gpus.push_back({{"name", gpu.name},
                    {"usable", gpu.usable.count()},
                    {"compute_capability", Format("{}.{}", gpu.compute_major, gpu.compute_minor)},
                    {"bf16", gpu.HasBf16()},
                    {"memory_bandwidth", gpu.memory_bandwidth},
                    {"bf16_flops", gpu.bf16_flops},
                    {"tf32_flops", gpu.tf32_flops},
                    {"fp32_flops", gpu.fp32_flops},
                    {"measured", gpu.measured}});
  }
  return nlohmann::ordered_json{{"gpus", std::move(gpus)}}.dump(2) + '\n';
}

std::string Text(const TextStyle& style) {
  constexpr int kNameWidth = 48;
  std::string out =
      Paint(style, Colour::kDim, PadRight("name", kNameWidth) + "     usable    cc  GB/s TFLOP/s") +
      '\n';
  for (const Gpu& gpu : KnownGpus()) {
    out += Format("{}{:>11}{}{:>4}.{}{:>6.0f}{:>8.0f}\n", PadRight(gpu.name, kNameWidth),
                  FormatBytes(gpu.usable), gpu.measured ? "*" : " ", gpu.compute_major,
                  gpu.compute_minor, gpu.memory_bandwidth / 1e9, gpu.bf16_flops / 1e12);
  }
  return out +
         "cc: compute capability, bf16 from 8.0 on; TFLOP/s: dense 16-bit products\n"
         "* read on such a card; the others are derived from their data sheets\n";
}

}  // namespace

ExitCode RunGpus(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(kSyntax, words);
  if (!arguments.ok()) return Fail("gpus", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(kSyntax));
  const Result<TextStyle> style = StyleOf(*arguments);
  if (!style.ok()) return Fail("gpus", style.error());
  return Print(arguments->Has("--json") ? Json() : Text(*style));
}

}  // namespace headroom::cli
