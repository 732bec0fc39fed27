// SPDX-License-Identifier: Apache-2.0
#include "engine/tiny_models.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/check.h"
#include "engine/initialise.h"

namespace headroom::engine {
namespace {

constexpr int64_t kVocabulary = 61;
constexpr int64_t kPadded = 5;  // tokens at the end of the second sequence

std::string Encoder(const std::string& type) {
  return R"({"model_type": ")" + type + R"(", "vocab_size": 61, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40, "type_vocab_size": 2, "num_labels": 3, "pad_token_id": 1,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.2})";
}

std::string Seq2Seq(const std::string& type) {
  return R"({"model_type": ")" + type + R"(", "vocab_size": 61, "d_model": 32,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "max_position_embeddings": 40, "dropout": 0.1, "attention_dropout": 0.1,
    "activation_dropout": 0.1, "activation_function": "relu", "scale_embedding": true,
    "pad_token_id": 1, "init_std": 0.2})";
}

}  // namespace

std::vector<TinyModel> TinyModels() {
  const std::string gpt2 = R"({"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 2,
    "n_head": 4, "n_positions": 40, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
    "initializer_range": 0.2})";
  const std::string llama = R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 40, "max_position_embeddings": 40, "rms_norm_eps": 1e-5,
    "initializer_range": 0.2})";
  return {{"bert classifier", Encoder("bert"), Task::kSequenceClassification},
          {"bert masked lm", Encoder("bert"), Task::kMaskedLm},
          {"roberta classifier", Encoder("roberta"), Task::kSequenceClassification},
          {"roberta masked lm", Encoder("roberta"), Task::kMaskedLm},
          {"gpt2", gpt2, Task::kCausalLm},
          {"llama", llama, Task::kCausalLm},
          {"bart", Seq2Seq("bart"), Task::kSeq2SeqLm},
          {"marian", Seq2Seq("marian"), Task::kSeq2SeqLm},
          {"mbart", Seq2Seq("mbart"), Task::kSeq2SeqLm}};
}

NativeOptions TinyOptions(const TinyModel& model) {
  NativeOptions options;
  options.model.task = model.task;
  options.model.rows = {.batch = 2, .sequence = 12};
  options.model.target_sequence = model.task == Task::kSeq2SeqLm ? 10 : 0;
  return options;
}

TinyRun::TinyRun(const TinyModel& model, NativeOptions options, uint64_t seed) {
  Result<ModelConfig> config = ModelConfig::FromJson(model.config, model.name);
  HEADROOM_CHECK(config.ok(), config.error().message);
  Result<NativeStep> step = PlanTrainingStep(*config, options);
  HEADROOM_CHECK(step.ok(), step.error().message);
  step_ = std::make_unique<NativeStep>(std::move(*step));
  Result<HostArena> arena = HostArena::Create(step_->plan.size);
  HEADROOM_CHECK(arena.ok(), arena.error().message);
  arena_ = std::move(*arena);
  executor_ = std::make_unique<Executor>(step_->graph(), step_->plan, arena_.bytes());
  for (const auto& [tensor, values] : step_->model.constants) {
    std::copy(values.begin(), values.end(), executor_->View(tensor).As<float>());
  }
  InitialiseWeights(*config, *executor_, seed);
  scalars_.seed = seed;
  FillInputs(seed);
}

void TinyRun::FillInputs(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < step_->graph().tensors().size(); ++i) {
    const graph::Tensor& tensor = step_->graph().tensors()[i];
    if (tensor.role != graph::Role::kInput) continue;
    auto* values = executor_->View(static_cast<graph::TensorId>(i)).As<int32_t>();
    const auto count = static_cast<size_t>(tensor.shape.NumElements());
    const bool lengths = tensor.name.ends_with("lengths");
    const bool small = tensor.name == "token_type_ids" || (tensor.name == "labels" && count == 2);
    for (size_t k = 0; k < count; ++k) {
      values[k] = static_cast<int32_t>(random() % (small ? 2 : kVocabulary));
    }
    const auto row = static_cast<int32_t>(count / 2);
    if (lengths) {
      values[0] = 12;
      values[1] = 12 - static_cast<int32_t>(kPadded);
    } else if (tensor.name == "labels" && count > 2) {
      for (int32_t k = 0; k < kPadded; ++k) values[2 * row - 1 - k] = -100;
    }
    if (tensor.name != "labels") continue;
    scalars_.targets =
        static_cast<float>(std::count_if(values, values + count, [](int32_t v) { return v >= 0; }));
  }
}

float TinyRun::ForwardBackward(int micro_step) {
  scalars_.micro_step = micro_step;
  float* loss = executor_->View(step_->model.loss).As<float>();
  if (micro_step == 0) *loss = 0;
  const auto ops = step_->graph().ops();
  for (size_t i = 0; i < ops.size() && ops[i].phase != graph::Phase::kOptimizer; ++i) {
    if (poison_) executor_->Poison(i);
    executor_->RunOps(i, i + 1, scalars_);
  }
  return *loss / scalars_.targets;
}

void TinyRun::Update(float learning_rate) {
  scalars_.learning_rate = learning_rate;
  executor_->Run(graph::Phase::kOptimizer, scalars_);
  ++scalars_.step;
}

std::vector<std::byte> TinyRun::BytesOf(bool gradients) const {
  std::vector<std::byte> bytes;
  for (const graph::Parameter& parameter : step_->graph().parameters()) {
    const graph::TensorId id = gradients ? parameter.gradient : parameter.truth();
    const std::byte* data = executor_->View(id).data;
    bytes.insert(bytes.end(), data, data + SizeOf(step_->graph().tensor(id)).count());
  }
  return bytes;
}

std::vector<std::byte> TinyRun::Gradients() const { return BytesOf(true); }
std::vector<std::byte> TinyRun::Weights() const { return BytesOf(false); }

}  // namespace headroom::engine
