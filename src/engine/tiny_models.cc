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

std::vector<TinyModel> TinyModels(int64_t vocabulary) {
  const std::string gpt2 = R"({"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 2,
    "n_head": 4, "n_positions": 40, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
    "initializer_range": 0.2})";
  const std::string llama = R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 40, "max_position_embeddings": 40, "rms_norm_eps": 1e-5,
    "initializer_range": 0.2})";
  std::vector<TinyModel> models = {
      {"bert classifier", Encoder("bert"), Task::kSequenceClassification},
      {"bert masked lm", Encoder("bert"), Task::kMaskedLm},
      {"roberta classifier", Encoder("roberta"), Task::kSequenceClassification},
      {"roberta masked lm", Encoder("roberta"), Task::kMaskedLm},
      {"gpt2", gpt2, Task::kCausalLm},
      {"llama", llama, Task::kCausalLm},
      {"bart", Seq2Seq("bart"), Task::kSeq2SeqLm},
      {"marian", Seq2Seq("marian"), Task::kSeq2SeqLm},
      {"mbart", Seq2Seq("mbart"), Task::kSeq2SeqLm}};
  for (TinyModel& model : models) {
    const std::string size = "\"vocab_size\": " + std::to_string(kVocabulary);
    model.config.replace(model.config.find(size), size.size(),
                         "\"vocab_size\": " + std::to_string(vocabulary));
  }
  return models;
}

TinyModel TinyModelOf(const std::string& name, int64_t vocabulary) {
  for (TinyModel& model : TinyModels(vocabulary)) {
    if (model.name == name) return std::move(model);
  }
  HEADROOM_CHECK(false, "no tiny model " + name);
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
  FillConstants(step_->model, *executor_);
  InitialiseWeights(*config, *executor_, seed);
  scalars_.seed = seed;
  scalars_.targets = FillTinyInputs(*executor_, options.model.rows.batch, seed);
}

float FillTinyInputs(const Executor& executor, int64_t batch, uint64_t seed,
                     int64_t first_sequence) {
  float targets = 0;
  for (size_t i = 0; i < executor.graph().tensors().size(); ++i) {
    const graph::Tensor& tensor = executor.graph().tensors()[i];
    if (tensor.role != graph::Role::kInput) continue;
    const TensorView& view = executor.View(static_cast<graph::TensorId>(i));
    const int64_t tokens = tensor.shape.NumElements() / batch;
    for (int64_t row = 0; row < batch; ++row) {
      const int64_t sequence = first_sequence + row;
      const int64_t padded = sequence % 2 == 0 ? 0 : kPadded;
      std::mt19937_64 random(seed + 1000 * static_cast<uint64_t>(sequence) + tensor.name.size());
      int32_t* values = view.As<int32_t>() + row * tokens;
      const bool labels = tensor.name == "labels";
      const bool small = tensor.name == "token_type_ids" || tokens == 1;
      for (int64_t k = 0; k < tokens; ++k) {
        values[k] = static_cast<int32_t>(random() % (small ? 2 : kVocabulary));
        if (labels && tokens > 1 && k >= tokens - padded) values[k] = -100;
        if (labels && values[k] >= 0) targets += 1;
      }
      if (tensor.name.ends_with("lengths")) {
        const graph::TensorId ids = executor.graph().Find(graph::Role::kInput, "input_ids");
        const int64_t all = executor.View(ids).shape.NumElements() / batch;
        values[0] = static_cast<int32_t>(all - padded);
      }
    }
  }
  return targets;
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

graph::MemoryPlan SeparateBuffers(const graph::Graph& graph) {
  graph::MemoryPlan plan;
  plan.offsets.resize(graph.tensors().size());
  for (size_t i = 0; i < plan.offsets.size(); ++i) {
    if (graph.tensors()[i].base) continue;
    plan.offsets[i] = plan.size;
    plan.size += RoundUp(SizeOf(graph.tensors()[i]), Bytes(256));
  }
  for (size_t i = 0; i < plan.offsets.size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (!tensor.base) continue;
    plan.offsets[i] = plan.offsets[graph::Index(*tensor.base)] +
                      Bytes(tensor.base_offset * ElementSize(tensor.dtype));
  }
  return plan;
}

}  // namespace headroom::engine
