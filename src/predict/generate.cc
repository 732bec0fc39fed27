// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: generation/{utils,stopping_criteria}.py. Comparisons and sums of a few bytes
// that are gone within a statement are left out.
#include "predict/generate.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "model/kv_layout.h"
#include "predict/beams.h"
#include "predict/kv_cache.h"
#include "predict/ops.h"
#include "predict/token_choice.h"

namespace headroom::predict {
namespace {

// Whether generate knows this special token: the config names it or its class has a default.
bool HasSpecialToken(const ModelConfig& config, std::string_view name) {
  constexpr std::string_view kWithoutEnd[] = {"mpt", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"};
  constexpr std::string_view kWithoutBegin[] = {"marian", "mt5", "olmo", "olmo2", "pegasus", "t5"};
  if (config.Has(name)) return true;
  const std::string_view type = config.model_type();
  const auto lists = [type](const auto& types) {
    return std::find(std::begin(types), std::end(types), type) != std::end(types);
  };
  if (lists(kWithoutEnd)) return false;
  return name != "bos_token_id" || !lists(kWithoutBegin);
}

class GenerateRun {
 public:
  GenerateRun(Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
              const Recipe& recipe, Model& model)
      : runtime_(runtime),
        architecture_(architecture),
        config_(config),
        recipe_(recipe),
        options_(recipe.generation),
        model_(model) {}

  void Run() {
    runtime_.ledger().Mark("load", 0);
    const Scoped no_grad(runtime_.grad_enabled, false);
    const Scoped eval(runtime_.training, false);
    runtime_.phase = "prefill";
    Prepare();
    if (options_.num_beams > 1) {
      RunBeams();
    } else {
      RunSampling();
    }
  }

 private:
  int64_t rows() const { return recipe_.per_device_train_batch_size * options_.num_beams; }
  int64_t prompt() const { return recipe_.sequence_length; }

  // The first token ends the prefill, the last the decoding.
  void MarkAfter(int64_t token) {
    if (token == 0) runtime_.ledger().Mark("prefill", 0);
    if (token + 1 == options_.max_new_tokens) runtime_.ledger().Mark("decode", 0);
  }

  // Where the bookkeeping of generate() is reported.
  class Inputs {
   public:
    explicit Inputs(Runtime& runtime)
        : component_(runtime.component, Component::kInputs), kind_(runtime.kind, Kind::kOther) {}

   private:
    Scoped<Component> component_;
    Scoped<Kind> kind_;
  };

  // generate() up to the decoding method: special tokens, mask, positions, one row a beam, cache.
  void Prepare() {
    const Inputs scope(runtime_);
    const int64_t batch = recipe_.per_device_train_batch_size;
    ids_ = Empty(runtime_, {batch, prompt()}, DType::kInt64);
    attention_mask_ = EmptyLike(ids_);
    PrepareSpecialTokens();
    if (EncoderDecoder()) return PrepareDecoder();
    if (architecture_.takes_position_ids) position_ids_ = CountPositions(attention_mask_);
    flat_ids_ = ids_;
    if (options_.num_beams > 1) {
      given_mask_ = attention_mask_;
      flat_ids_ = RepeatInterleave(flat_ids_, options_.num_beams, 0);
      attention_mask_ = RepeatInterleave(attention_mask_, options_.num_beams, 0);
      if (position_ids_.defined()) {
        position_ids_ = RepeatInterleave(position_ids_, options_.num_beams, 0);
      }
    }
    prompt_mask_ = attention_mask_;
    prompt_positions_ = position_ids_;
    MakeCache();
  }

  bool EncoderDecoder() const { return recipe_.task == Task::kSeq2SeqLm; }
  // Positions that the decoder starts with: the prompt, or the one start token.
  int64_t first_length() const { return EncoderDecoder() ? 1 : prompt(); }

  // _prepare_encoder_decoder_kwargs_for_generation and the rest for encoder-decoders.
  void PrepareDecoder() {
    {
      inputs_.input_ids = ids_;
      inputs_.attention_mask = attention_mask_;
      const Scoped component(runtime_.component, Component::kActivations);
      inputs_.encoder_states = model_.Encode(inputs_);
      runtime_.module = ModuleId{};
    }
    flat_ids_ = Empty(runtime_, {ids_.size(0), 1}, DType::kInt64);
    if (options_.num_beams > 1) {
      given_mask_ = attention_mask_;
      flat_ids_ = RepeatInterleave(flat_ids_, options_.num_beams, 0);
      attention_mask_ = RepeatInterleave(attention_mask_, options_.num_beams, 0);
      inputs_.encoder_states = RepeatInterleave(inputs_.encoder_states, options_.num_beams, 0);
    }
    MakeCache();
  }

  // BLOOM's prepare_inputs_for_generation: biases of a static cache's whole length.
  Tensor MaskForModel() const {
    const bool pads = cache_ && cache_->is_static() && config_.model_type() == "bloom";
    if (!pads) return attention_mask_;
    const int64_t rest = prompt() + options_.max_new_tokens - 1 - attention_mask_.size(1);
    const Tensor zeros = Zeros(runtime_, {rows(), rest}, attention_mask_.dtype());
    const Tensor both[] = {attention_mask_, zeros};
    return Cat(both, 1);
  }

  // _prepare_special_tokens; the padding token comes from the caller or is the end-of-sequence one.
  void PrepareSpecialTokens() {
    if (EncoderDecoder()) special_tokens_.push_back(Empty(runtime_, {}, DType::kInt64));
    for (const char* name : {"bos_token_id", "eos_token_id"}) {
      if (HasSpecialToken(config_, name))
        special_tokens_.push_back(Empty(runtime_, {}, DType::kInt64));
    }
    has_eos_ = HasSpecialToken(config_, "eos_token_id");
    special_tokens_.push_back(Empty(runtime_, {}, DType::kInt64));
  }

  // _prepare_position_ids_for_generation: cumsum - 1, with zeros where the mask has them.
  static Tensor CountPositions(const Tensor& attention_mask) {
    Tensor positions;
    {
      const Tensor sums = CumSum(attention_mask);
      positions = AddScalar(sums);
    }
    const Tensor masked = CompareScalar(attention_mask);
    positions = MaskedFill(positions, masked);
    return positions;
  }

  void MakeCache() {
    if (!options_.use_cache) return;
    const int64_t layers = KvLayoutOf(config_).layers;
    const auto make = [&](int64_t length) {
      return options_.cache == CacheImplementation::kStatic
                 ? KeyValueCache::Static(config_, layers, length)
                 : KeyValueCache::Dynamic(config_, layers);
    };
    // max_cache_length: the last token is never written.
    cache_ = make(first_length() + options_.max_new_tokens - 1);
    if (EncoderDecoder()) cache_->set_cross_attention(make(prompt()));
  }

  // prepare_inputs_for_generation and the model's forward.
  Tensor Forward(const Tensor& sequences, int64_t take) {
    {
      const Inputs scope(runtime_);
      const int64_t end = sequences.size(1);
      inputs_.input_ids = Clone(Slice(sequences, 1, end - take, end));
      inputs_.attention_mask = MaskForModel();
      inputs_.position_ids = position_ids_;
      if (position_ids_.defined() && position_ids_.size(1) != take) {
        const int64_t counted = position_ids_.size(1);
        inputs_.position_ids = Clone(Slice(position_ids_, 1, counted - take, counted));
      }
    }
    inputs_.past_key_values = cache_.get();
    inputs_.logits_to_keep = 1;
    return model_.Forward(inputs_).logits;
  }

  // Of long generations the steps between are alike: they are passed over, all but a few.
  int64_t StepsToPass(int64_t token) const {
    if (token < kPlayedSteps) return 0;
    // The last step is always played.
    return std::min(StepsBetween(options_.max_new_tokens), options_.max_new_tokens - 1 - token);
  }

  // What `count` steps leave behind.
  void Pass(int64_t count) {
    if (count == 0) return;
    const auto extend = [count](Tensor& tensor) {
      if (!tensor.defined()) return;
      tensor = Empty(tensor.runtime(), {tensor.size(0), tensor.size(1) + count}, tensor.dtype());
    };
    const Inputs scope(runtime_);
    if (!EncoderDecoder()) extend(attention_mask_);
    extend(position_ids_);
    extend(flat_ids_);
    if (cache_) cache_->Pass(count);
  }

  // _update_model_kwargs_for_generation: a position and a one more.
  void Grow() {
    if (EncoderDecoder()) return;  // the encoder's mask stays, and the decoder has none
    const Inputs scope(runtime_);
    if (position_ids_.defined()) {
      Tensor next = Arange(runtime_, 1);
      next = Add(next, Slice(position_ids_, 1, -1, position_ids_.size(1)));
      next = AddScalar(next);
      const Tensor both[] = {position_ids_, next};
      position_ids_ = Cat(both, 1);
    }
    const Tensor one = Empty(runtime_, {attention_mask_.size(0), 1}, attention_mask_.dtype());
    const Tensor both[] = {attention_mask_, one};
    attention_mask_ = Cat(both, 1);
  }

  // generate turns min_new_tokens into a min_length as well: two processors, one after the other.
  Tensor ProcessScores(const Tensor& scores) const {
    Tensor processed = scores;
    if (options_.min_new_tokens && has_eos_) {
      processed = SuppressEnd(processed);
      processed = SuppressEnd(processed);
    }
    if (options_.do_sample) processed = KeepTopK(processed);
    return processed;
  }

  Tensor ChooseTokens(const Tensor& scores) {
    if (!options_.do_sample) return ArgMax(scores);
    // softmax, then multinomial of one draw: exponentials, divided and compared.
    probabilities_ = EmptyLike(scores);
    const Tensor draws = EmptyLike(scores);
    return ArgMax(draws);
  }

  // _sample: greedy search and sampling.
  void RunSampling() {
    Tensor unfinished;
    {
      const Inputs scope(runtime_);
      unfinished = Full(runtime_, {rows()}, DType::kInt64);
    }
    Tensor next_token_logits;
    Tensor next_token_scores;
    Tensor next_tokens;
    Tensor logits = Forward(flat_ids_, first_length());
    for (int64_t token = 0; token < options_.max_new_tokens; ++token) {
      if (token > 0) {
        runtime_.phase = "decode";
        const int64_t passed = StepsToPass(token);
        Pass(passed);
        token += passed;
        logits = Forward(flat_ids_, options_.use_cache ? 1 : flat_ids_.size(1));
      }
      runtime_.module = ModuleId{};
      Grow();
      {
        const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
        next_token_logits = LastLogits(logits);
        next_token_scores = ProcessScores(next_token_logits);
        next_tokens = ChooseTokens(next_token_scores);
      }
      const Inputs scope(runtime_);
      if (has_eos_)
        next_tokens = Elementwise("aten::add", std::span(&next_tokens, 1), DType::kInt64);
      const Tensor both[] = {flat_ids_, Unsqueeze(next_tokens, 1)};
      flat_ids_ = Cat(both, 1);
      unfinished = Elementwise("aten::bitwise_and", std::span(&unfinished, 1), DType::kInt64);
      MarkAfter(token);
      logits = Tensor();
    }
  }

  // _beam_search.
  void RunBeams() {
    BeamState beams(runtime_, {.batch = recipe_.per_device_train_batch_size,
                               .beams = options_.num_beams,
                               .prompt = first_length(),
                               .max_length = first_length() + options_.max_new_tokens,
                               .end_tokens = has_eos_ ? 1 : 0});
    Tensor logits;
    Tensor log_probabilities;
    Tensor model_logits = Forward(flat_ids_, first_length());
    for (int64_t token = 0; token < options_.max_new_tokens; ++token) {
      const int64_t passed = StepsToPass(token);
      Pass(passed);
      token += passed;
      const int64_t length = first_length() + token;
      if (token > 0) {
        runtime_.phase = "decode";
        flat_ids_ = beams.FlatSequences(length);
        model_logits = Forward(flat_ids_, options_.use_cache ? 1 : length);
      }
      runtime_.module = ModuleId{};
      Grow();
      {
        const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
        logits = LastLogits(model_logits);
        log_probabilities = EmptyLike(logits);
        log_probabilities = ProcessScores(log_probabilities);
        model_logits = Tensor();
        log_probabilities = AddScalar(log_probabilities);  // the running scores, broadcast
      }
      const Inputs scope(runtime_);
      const Tensor chosen = beams.Step();
      if (cache_) cache_->Reorder(chosen);
      MarkAfter(token);
    }
  }

  Runtime& runtime_;
  const Architecture& architecture_;
  const ModelConfig& config_;
  const Recipe& recipe_;
  const Generation& options_;
  Model& model_;

  // Names of generate()'s frames.
  Tensor ids_;
  Tensor given_mask_;
  Tensor prompt_mask_;
  Tensor prompt_positions_;
  std::vector<Tensor> special_tokens_;
  bool has_eos_ = false;

  // What grows: model_kwargs, and the sequences so far.
  Tensor flat_ids_;
  Tensor attention_mask_;
  Tensor position_ids_;
  std::unique_ptr<KeyValueCache> cache_;
  Batch inputs_;
  Tensor probabilities_;
};

}  // namespace

Status CheckGenerate(const Architecture& architecture, const ModelConfig& config,
                     const Recipe& recipe) {
  if (!architecture.caches) {
    return Error::Unsupported(
        Format("generation with model_type \"{}\" is not modelled: leave --generate out to plan "
               "its training",
               architecture.model_type));
  }
  if (recipe.task != Task::kCausalLm && recipe.task != Task::kSeq2SeqLm) {
    return Error::BadInput(
        Format("a model for {} does not generate: use --task causal-lm", Name(recipe.task)));
  }
  const Generation& options = recipe.generation;
  if (options.max_new_tokens < 1) return Error::BadInput("max_new_tokens must be at least 1");
  if (recipe.quantization.kind != Quantization::Kind::kNone && recipe.task == Task::kSeq2SeqLm) {
    return Error::Unsupported("quantised weights of encoder-decoders are not modelled");
  }
  const bool is_static = options.use_cache && options.cache == CacheImplementation::kStatic;
  if (is_static && config.MaybeBool("alibi").value_or(false)) {
    return Error::BadInput(
        "falcon with alibi cannot use a static cache (its biases take a mask of two dimensions): "
        "use --cache-implementation dynamic");
  }
  if (options.num_beams < 1) return Error::BadInput("num_beams must be at least 1");
  return {};
}

Status RunGenerate(Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
                   const Recipe& recipe, Model& model) {
  GenerateRun(runtime, architecture, config, recipe, model).Run();
  return {};
}

}  // namespace headroom::predict
