// SPDX-License-Identifier: Apache-2.0
#include "parallel_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/file.h"
#include "base/format.h"
#include "base/nearest.h"

namespace headroom::cli {
namespace {

constexpr int64_t kMostRanks = 1 << 14;
constexpr int64_t kMostCards = 1024;
constexpr int64_t kMostTokens = 1 << 24;
constexpr size_t kMostBatches = 2000;
constexpr Bytes kLargestLengths = MiB(8);

std::optional<int64_t> ParseCount(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<std::optional<int64_t>> MaybeCount(const Arguments& arguments, std::string_view flag,
                                          int64_t smallest, int64_t largest) {
  const std::optional<std::string> text = arguments.Value(flag);
  if (!text) return std::optional<int64_t>();
  const std::optional<int64_t> value = ParseCount(*text);
  if (!value || *value < smallest || *value > largest) {
    return Error::BadInput(
        Format("{} {}: must be a whole number from {} to {}", flag, *text, smallest, largest));
  }
  return value;
}

Status ReadFsdp(const Arguments& arguments, Parallel& parallel) {
  const std::optional<std::string> words = arguments.Value("--fsdp");
  if (!words) return {};
  parallel.sharding = Sharding::kFsdp;
  std::string_view rest = *words;
  while (!rest.empty()) {
    const size_t space = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, space);
    rest.remove_prefix(std::min(space + 1, rest.size()));
    if (word.empty() || word == "auto_wrap" || word == "full_shard") continue;
    if (word == "shard_grad_op") {
      parallel.reshard_after_forward = false;
      continue;
    }
    if (word == "offload" || word == "hybrid_shard" || word == "hybrid_shard_zero2") {
      return Error::Unsupported(Format("--fsdp={}: not modelled: use full_shard", word));
    }
    return Error::BadInput(Format(
        "--fsdp={}: unknown{}", word,
        DidYouMean(word,
                   std::vector<std::string_view>{"full_shard", "shard_grad_op", "auto_wrap"})));
  }
  return {};
}

// The way of sharding that the flags name; at most one.
Status ReadSharding(const Arguments& arguments, Recipe& recipe) {
  Parallel& parallel = recipe.parallel;
  HEADROOM_RETURN_IF_ERROR(ReadFsdp(arguments, parallel));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> stage,
                            MaybeCount(arguments, "--deepspeed-stage", 0, 3));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> split,
                            MaybeCount(arguments, "--tensor-parallel-size", 1, kMostRanks));
  const int ways = (arguments.Has("--fsdp") ? 1 : 0) + (stage.value_or(0) > 0 ? 1 : 0) +
                   (split.value_or(1) > 1 ? 1 : 0);
  if (ways > 1) {
    return Error::BadInput(
        "--fsdp, --deepspeed-stage and --tensor-parallel-size exclude each other: keep one");
  }
  if (stage.value_or(0) > 0) {
    constexpr Sharding kStages[] = {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3};
    parallel.sharding = kStages[*stage - 1];
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> ranks,
                            MaybeCount(arguments, "--nproc-per-node", 1, kMostRanks));
  parallel.ranks = ranks.value_or(1);
  if (split.value_or(1) > 1) {
    parallel.sharding = Sharding::kTensorParallel;
    if (parallel.ranks > 1 && parallel.ranks != *split) {
      return Error::Unsupported(
          Format("--tensor-parallel-size {} over {} ranks: only one group of ranks is "
                 "modelled: make the two equal",
                 *split, parallel.ranks));
    }
    parallel.ranks = *split;
  }
  if (parallel.ranks == 1 && parallel.sharding != Sharding::kNone) {
    return Error::BadInput(
        Format("{} shards over ranks: add --nproc-per-node 8", Name(parallel.sharding)));
  }
  if (parallel.ranks > 1 && parallel.sharding == Sharding::kNone) {
    parallel.sharding = Sharding::kDdp;
  }
  return {};
}

Status ReadDdp(const Arguments& arguments, Parallel& parallel) {
  HEADROOM_ASSIGN_OR_RETURN(parallel.ddp_bucket_cap_mb,
                            MaybeCount(arguments, "--ddp-bucket-cap-mb", 1, 1 << 20));
  if (const std::optional<std::string> text = arguments.Value("--ddp-find-unused-parameters")) {
    parallel.ddp_find_unused_parameters = *text != "false" && *text != "False";
  }
  const bool given = parallel.ddp_bucket_cap_mb || parallel.ddp_find_unused_parameters;
  if (given && parallel.sharding != Sharding::kDdp) {
    return Error::BadInput("--ddp-... needs DDP: add --nproc-per-node 8 and no other sharding");
  }
  parallel.activation_checkpointing = arguments.Has("--fsdp-activation-checkpointing");
  if (parallel.activation_checkpointing && parallel.sharding != Sharding::kFsdp) {
    return Error::BadInput("--fsdp-activation-checkpointing needs --fsdp");
  }
  return {};
}

