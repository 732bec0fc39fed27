// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/attention_plans.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/check.h"
#include "base/format.h"

namespace headroom::engine::cuda {

using graph::Graph;
using graph::Op;
using graph::OpKind;

AttentionPlans::AttentionPlans(AttentionLibrary* library, const Graph& graph, const CallOf& call_of)
    : library_(library), choice_of_(graph.ops().size(), -1) {
  StepScalars training;
  StepScalars evaluation;
  evaluation.training = false;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (op.kind != OpKind::kAttention && op.kind != OpKind::kAttentionBackward) continue;
    Choice choice{.op = i, .backward = op.kind == OpKind::kAttentionBackward};
    if (!op.scratch.empty()) choice.workspace = SizeOf(graph.tensor(op.scratch.back())).count();
    if (library_ != nullptr) {
      const auto plan = library_->Plan(call_of(i, training));
      if (plan.ok()) {
        choice.training = *plan;
      } else {
        choice.refusal = plan.error().message;
      }
      const auto other = choice.backward ? plan : library_->Plan(call_of(i, evaluation));
      if (other.ok()) choice.evaluation = *other;
    }
    choice_of_[i] = static_cast<int>(choices_.size());
    choices_.push_back(std::move(choice));
  }
  AgreeOnMasks(graph);
  MakeSeeds(graph);
}

AttentionPlans::~AttentionPlans() {
  cudaFree(requests_);
  cudaFree(seeds_);
}

void AttentionPlans::AgreeOnMasks(const Graph& graph) {
  std::map<uint32_t, std::string> refused;
  const auto drops = [&](const Choice& choice) {
    return graph.ops()[choice.op].attributes.dropout > 0;
  };
  const auto stream = [&](const Choice& choice) {
    return graph.ops()[choice.op].attributes.stream;
  };
  for (const Choice& choice : choices_) {
    if (drops(choice) && choice.training == nullptr) refused[stream(choice)] = choice.refusal;
  }
  for (Choice& choice : choices_) {
    const auto found = refused.find(stream(choice));
    if (!drops(choice) || found == refused.end()) continue;
    choice.training = nullptr;
    choice.refusal = found->second;
  }
}

// One for each stream and chunk of the batch, in the order of streams.
void AttentionPlans::MakeSeeds(const Graph& graph) {
  std::map<uint32_t, std::pair<size_t, int64_t>> streams;  // first seed, chunks
  std::vector<SeedRequest> requests;
  for (Choice& choice : choices_) {
    const graph::OpAttributes& attributes = graph.ops()[choice.op].attributes;
    if (choice.training == nullptr || attributes.dropout == 0) continue;
    const int64_t chunks = choice.training->chunks;
    const auto [found, is_new] =
        streams.try_emplace(attributes.stream, std::pair{requests.size(), chunks});
    HEADROOM_CHECK(found->second.second == chunks, "one mask, but different parts of the batch");
    choice.first_seed = found->second.first;
    for (int64_t chunk = 0; is_new && chunk < chunks; ++chunk) {
      requests.push_back({attributes.stream, static_cast<uint32_t>(chunk)});
    }
  }
  request_count_ = static_cast<int64_t>(requests.size());
  if (requests.empty()) return;
  const size_t bytes = requests.size() * sizeof(SeedRequest);
  const bool good =
      cudaMalloc(reinterpret_cast<void**>(&requests_), bytes) == cudaSuccess &&
      cudaMalloc(reinterpret_cast<void**>(&seeds_), 2 * requests.size() * sizeof(int64_t)) ==
          cudaSuccess &&
      cudaMemcpy(requests_, requests.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess;
  HEADROOM_CHECK(good, "no memory on the GPU for the seeds of dropout");
}

AttentionLaunch AttentionPlans::Of(size_t op, bool training) const {
  if (choice_of_[op] < 0) return {};
  const Choice& choice = choices_[static_cast<size_t>(choice_of_[op])];
  return {.library = library_,
          .plan = training ? choice.training : choice.evaluation,
          .seeds = seeds_ == nullptr ? nullptr : seeds_ + 2 * choice.first_seed};
}

void AttentionPlans::SetSeeds(const StepScalars* scalars, cudaStream_t stream) const {
  if (request_count_ > 0) SetDropoutSeeds(scalars, requests_, request_count_, seeds_, stream);
}

std::string AttentionPlans::Describe() const {
  int64_t served = 0;
  int64_t asked = 0;
  int64_t planned = 0;
  std::set<std::string> refusals;
  for (const Choice& choice : choices_) {
    if (!choice.refusal.empty()) refusals.insert(choice.refusal);
    planned = std::max(planned, choice.workspace);
    if (choice.training == nullptr) continue;
    ++served;
    asked = std::max(asked, choice.training->workspace_bytes);
  }
  std::string text = Format("{} of {} ops by {}, workspace {} of {}", served, choices_.size(),
                            library_ == nullptr ? "a library" : library_->version(),
                            FormatBytes(Bytes(asked)), FormatBytes(Bytes(planned)));
  for (const std::string& refusal : refusals) text += "\n  " + refusal;
  return text;
}

}  // namespace headroom::engine::cuda
