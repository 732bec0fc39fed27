// SPDX-License-Identifier: Apache-2.0
#include "train_data.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/format.h"
#include "default_task.h"
#include "engine/data/dataset.h"
#include "engine/files/config_text.h"
#include "make_plan.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using engine::Dataset;
using engine::Tokenizer;

constexpr double kValidationSplit = 0.05;
constexpr int64_t kDefaultSequence = 512;
// Synthetic tokens that are made at most: 1 GiB of them.
constexpr int64_t kMostTokens = int64_t{1} << 28;

class InputReader {
 public:
  explicit InputReader(TrainCommand& command) : command_(command) {}

  Result<TrainInputs> Read() {
    HEADROOM_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(command_.model));
    inputs_ = std::make_unique<TrainInputs>(
        TrainInputs{.name = model.name, .config = std::move(model.config)});
    FindFolder();
    DecideTask();
    HEADROOM_RETURN_IF_ERROR(FindTokenizer());
    HEADROOM_RETURN_IF_ERROR(CheckSamples());
    HEADROOM_RETURN_IF_ERROR(ReadExamples());
    SetClasses();
    HEADROOM_RETURN_IF_ERROR(SetMasking());
    return std::move(*inputs_);
  }

 private:
  const ModelConfig& config() const { return inputs_->config; }
  void Assume(std::string line) { inputs_->assumptions.push_back(std::move(line)); }

  void FindFolder() {
    const fs::path model = command_.model;
    std::error_code ignored;
    folder_ = fs::is_directory(model, ignored) ? model : model.parent_path();
    if (!fs::exists(model, ignored)) folder_.clear();
    if (command_.from_scratch || folder_.empty()) return;
    for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
      if (fs::exists(folder_ / name, ignored)) {
        inputs_->weights = folder_;
        return;
      }
    }
  }

  void DecideTask() {
    if (command_.task) {
      command_.train.task = *command_.task;
      return;
    }
    const DefaultTask task = DefaultTaskOf(config());
    command_.train.task = task.task;
    Assume(Format("task {}: {} (--task changes it)", Name(task.task), task.because));
  }

  // Only what reads texts and writes them has any to show.
  Status CheckSamples() const {
    const Task task = command_.train.task;
    if (command_.train.samples == 0) return {};
    if (task != Task::kCausalLm && task != Task::kSeq2SeqLm) {
      return Error::BadInput(Format("--samples: {} writes no text", Name(task)));
    }
    if (inputs_->tokenizer) return {};
    return Error::BadInput(
        "--samples: shows texts, and the data has none: train on a .txt or .tsv");
  }

  // The longest a sample may be.
  int64_t Limit() const {
    if (command_.train.sequence_length > 0) return command_.train.sequence_length;
    int64_t positions = config().MaybeInt("max_position_embeddings").value_or(kDefaultSequence);
    if (config().model_type() == "roberta") positions -= config().Int("pad_token_id") + 1;
    return std::min(positions, kDefaultSequence);
  }

  bool ReadsText() const {
    return !command_.synthetic && command_.train_file.extension() != ".jsonl";
  }

  Status FindTokenizer() {
    if (!ReadsText()) return {};
    const fs::path where = command_.tokenizer.empty() ? folder_ : command_.tokenizer;
    std::error_code ignored;
    bool there = !command_.tokenizer.empty();
    for (const char* name : {"tokenizer.json", "vocab.txt", "vocab.json"}) {
      there = there || fs::exists(where / name, ignored);
    }
    if (there) {
      HEADROOM_ASSIGN_OR_RETURN(inputs_->tokenizer, Tokenizer::Load(where));
      return CopyTokenizer(where);
    }
    if (!inputs_->weights.empty()) {
      return Error::BadInput(
          Format("{} has weights and no tokenizer.json, vocab.txt or vocab.json: "
                 "add --tokenizer",
                 folder_.string()));
    }
    return LearnTokenizer();
  }

  Status CopyTokenizer(const fs::path& where) {
    const fs::path folder = fs::is_directory(where) ? where : where.parent_path();
    std::error_code ignored;
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "vocab.txt", "vocab.json", "merges.txt"}) {
      if (!fs::exists(folder / name, ignored)) continue;
      HEADROOM_ASSIGN_OR_RETURN(inputs_->files[name], ReadFile(folder / name));
    }
    return {};
  }

  // The training file, or all .txt files of a folder.
  Result<std::string> TrainingText() const {
    std::error_code ignored;
    if (!fs::is_directory(command_.train_file, ignored)) {
      return ReadFile(command_.train_file, GiB(1));
    }
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(command_.train_file, ignored)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::string all;
    for (const fs::path& file : files) {
      HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, GiB(1)));
      all += text + "\n";
    }
    return all;
  }

  // Byte-pair merges of the training file, as many as the model's vocabulary has room for.
  Status LearnTokenizer() {
    HEADROOM_ASSIGN_OR_RETURN(const std::string text, TrainingText());
    std::vector<std::string> lines;
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      std::string line = text.substr(start, end - start);
      std::replace(line.begin(), line.end(), '\t', ' ');
      lines.push_back(std::move(line));
      start = end + 1;
    }
    const int64_t vocabulary = config().Int("vocab_size");
    std::vector<std::string> special = {"<s>", "<pad>", "</s>", "<unk>"};
    if (command_.train.task == Task::kMaskedLm) special.emplace_back("<mask>");
    HEADROOM_ASSIGN_OR_RETURN(inputs_->tokenizer, engine::TrainByteBpe(lines, vocabulary, special));
    Assume(Format("a byte-pair tokenizer of {} tokens, learnt from {} (--tokenizer changes it)",
                  inputs_->tokenizer->vocab_size(), command_.train_file.string()));
    for (auto& [name, text_of] : inputs_->tokenizer->Files()) {
      inputs_->files[name] = text_of;
    }
    return {};
  }

  int32_t PadId() const {
    if (inputs_->tokenizer && inputs_->tokenizer->special().pad) {
      return *inputs_->tokenizer->special().pad;
    }
    return static_cast<int32_t>(config().MaybeInt("pad_token_id").value_or(0));
  }

  int32_t IdOf(std::string_view key, std::optional<int32_t> of_tokenizer) const {
    if (of_tokenizer) return *of_tokenizer;
    return static_cast<int32_t>(config().MaybeInt(key).value_or(0));
  }

  Result<Dataset> ReadFileOf(const fs::path& path, const std::vector<std::string>& names) const {
    const Task task = command_.train.task;
    const std::string extension = path.extension().string();
    if (extension == ".jsonl") {
      return engine::LoadPretokenised(path, config().Int("vocab_size"));
    }
    if (extension == ".tsv" && task == Task::kSequenceClassification) {
      return engine::LoadClassificationTsv(path, *inputs_->tokenizer, Limit(), names);
    }
    if (extension == ".tsv" && task == Task::kSeq2SeqLm) {
      const engine::SpecialIds& special = inputs_->tokenizer->special();
      const std::optional<int32_t> start =
          config().Has("decoder_start_token_id")
              ? std::optional(static_cast<int32_t>(config().Int("decoder_start_token_id")))
              : std::nullopt;
      return engine::LoadTranslationTsv(path, *inputs_->tokenizer, Limit(),
                                        start ? *start : IdOf("bos_token_id", special.bos),
                                        IdOf("eos_token_id", special.eos));
    }
    if (task == Task::kCausalLm || task == Task::kMaskedLm) {
      return engine::LoadText(path, *inputs_->tokenizer, Limit(), task);
    }
    return Error::BadInput(
        Format("{}: {} learns from .tsv or .jsonl files", path.string(), Name(task)));
  }

  Status ReadExamples() {
    inputs_->data.pad_id = PadId();
    if (inputs_->tokenizer && inputs_->tokenizer->special().eos) {
      inputs_->data.end_id = *inputs_->tokenizer->special().eos;
    }
    if (command_.synthetic) {
      HEADROOM_ASSIGN_OR_RETURN(Dataset all, Synthetic());
      if (!command_.validation_split) {
        inputs_->data.train = std::move(all);
        return {};
      }
      return HoldBack(std::move(all), *command_.validation_split);
    }
    HEADROOM_ASSIGN_OR_RETURN(Dataset all, ReadFileOf(command_.train_file, {}));
    if (!command_.validation_file.empty()) {
      HEADROOM_ASSIGN_OR_RETURN(inputs_->data.evaluation,
                                ReadFileOf(command_.validation_file, all.label_names()));
      inputs_->data.train = std::move(all);
      return {};
    }
    return HoldBack(std::move(all), command_.validation_split.value_or(kValidationSplit));
  }

  Status HoldBack(Dataset all, double share) {
    if (share == 0 || all.size() < 2) {
      inputs_->data.train = std::move(all);
      return {};
    }
    auto [train, evaluation] = Split(all, share, command_.train.seed);
    train.set_label_names(all.label_names());
    if (!command_.validation_split) {
      Assume(Format("{} of {} examples are held back for evaluation (--validation-split)",
                    evaluation.size(), all.size()));
    }
    inputs_->data.train = std::move(train);
    inputs_->data.evaluation = std::move(evaluation);
    return {};
  }

  // Refuses before it makes what no model has positions, or no machine memory for.
  Result<Dataset> Synthetic() {
    if (command_.train.sequence_length == 0) command_.train.sequence_length = Limit();
    const int64_t positions = config().MaybeInt("max_position_embeddings").value_or(kMostTokens);
    if (command_.train.sequence_length > positions) {
      return Error::BadInput(Format("--seq {}: the model has {} positions",
                                    command_.train.sequence_length, positions));
    }
    const int64_t tokens =
        std::max(command_.train.sequence_length, command_.train.target_sequence_length);
    if (command_.dataset_rows > kMostTokens / tokens) {
      return Error::BadInput(Format("--dataset-rows {}: {} rows of {} tokens are the most",
                                    command_.dataset_rows, kMostTokens / tokens, tokens));
    }
    return engine::SyntheticDataset({.rows = command_.dataset_rows,
                                     .sequence = command_.train.sequence_length,
                                     .decoder_sequence = command_.train.target_sequence_length,
                                     .vocabulary = config().Int("vocab_size"),
                                     .task = command_.train.task,
                                     .seed = command_.train.seed});
  }

  // A classifier has as many classes as its data names.
  void SetClasses() {
    const Dataset& data = inputs_->data.train;
    const int64_t classes = data.LargestLabel() + 1;
    const bool classifies = command_.train.task == Task::kSequenceClassification;
    if (classifies && classes > config().Int("num_labels")) {
      inputs_->config = config().With("num_labels", std::to_string(classes));
      Assume(Format("num_labels {}: the data has so many classes", classes));
    }
    inputs_->files["config.json"] =
        engine::ConfigText(config(), command_.train.task, data.label_names());
  }

  Status SetMasking() {
    if (command_.train.task != Task::kMaskedLm) return {};
    engine::Masking& masking = inputs_->data.masking;
    masking.probability = 0.15F;
    masking.vocabulary = static_cast<int32_t>(config().Int("vocab_size"));
    if (!inputs_->tokenizer) {
      masking.mask_id = masking.vocabulary - 1;
      return {};
    }
    if (!inputs_->tokenizer->special().mask) {
      return Error::BadInput("masked-lm needs a tokenizer with a mask token: add --tokenizer");
    }
    masking.mask_id = *inputs_->tokenizer->special().mask;
    masking.special_ids = inputs_->tokenizer->AllSpecialIds();
    return {};
  }

  TrainCommand& command_;
  std::unique_ptr<TrainInputs> inputs_;
  fs::path folder_;
};

}  // namespace

Result<TrainInputs> ReadTrainInputs(TrainCommand& command) { return InputReader(command).Read(); }

}  // namespace headroom::cli
