// SPDX-License-Identifier: Apache-2.0
//
// peft 0.21: tuners/tuners_utils.py (check_target_module_exists, _maybe_include_all_linear_layers,
// _mark_only_adapters_as_trainable, cast_adapter_dtype), tuners/lora/layer.py, utils/other.py
// (_set_trainable), utils/constants.py, peft_model.py.
#include "model/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <unordered_map>

#include "base/format.h"

namespace headroom {
namespace {

constexpr std::string_view kAllLinear = "all-linear";
constexpr size_t kLongestPattern = 1000;

// TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.
struct DefaultTargets {
  std::string_view model_type;
  std::array<std::string_view, 4> names;
};
constexpr DefaultTargets kDefaultTargets[] = {
    {"bart", {"q_proj", "v_proj"}},
    {"bert", {"query", "value"}},
    {"bloom", {"query_key_value"}},
    {"codegen", {"qkv_proj"}},
    {"deberta", {"in_proj"}},
    {"deberta-v2", {"query_proj", "value_proj"}},
    {"electra", {"query", "value"}},
    {"falcon", {"query_key_value"}},
    {"gemma", {"q_proj", "v_proj"}},
    {"gemma2", {"q_proj", "v_proj"}},
    {"gemma3_text", {"q_proj", "v_proj"}},
    {"gpt2", {"c_attn"}},
    {"gpt_bigcode", {"c_attn"}},
    {"gpt_neo", {"q_proj", "v_proj"}},
    {"gpt_neox", {"query_key_value"}},
    {"gptj", {"q_proj", "v_proj"}},
    {"llama", {"q_proj", "v_proj"}},
    {"mistral", {"q_proj", "v_proj"}},
    {"mixtral", {"q_proj", "v_proj"}},
    {"mpt", {"Wqkv"}},
    {"mt5", {"q", "v"}},
    {"opt", {"q_proj", "v_proj"}},
    {"phi", {"q_proj", "v_proj", "fc1", "fc2"}},
    {"qwen2", {"q_proj", "v_proj"}},
    {"qwen3", {"q_proj", "v_proj"}},
    {"roberta", {"query", "value"}},
    {"stablelm", {"q_proj", "v_proj"}},
    {"t5", {"q", "v"}},
    {"xlm-roberta", {"query", "value"}},
};

// A path is one of `names` or ends with "." and one of them.
bool MatchesName(std::string_view path, std::span<const std::string> names) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    if (path == name) return true;
    return path.size() > name.size() && path.ends_with(name) &&
           path[path.size() - name.size() - 1] == '.';
  });
}

// (^|.*\.)name($|\..*): the module or one within it.
bool IsInside(std::string_view path, std::span<const std::string> names) {
  const std::string dotted = "." + std::string(path) + ".";
  return std::ranges::any_of(names, [&](const std::string& name) {
    return dotted.find("." + name + ".") != std::string::npos;
  });
}

// The number of the layer that a path lies in: the first that is all digits.
std::optional<int64_t> LayerOf(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    const bool digits = !part.empty() && part.size() < 10 &&
                        std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    if (digits) return std::stoll(std::string(part));
    begin = end + 1;
  }
  return std::nullopt;
}

std::vector<std::string> SavedModules(const LoraConfig& lora) {
  std::vector<std::string> names = lora.modules_to_save;
  if (lora.trains_classifier) {
    names.insert(names.end(), {"classifier", "score"});
  }
  return names;
}

// What decides whether a path is a target.
class Matcher {
 public:
  static Result<Matcher> Make(const LoraConfig& lora, const ModelConfig& model) {
    Matcher matcher(lora);
    if (lora.target_pattern == kAllLinear) return matcher;
    if (lora.target_pattern) {
      HEADROOM_RETURN_IF_ERROR(matcher.Compile(*lora.target_pattern));
      return matcher;
    }
    if (lora.target_modules) {
      matcher.names_ = *lora.target_modules;
      return matcher;
    }
    const auto known =
        std::ranges::find(kDefaultTargets, model.model_type(), &DefaultTargets::model_type);
    if (known == std::end(kDefaultTargets)) {
      return Error::BadInput(
          Format("PEFT has no default LoRA targets for model_type \"{}\": name "
                 "target_modules, for example all-linear",
                 model.model_type()));
    }
    for (const std::string_view name : known->names) {
      if (!name.empty()) matcher.names_.emplace_back(name);
    }
    return matcher;
  }

