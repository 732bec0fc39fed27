// SPDX-License-Identifier: Apache-2.0
#include "predict/parallel_notes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/format.h"

namespace headroom::predict {
namespace {

// The order of magnitude that people report for a world group; no run of ours had one.
constexpr Bytes kNccl = MiB(400);

// transformers 5.17.0 names the embeddings of these classes in _no_split_modules.
constexpr std::array<std::string_view, 5> kWrapsEmbeddings = {"bert", "camembert", "modernbert",
                                                              "roberta", "xlm-roberta"};

std::string DdpLine(const Recipe& recipe) {
  const Parallel& parallel = recipe.parallel;
  const bool find_unused =
      parallel.ddp_find_unused_parameters.value_or(!recipe.gradient_checkpointing);
  std::string line =
      Format("DDP keeps the gradients twice: beside them the buckets that are reduced (of {} MiB)",
             parallel.ddp_bucket_cap_mb.value_or(25));
  if (find_unused) {
    line += "; with find_unused_parameters, Trainer's default, it also copies the model's outputs";
  }
  return line;
}

std::string FsdpLine(const Recipe& recipe) {
  return Format(
      "FSDP2 as accelerate 1.15.0 wraps it: a unit for each layer, the embedding, and norm with "
      "head; parameters {} after forward",
      recipe.parallel.reshard_after_forward ? "are freed" : "stay");
}

std::string ZeroLine(const Recipe& recipe) {
  return Format(
      "not measured: {} follows DeepSpeed's description, with reduce_bucket_size \"auto\" (hidden "
      "size squared), overlap_comm and no offload",
      Name(recipe.parallel.sharding));
}

std::string TensorParallelLine(const ModelConfig& config) {
  const bool tied = config.MaybeBool("tie_word_embeddings").value_or(false);
  return Format(
      "tensor parallelism by transformers' tp_plan: heads and MLP are split, embedding and norms "
      "whole{}; copies that all-reduces make for a moment are not counted",
      tied ? ", the tied head too (not measured)" : "");
}

}  // namespace

std::vector<std::string> ParallelAssumptions(const Recipe& recipe, const ModelConfig& config) {
  std::vector<std::string> lines;
  if (recipe.sft_trainer) {
    lines.emplace_back(
        "not measured: SFTTrainer of TRL 1.16.0, whose fused head never holds the logits; no "
        "packing");
  }
  if (recipe.parallel.ranks <= 1) return lines;
  lines.push_back(Format("figures are those of rank 0 of {}, which has the largest share",
                         recipe.parallel.ranks));
  switch (recipe.parallel.sharding) {
    case Sharding::kDdp:
      lines.push_back(DdpLine(recipe));
      break;
    case Sharding::kFsdp:
      lines.push_back(FsdpLine(recipe));
      if (std::find(kWrapsEmbeddings.begin(), kWrapsEmbeddings.end(), config.model_type()) !=
          kWrapsEmbeddings.end()) {
        lines.push_back(
            "accelerate 1.15.0 fails to wrap this class by itself (its embeddings stand in "
            "_no_split_modules): name the layer in fsdp_config's transformer_layer_cls_to_wrap");
      }
      break;
    case Sharding::kZero1:
    case Sharding::kZero2:
    case Sharding::kZero3:
      lines.push_back(ZeroLine(recipe));
      break;
    case Sharding::kTensorParallel:
      lines.push_back(TensorParallelLine(config));
      break;
    case Sharding::kNone:
      break;
  }
  lines.emplace_back("NCCL's own memory is not measured; 400 MiB are assumed");
  return lines;
}

std::vector<ContextPart> ParallelContext(const Recipe& recipe) {
  if (recipe.parallel.ranks <= 1) return {};
  return {{"NCCL (not measured)", kNccl}};
}

}  // namespace headroom::predict
