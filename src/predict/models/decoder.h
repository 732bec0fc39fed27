// SPDX-License-Identifier: Apache-2.0
//
// The decoder that Llama and its relatives share, run by options.
//
// DecoderLayout (model/decoder_layout.h) says which tensors a class has; DecoderOptions adds what
// its forward does with them. A class is a function that fills both in:
//
//   DecoderOptions Qwen2(const ModelConfig&) { return {.masks = DecoderOptions::Masks::kByLayer}; }
//   extern const Architecture kQwen2 = DecoderArchitecture<&Qwen2>("qwen2");
#pragma once

#include <memory>
#include <string_view>

#include "model/decoder_layout.h"
#include "predict/model.h"

namespace headroom::predict {

struct DecoderOptions {
  enum class Rotary {
    kWholeHead,
    kPart,          // Phi, StableLM: rotates rotary_dim of each head and joins the rest
    kPartInside,    // Phi 3: the same in apply_rotary_pos_emb, also when there is no rest
    kInFloat,       // OLMo: fp32 tables, the result cast back
    kThroughFloat,  // Cohere: queries and keys cast to fp32 and back
  };
  // How the statements of the projections follow one another, and so their backward.
  enum class Projections {
    kOneByOne,  // each projected, viewed and moved before the next
    kFirst,     // all projected, then each viewed and moved
    kViewed,    // all projected and viewed, then all moved
  };
  enum class Block {
    kSequential,
    kHoldingNames,   // StableLM: each result under a name of its own; in parallel on request
    kBranchesFirst,  // Phi: attention + feed-forward + residual
    kResidualFirst,  // Cohere: residual + attention + feed-forward
  };
  // Which masks the model makes.
  enum class Masks {
    kCausal,
    kSlidingIfSet,  // Mistral: the sliding one in its place where the config has a window
    kByLayer,       // Qwen 2: the causal one, and the sliding one where a layer asks for it
    kBoth,          // Gemma 2: always both
  };

  Rotary rotary = Rotary::kWholeHead;
  Projections projections = Projections::kOneByOne;
  Block block = Block::kSequential;
  Masks masks = Masks::kCausal;
  std::string_view activation = "hidden_act";  // the config's key

  double embedding_dropout = 0;
  bool embedding_dropout_replaces = false;  // inputs_embeds itself is rebound
  double residual_dropout = 0;  // of each half of a layer; StableLM: of the feed-forward
  double inner_dropout = 0;     // inside attention and feed-forward: StarCoder 2

  // Granite.
  bool scales_embedding = false;
  bool scales_residual = false;
  enum class LogitScale { kNone, kMultiply, kDivide };
  LogitScale logit_scale = LogitScale::kNone;

  // Gemma 2: tanh caps; attention's only where it runs eager.
  bool caps_attention = false;
  bool caps_logits = false;

  // Mixtures of experts.
  bool normalises_experts = false;     // divides the chosen probabilities by their sum
  bool casts_router_to_float = false;  // Mixtral: .float() before softmax, no cast after
};

// Fails (kUnsupported) where the config asks for something the options do not tell.
Result<std::unique_ptr<Model>> MakeDecoder(const ModelArguments& arguments,
                                           const DecoderOptions& options);

// The Architecture of a class whose options the function gives.
template <DecoderOptions (*kOptions)(const ModelConfig& config)>
constexpr Architecture DecoderArchitecture(std::string_view model_type) {
  return {
      .model_type = model_type,
      .accepts_loss_kwargs = [](Task) { return true; },
      // LOSS_MAPPING knows ...ForCausalLM, which shifts.
      .loss_shifts_labels = [](Task task) { return task == Task::kCausalLm; },
      .make =
          [](const ModelArguments& arguments) {
            return MakeDecoder(arguments, kOptions(arguments.config));
          },
      .caches = true,
  };
}

}  // namespace headroom::predict