  bool operator()(const ModuleEntry& module) const {
    if (MatchesName(module.path, lora_.exclude_modules)) return false;
    if (IsInside(module.path, saved_)) return false;
    if (pattern_) return std::regex_match(module.path, *pattern_);
    if (lora_.target_pattern) {  // all-linear
      return module.kind != ModuleKind::kEmbedding && !IsOutputEmbedding(module.path);
    }
    return MatchesName(module.path, names_) && InLayers(module.path);
  }

 private:
  explicit Matcher(const LoraConfig& lora) : lora_(lora), saved_(SavedModules(lora)) {}

  Status Compile(const std::string& pattern) {
    if (pattern.size() > kLongestPattern) {
      return Error::BadInput("target_modules is a pattern of over 1000 characters: shorten it");
    }
    try {
      pattern_.emplace(pattern);
    } catch (const std::regex_error&) {
      return Error::BadInput(Format("target_modules \"{}\" is no regular expression", pattern));
    }
    return {};
  }

  bool InLayers(std::string_view path) const {
    if (lora_.layers_to_transform.empty()) return true;
    const std::optional<int64_t> layer = LayerOf(path);
    return layer &&
           std::ranges::find(lora_.layers_to_transform, *layer) != lora_.layers_to_transform.end();
  }

  LoraConfig lora_;
  std::vector<std::string> saved_;
  std::vector<std::string> names_;
  std::optional<std::regex> pattern_;
};

// The last part of each module's path, once each: what target_modules usually holds.
std::string ShortNames(const std::vector<ModuleEntry>& modules) {
  std::set<std::string> names;
  for (const ModuleEntry& module : modules) {
    names.insert(module.path.substr(module.path.rfind('.') + 1));
  }
  return Format("{}", fmt::join(names, ", "));
}

// ---- The adapted table ----

class Adapter {
 public:
  Adapter(const LoraConfig& lora, const ParameterTable& table,
          const std::vector<ModuleEntry>& targets)
      : lora_(lora), table_(table), saved_names_(SavedModules(lora)) {
    for (const ModuleEntry& target : targets) targets_.emplace(target.path, &target);
  }

  ParameterTable Run() {
    const std::vector<ParameterSpec>& entries = table_.entries();
    for (size_t i = 0; i < entries.size();) {
      classifies_ |=
          entries[i].name.starts_with("score.") || entries[i].name.starts_with("classifier.");
      const std::string saved = SavedModuleOf(entries[i].name);
      i = saved.empty() ? Plain(i) : Saved(i, saved);
    }
    AddTiedHead();
    return std::move(out_);
  }

 private:
  bool TrainsBias(const ParameterSpec& spec, bool adapted) const {
    if (!std::string_view(spec.name).ends_with("bias")) return false;
    return lora_.bias == LoraConfig::Bias::kAll ||
           (adapted && lora_.bias == LoraConfig::Bias::kLoraOnly);
  }

  // One parameter outside the saved modules; the adapter follows the module's last parameter.
  size_t Plain(size_t i) {
    ParameterSpec spec = table_.entries()[i];
    const std::string path(ParentPath(spec.name));
    const auto target = targets_.find(path);
    const bool adapted = target != targets_.end() && !spec.is_buffer;
    spec.frozen = !spec.is_buffer && !TrainsBias(spec, adapted);
    if (adapted) spec.name = path + ".base_layer" + spec.name.substr(path.size());
    out_.Add(spec);
    const bool last =
        i + 1 == table_.entries().size() || ParentPath(table_.entries()[i + 1].name) != path;
    if (adapted && last) AddAdapter(*target->second);
    return i + 1;
  }

