// SPDX-License-Identifier: Apache-2.0
#include "cuda_parity_cases.h"

#include <cstdio>
#include <map>
#include <utility>

namespace headroom::engine {
namespace {

// The configuration with other values of these keys.
std::string With(std::string config, const std::map<std::string, int>& values) {
  for (const auto& [key, value] : values) {
    const std::string name = "\"" + key + "\": ";
    const size_t at = config.find(name) + name.size();
    config.replace(at, config.find_first_of(",}", at) - at, std::to_string(value));
  }
  return config;
}

// Sizes at which the tensor-core kernels and vectors of 8 serve, beside the tiny ones.
std::vector<TinyModel> Models() {
  const std::string bert = R"({"model_type": "bert", "vocab_size": 128, "hidden_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256,
    "max_position_embeddings": 256, "type_vocab_size": 2, "num_labels": 3, "pad_token_id": 1,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.1})";
  const std::string gpt2 = R"({"model_type": "gpt2", "vocab_size": 128, "n_embd": 256, "n_layer": 2,
    "n_head": 2, "n_positions": 256, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
    "initializer_range": 0.1})";
  const std::string llama = R"({"model_type": "llama", "vocab_size": 128, "hidden_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 192, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "initializer_range": 0.1})";
  const std::string bart = R"({"model_type": "bart", "vocab_size": 128, "d_model": 128,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "max_position_embeddings": 256, "dropout": 0.1, "attention_dropout": 0.1,
    "activation_dropout": 0.1, "activation_function": "gelu", "scale_embedding": true,
    "pad_token_id": 1, "init_std": 0.1})";
  std::vector<TinyModel> models = {{"bert wide classifier", bert, Task::kSequenceClassification},
                                   {"bert wide masked lm", bert, Task::kMaskedLm},
                                   {"gpt2 wide", gpt2, Task::kCausalLm},
                                   {"llama wide", llama, Task::kCausalLm},
                                   {"bart wide", bart, Task::kSeq2SeqLm}};
  // Heads and lengths of attention by products; GPT-2's in float32 alone.
  const std::vector<TinyModel> products = {
      {"bert products", With(bert, {{"hidden_size", 256}, {"num_attention_heads", 8}}),
       Task::kSequenceClassification},
      {"gpt2 products", With(gpt2, {{"n_head", 4}}), Task::kCausalLm},
      {"llama products", With(llama, {{"num_attention_heads", 8}, {"num_key_value_heads", 4}}),
       Task::kCausalLm},
      {"bart products",
       With(bart,
            {{"d_model", 256}, {"encoder_attention_heads", 8}, {"decoder_attention_heads", 8}}),
       Task::kSeq2SeqLm}};
  models.insert(models.end(), products.begin(), products.end());
  const std::vector<TinyModel> tiny = TinyModels(64);
  models.insert(models.end(), tiny.begin(), tiny.end());
  return models;
}

}  // namespace

bool ParsePart(const std::string& text, Selection& selection) {
  long long part = 0;
  long long parts = 0;
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%lld/%lld%n", &part, &parts, &end);
  if (read != 2 || static_cast<size_t>(end) != text.size()) return false;
  selection.part = part - 1;
  selection.parts = parts;
  return part >= 1 && part <= parts;
}

bool IsWide(const TinyModel& model) { return model.name.find("wide") != std::string::npos; }

std::vector<Case> Cases(const Selection& selection) {
  std::vector<Case> cases;
  int64_t number = 0;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const TinyModel& model : Models()) {
      const bool chosen = model.name == "bert wide classifier" || model.name == "llama wide" ||
                          model.name == "llama products";
      if (selection.quick && (precision != Precision::kBf16 || !chosen)) continue;
      if (number++ % selection.parts != selection.part) continue;
      Case test{model, TinyOptions(model)};
      const bool wide = IsWide(model);
      if (wide) test.options.model.rows.sequence = 100;
      if (wide && model.task == Task::kSeq2SeqLm) test.options.model.target_sequence = 72;
      const bool products = model.name.find("products") != std::string::npos;
      if (products) test.options.model.rows.sequence = 158;
      if (products && model.task == Task::kSeq2SeqLm) test.options.model.target_sequence = 136;
      test.options.precision = precision;
      test.options.cuda = true;
      test.options.model.loss_chunk_rows = 64;
      test.options.gradient_accumulation_steps = 2;
      cases.push_back(std::move(test));
    }
  }
  return cases;
}

}  // namespace headroom::engine