Status ReadDeviceMap(const Arguments& arguments, ParallelOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> gpus,
                            MaybeCount(arguments, "--gpus", 1, kMostCards));
  options.gpus = gpus.value_or(1);
  const std::optional<std::string> map = arguments.Value("--device-map");
  if (!map) {
    if (gpus) return Error::BadInput("--gpus places a model over cards: add --device-map auto");
    return {};
  }
  if (*map == "auto" || *map == "balanced") {
    options.device_map = DeviceMapKind::kAuto;
  } else if (*map == "sequential") {
    options.device_map = DeviceMapKind::kSequential;
  } else {
    return Error::BadInput(Format("--device-map {}: choose auto or sequential", *map));
  }
  if (!arguments.Has("--gpu") && !arguments.Has("--memory")) {
    return Error::BadInput(
        "--device-map needs to know the cards: add --gpu H100 --gpus 8, or --memory 80GiB");
  }
  return {};
}

// {"batch": 8, "seq": 512}, without a JSON library: two known keys with whole numbers.
std::optional<BatchShape> ParseObject(std::string_view line, int64_t samples) {
  BatchShape shape{samples, 0};
  line.remove_prefix(1);
  line.remove_suffix(1);
  while (!line.empty()) {
    const size_t comma = std::min(line.find(','), line.size());
    std::string_view part = line.substr(0, comma);
    line.remove_prefix(std::min(comma + 1, line.size()));
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto trim = [](std::string_view text) {
      while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
      while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
      return text;
    };
    const std::string_view key = trim(part.substr(0, colon));
    const std::optional<int64_t> value = ParseCount(trim(part.substr(colon + 1)));
    if (!value) return std::nullopt;
    if (key == "\"batch\"") {
      shape.samples = *value;
    } else if (key == "\"seq\"") {
      shape.tokens = *value;
    } else {
      return std::nullopt;
    }
  }
  return shape;
}

}  // namespace

Result<std::vector<BatchShape>> ReadLengths(std::string_view text, std::string_view origin,
                                            int64_t samples) {
  std::vector<BatchShape> batches;
  for (int number = 1; !text.empty(); ++number) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    if (line.empty()) continue;
    std::optional<BatchShape> shape;
    if (line.front() == '{' && line.back() == '}') {
      shape = ParseObject(line, samples);
    } else if (const std::optional<int64_t> tokens = ParseCount(line)) {
      shape = BatchShape{samples, *tokens};
    }
    if (!shape) {
      return Error::BadInput(
          Format("{}:{}: neither a length nor {{\"batch\": 8, \"seq\": 512}}", origin, number));
    }
    if (shape->tokens < 1 || shape->tokens > kMostTokens || shape->samples < 1 ||
        shape->samples > (1 << 20)) {
      return Error::BadInput(Format("{}:{}: a batch has 1 to {} samples of 1 to {} tokens", origin,
                                    number, 1 << 20, kMostTokens));
    }
    batches.push_back(*shape);
    if (batches.size() > kMostBatches) {
      return Error::BadInput(Format("{}: more than {} batches: give a part of them, like head -{}",
                                    origin, kMostBatches, kMostBatches));
    }
  }
  if (batches.empty()) {
    return Error::BadInput(Format("{}: holds no lengths: write one a line", origin));
  }
  return batches;
}

// SFTConfig, TRL 1.16.0.
Status ReadTrainer(const Arguments& arguments, Recipe& recipe) {
  constexpr int64_t kMaxLength = 1024;
  const std::optional<std::string> name = arguments.Value("--trainer");
  if (!name || *name == "trainer") return {};
  if (*name != "sft") {
    return Error::BadInput(Format("--trainer {}: choose trainer or sft", *name));
  }
  recipe.sft_trainer = true;
  recipe.precision = Precision::kBf16;
  recipe.gradient_checkpointing = true;
  recipe.attention_mask = true;
  recipe.sequence_length = kMaxLength;
  return {};
}

Status ReadParallelOptions(const Arguments& arguments, ParallelOptions& options, Recipe& recipe) {
  HEADROOM_RETURN_IF_ERROR(ReadSharding(arguments, recipe));
  HEADROOM_RETURN_IF_ERROR(ReadDdp(arguments, recipe.parallel));
  HEADROOM_RETURN_IF_ERROR(ReadDeviceMap(arguments, options));
  options.lengths_path = arguments.Value("--lengths").value_or("");
  if (options.lengths_path.empty()) return {};
  if (arguments.Has("--seq") || arguments.Has("--steps")) {
    return Error::BadInput(
        "--lengths says how long and how many the batches are: leave out "
        "--seq and --steps");
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::string text,
                            ReadFile(options.lengths_path, kLargestLengths));
  HEADROOM_ASSIGN_OR_RETURN(
      recipe.batches, ReadLengths(text, options.lengths_path, recipe.per_device_train_batch_size));
  return {};
}

}  // namespace headroom::cli