  void AddAdapter(const ModuleEntry& module) {
    const auto add = [&](const std::string& name, const Shape& shape) {
      out_.Add(ParameterSpec{.name = module.path + name, .shape = shape, .dtype = DType::kFloat32});
    };
    if (module.kind == ModuleKind::kEmbedding) {
      add(".lora_embedding_A.default", {lora_.r, module.in});
      add(".lora_embedding_B.default", {module.out, lora_.r});
      return;
    }
    add(".lora_A.default.weight", {lora_.r, module.in});
    add(".lora_B.default.weight", {module.out, lora_.r});
    if (lora_.lora_bias) add(".lora_B.default.bias", {module.out});
  }

  // The outermost module around `name` whose path ends with a name of modules_to_save.
  std::string SavedModuleOf(const std::string& name) const {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const std::string path = name.substr(0, dot);
      const bool found = std::ranges::any_of(
          saved_names_, [&](const std::string& saved) { return path.ends_with(saved); });
      if (found) return path;
    }
    return {};
  }

  // ModulesToSaveWrapper: the module as it was, and after all of it a copy that is trained.
  size_t Saved(size_t begin, const std::string& path) {
    size_t end = begin;
    const std::vector<ParameterSpec>& entries = table_.entries();
    while (end < entries.size() && entries[end].name.starts_with(path + ".")) ++end;
    const auto copy = [&](const std::string& at, bool frozen) {
      for (size_t i = begin; i < end; ++i) {
        ParameterSpec spec = entries[i];
        spec.frozen = frozen && !spec.is_buffer && !TrainsBias(spec, false);
        spec.name = path + at + spec.name.substr(path.size());
        out_.Add(spec);
      }
    };
    copy(".original_module", true);
    copy(".modules_to_save.default", false);
    saved_head_ |= IsOutputEmbedding(path);
    return end;
  }

  // A head on the word embedding that is saved gets a weight of its own: the copy is not tied.
  void AddTiedHead() {
    const bool wanted = std::ranges::find(saved_names_, "lm_head") != saved_names_.end();
    if (!wanted || saved_head_ || classifies_) return;
    for (const ModuleEntry& module : ListModules(table_)) {
      if (module.kind != ModuleKind::kEmbedding) continue;
      out_.Add(ParameterSpec{.name = "lm_head.modules_to_save.default.weight",
                             .shape = {module.in, module.out}});
      return;
    }
  }

  const LoraConfig& lora_;
  const ParameterTable& table_;
  std::vector<std::string> saved_names_;
  std::unordered_map<std::string, const ModuleEntry*> targets_;
  bool saved_head_ = false;
  bool classifies_ = false;
  ParameterTable out_;
};

}  // namespace

Result<std::vector<ModuleEntry>> LoraTargets(const LoraConfig& lora, const ModelConfig& model,
                                             const std::vector<ModuleEntry>& modules) {
  HEADROOM_ASSIGN_OR_RETURN(const Matcher matches, Matcher::Make(lora, model));
  std::vector<ModuleEntry> targets;
  std::ranges::copy_if(modules, std::back_inserter(targets), matches);
  if (targets.empty()) {
    return Error::BadInput(
        Format("LoRA's target_modules match no module of this {}: choose from {}, or "
               "all-linear",
               model.model_type(), ShortNames(modules)));
  }
  return targets;
}

Result<ParameterTable> ApplyLora(const LoraConfig& lora, const ModelConfig& model,
                                 const ParameterTable& table) {
  HEADROOM_RETURN_IF_ERROR(CheckLoraConfig(lora));
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<ModuleEntry> targets,
                            LoraTargets(lora, model, ListModules(table)));
  return Adapter(lora, table, targets).Run();
}

std::string PathBeforeLora(const std::string& name) {
  for (const std::string_view part :
       {".lora_A.", ".lora_B.", ".lora_embedding_", ".original_module."}) {
    if (name.find(part) != std::string::npos) return {};
  }
  for (const std::string_view part : {".base_layer", ".modules_to_save.default"}) {
    const size_t at = name.find(part);
    if (at != std::string::npos) return std::string(name).erase(at, part.size());
  }
  return name;
}

}  // namespace headroom
