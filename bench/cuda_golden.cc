// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend against PyTorch and against itself, on a machine with a GPU. Prints a line for
// each model, FAILED where something is beyond its bound, and then returns 1.
//
//   cuda_golden FOLDER      what PyTorch recorded of each family (tests/data/engine), in float32,
//                           with captured graphs and op by op, under the bounds of engine/golden.h
//   cuda_golden --resume    trainings of tiny models in bf16 end in the same weights to the bit:
//                           started twice, stopped and resumed on a device that knows nothing but
//                           the checkpoint, op by op, and with recomputation
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/golden.h"
#include "engine/tiny_training.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

int failures = 0;

// " FAILED" where it is not good.
const char* Verdict(bool good) {
  if (!good) ++failures;
  return good ? "" : "  FAILED";
}

std::unique_ptr<CudaDevice> Open(const CudaOptions& options) {
  auto device = CudaDevice::Open(0, options);
  HEADROOM_CHECK(device.ok(), device.error().message);
  return std::move(*device);
}

void CompareWithPyTorch(const Golden& golden, bool graphs) {
  const CudaOptions options{.graphs = graphs, .cudnn = false};
  const GradientErrors step = LossAndGradients(golden, GoldenOptions(golden), Open(options).get());
  const SmoothedErrors smoothed = LabelSmoothingErrors(golden, Open(options).get());
  const double logits = LogitsError(golden, Open(options).get());
  const double hidden = HiddenError(golden, Open(options).get());
  const double ten = TenLossesError(golden, Open(options).get());
  const Difference& gradients = step.gradients.difference;
  const bool good = step.loss < kLossBound && gradients.error < kGradientBound &&
                    gradients.cosine > kLeastCosine && smoothed.loss < kLossBound &&
                    smoothed.gradient < kGradientBound && logits < kOutputBound &&
                    hidden < kOutputBound && ten < kTenLossesBound;
  std::printf(
      "golden %-22s %-6s loss %.1e, gradients %.1e (%s; cosine 1 - %.1e), smoothed %.1e %.1e, "
      "logits %.1e, hidden %.1e, ten losses %.1e%s\n",
      golden.name.c_str(), graphs ? "graphs" : "stream", step.loss, gradients.error,
      step.gradients.name.c_str(), 1 - gradients.cosine, smoothed.loss, smoothed.gradient, logits,
      hidden, ten, Verdict(good));
}

Status CompareAllWithPyTorch(const fs::path& folder) {
  for (const std::string& name : GoldenNames()) {
    HEADROOM_ASSIGN_OR_RETURN(const Golden golden, ReadGolden(folder, name));
    for (const bool graphs : {true, false}) CompareWithPyTorch(golden, graphs);
  }
  return {};
}

// A folder that is removed with all that it holds.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "headroom_golden_XXXXXX").string();
    const char* made = mkdtemp(name.data());
    HEADROOM_CHECK(made != nullptr, "no temporary folder");
    path_ = made;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { fs::remove_all(path_); }

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Run {
  std::string weights;     // bytes of what was saved last
  std::string algorithms;  // that the device multiplied by
  fs::path saved;
  int64_t timed = 0;  // shapes
  double seconds = 0;
  bool resumed_exactly = true;
};

// One training on a device of its own.
class Training {
 public:
  explicit Training(const TinyModel& model) : model_(model), options_(OptionsFor(model)) {
    options_.precision = Precision::kBf16;
    options_.cuda = true;
  }

  // The algorithms' cache of all runs but those that have none.
  fs::path cache() const { return folder_.path() / "cache"; }
  TrainOptions& options() { return options_; }

  Run Start(const std::string& name, const CudaOptions& cuda, const fs::path& checkpoint = {},
            int stop_after = 0) {
    const auto start = std::chrono::steady_clock::now();
    TrainOptions options = options_;
    options.output_dir = folder_.path() / name;
    const std::unique_ptr<CudaDevice> device = Open(cuda);
    const Outcome outcome =
        TrainOn(model_, options, {.checkpoint = checkpoint, .device = device.get()}, stop_after);
    Result<std::string> weights = ReadFile(outcome.result.saved / "model.safetensors");
    HEADROOM_CHECK(weights.ok(), weights.error().message);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return {.weights = std::move(*weights),
            .algorithms = device->Algorithms(),
            .saved = outcome.result.saved,
            .timed = device->timed_shapes(),
            .seconds = took.count(),
            .resumed_exactly = !outcome.other_algorithms};
  }

 private:
  const TinyModel& model_;
  TrainOptions options_;
  TemporaryFolder folder_;
};

void CompareRuns(const TinyModel& model) {
  Training training(model);
  const CudaOptions cached{.algorithms = training.cache()};
  const CudaOptions streamed{.graphs = false, .algorithms = training.cache()};
  std::string differing;
  const Run straight = training.Start("straight", cached);
  const auto compare = [&](const char* what, const Run& run) {
    if (run.weights != straight.weights) differing += std::string(" ") + what;
  };
  const Run again = training.Start("again", cached);
  compare("again", again);
  compare("stream", training.Start("stream", streamed));
  const Run stopped = training.Start("stopped", cached, {}, 4);
  const Run resumed = training.Start("stopped", {}, stopped.saved);
  compare("resumed", resumed);
  const int64_t timed_later = again.timed + stopped.timed + resumed.timed;
  const bool exact = resumed.resumed_exactly && resumed.algorithms == straight.algorithms;
  for (const graph::Recompute recompute : {graph::Recompute::kCheap, graph::Recompute::kBlock}) {
    training.options().recompute = recompute;
    const std::string name(Name(recompute));
    compare(name.c_str(), training.Start(name, cached));
  }
  const bool good = differing.empty() && straight.timed > 0 && timed_later == 0 && exact;
  std::printf("bits   %-22s %lld shapes timed in %.2f s, later %lld in %.2f s; %s%s%s%s\n",
              model.name.c_str(), static_cast<long long>(straight.timed), straight.seconds,
              static_cast<long long>(timed_later), again.seconds,
              differing.empty() ? "the same weights throughout" : "other weights:",
              differing.c_str(), exact ? "" : "; resumed with other algorithms", Verdict(good));
}

int Main(const std::vector<std::string>& words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (const auto device = CudaDevice::Open(0); !device.ok()) {
    std::fprintf(stderr, "cuda_golden: %s\n", device.error().message.c_str());
    return 2;
  }
  const bool resume = std::find(words.begin(), words.end(), "--resume") != words.end();
  for (const std::string& word : words) {
    if (word == "--resume") continue;
    if (const Status status = CompareAllWithPyTorch(word); !status.ok()) {
      std::fprintf(stderr, "cuda_golden: %s\n", status.error().message.c_str());
      return 2;
    }
  }
  if (resume) {
    for (const TinyModel& model : TinyModels(64)) CompareRuns(model);
  }
  std::printf("%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace headroom::engine

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    std::fprintf(stderr, "usage: cuda_golden [FOLDER of golden files] [--resume]\n");
    return 2;
  }
  return headroom::engine::Main(words);
}
