// SPDX-License-Identifier: Apache-2.0
//
// Formulas follow models/*/configuration_*.py and modeling_rope_utils.py of transformers 5.17.0.
#include "model/config_derive.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "model/json_text.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

bool IsAnyOf(std::string_view text, std::initializer_list<std::string_view> choices) {
  for (const std::string_view choice : choices) {
    if (text == choice) return true;
  }
  return false;
}

// Null stands for absent: either way the class falls back on its formula.
bool IsSet(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

int64_t IntOr(const Json& object, const char* key, int64_t otherwise) {
  return IsSet(object, key) && object[key].is_number_integer() ? object[key].get<int64_t>()
                                                               : otherwise;
}

bool BoolOr(const Json& object, const char* key, bool otherwise) {
  return IsSet(object, key) && object[key].is_boolean() ? object[key].get<bool>() : otherwise;
}

void SetIfNull(Json& attributes, const char* key, const Json& value) {
  if (!IsSet(attributes, key)) attributes[key] = value;
}

// ---- Sizes ----

// Only attributes that the class declares are filled in; the others would be news to its code.
void FillDeclared(Json& attributes, const char* key, int64_t value) {
  if (attributes.contains(key) && attributes[key].is_null()) attributes[key] = value;
}

Status DeriveSizes(std::string_view type, Json& attributes) {
  const auto rename_n_embed = [&](const char* to) {
    if (IsSet(attributes, "n_embed")) attributes[to] = attributes["n_embed"];
    attributes.erase("n_embed");
  };
  if (type == "bloom" || type == "falcon") rename_n_embed("hidden_size");

  const char* hidden_key = attributes.contains("n_embd") ? "n_embd" : "hidden_size";
  const char* heads_key = attributes.contains("n_head") ? "n_head" : "num_attention_heads";
  const int64_t hidden = IntOr(attributes, hidden_key, 0);
  const int64_t heads = IntOr(attributes, heads_key, 0);
  if (heads > 0) {
    const bool derives_head_dim =
        attributes.contains("head_dim") && attributes["head_dim"].is_null();
    if (derives_head_dim && hidden < heads) {
      return Error::BadInput(
          Format("\"{}\" is {}, less than the {} of \"{}\"", hidden_key, hidden, heads, heads_key));
    }
    FillDeclared(attributes, "head_dim", hidden / heads);
    if (type == "gpt_bigcode") {
      const int64_t kv_heads = BoolOr(attributes, "multi_query", true) ? 1 : heads;
      FillDeclared(attributes, "num_key_value_heads", kv_heads);
    }
    FillDeclared(attributes, "num_key_value_heads", heads);
    FillDeclared(attributes, "num_kv_heads", heads);
  }
  FillDeclared(attributes, "n_inner", 4 * hidden);
  FillDeclared(attributes, "ffn_hidden_size", 4 * hidden);
  if (type == "gpt_neo") FillDeclared(attributes, "intermediate_size", 4 * hidden);
  FillDeclared(attributes, "word_embed_proj_dim", hidden);
  FillDeclared(attributes, "pooler_hidden_size", hidden);
  FillDeclared(attributes, "pooler_output_size", hidden);
  if (type.starts_with("deberta")) FillDeclared(attributes, "embedding_size", hidden);
  if (attributes.contains("decoder_vocab_size")) {
    FillDeclared(attributes, "decoder_vocab_size", IntOr(attributes, "vocab_size", 0));
  }
  return {};
}

Status DeriveT5(Json& attributes) {
  FillDeclared(attributes, "num_decoder_layers", IntOr(attributes, "num_layers", 0));
  const std::string projection = attributes.value("feed_forward_proj", "relu");
  const size_t dash = projection.rfind('-');
  if (dash != std::string::npos && projection.substr(0, dash) != "gated") {
    return Error::BadInput(
        Format("\"feed_forward_proj\" must be an activation such as \"relu\" or "
               "\"gated-gelu\", not {}",
               Quoted(projection)));
  }
  const std::string act = dash == std::string::npos ? projection : projection.substr(dash + 1);
  SetIfNull(attributes, "dense_act_fn", projection == "gated-gelu" ? "gelu_new" : act);
  SetIfNull(attributes, "is_gated_act", projection.starts_with("gated-"));
  if (attributes.contains("scale_decoder_outputs")) {
    SetIfNull(attributes, "scale_decoder_outputs", BoolOr(attributes, "tie_word_embeddings", true));
  }
  attributes["tie_word_embeddings"] = true;
  return {};
}

// ---- Lists with an entry per layer ----

template <typename IsSliding>
void SetLayerTypes(Json& attributes, IsSliding is_sliding) {
  if (IsSet(attributes, "layer_types")) return;
  Json layer_types = Json::array();
  const int64_t layers = IntOr(attributes, "num_hidden_layers", 0);
  for (int64_t i = 0; i < layers; ++i) {
    layer_types.push_back(is_sliding(i) ? "sliding_attention" : "full_attention");
  }
  attributes["layer_types"] = std::move(layer_types);
}

void DeriveQwenLayers(std::string_view type, Json& attributes) {
  const bool slides = BoolOr(attributes, "use_sliding_window", false);
  if (!slides) attributes["sliding_window"] = type == "qwen2_moe" ? Json(0) : Json(nullptr);
  if (type.ends_with("_moe")) SetIfNull(attributes, "mlp_only_layers", Json::array());
  const bool has_window = IsSet(attributes, "sliding_window");
  const int64_t bound = IntOr(attributes, "max_window_layers", 0);
  if (type == "qwen3_moe") return;
  SetLayerTypes(attributes, [&](int64_t i) {
    if (type == "qwen2_moe") return slides && i < bound && (i + 1) % 2 != 0;
    return has_window && i >= bound;
  });
}

Status DeriveSmolLm3Layers(Json& attributes) {
  const int64_t layers = IntOr(attributes, "num_hidden_layers", 0);
  const int64_t interval = IntOr(attributes, "no_rope_layer_interval", 4);
  if (!IsSet(attributes, "no_rope_layers")) {
    Json rope = Json::array();
    for (int64_t i = 0; i < layers; ++i) rope.push_back((i + 1) % interval != 0 ? 1 : 0);
    attributes["no_rope_layers"] = std::move(rope);
  }
  const Json rope = attributes["no_rope_layers"];
  if (static_cast<int64_t>(rope.size()) != layers) {
    return Error::BadInput(
        Format("\"no_rope_layers\" has {} entries for {} layers", rope.size(), layers));
  }
  const bool slides =
      BoolOr(attributes, "use_sliding_window", false) && IsSet(attributes, "sliding_window");
  SetLayerTypes(attributes, [&](int64_t i) { return slides && rope[static_cast<size_t>(i)] == 0; });
  return {};
}

// GPTNeoConfig.expand_attention_types_params: [[["global", "local"], 6]] is 12 layers.
Status DeriveGptNeoLayers(Json& attributes) {
  const Json default_types = Json::array({Json::array({Json::array({"global", "local"}), 12})});
  SetIfNull(attributes, "attention_types", default_types);
  const int64_t layers = IntOr(attributes, "num_layers", 0);
  Json expanded = Json::array();
  for (const Json& item : attributes["attention_types"]) {
    const bool well_formed =
        item.is_array() && item.size() == 2 && item[0].is_array() && item[1].is_number_integer();
    if (!well_formed) {
      return Error::BadInput(
          Format("\"attention_types\" must look like [[[\"global\", \"local\"], 12]], not {}",
                 Shown(attributes["attention_types"])));
    }
    for (const Json& kind : item[0]) {
      if (!kind.is_string() || !IsAnyOf(kind.get_ref<const std::string&>(), {"global", "local"})) {
        return Error::BadInput(
            Format("\"attention_types\" knows \"global\" and \"local\", not {}", Shown(kind)));
      }
    }
    const int64_t times = item[1].get<int64_t>();
    for (int64_t i = 0; i < times && !item[0].empty(); ++i) {
      if (static_cast<int64_t>(expanded.size()) > layers) break;
      for (const Json& kind : item[0]) expanded.push_back(kind);
    }
  }
  if (static_cast<int64_t>(expanded.size()) != layers) {
    return Error::BadInput(Format(
        "\"attention_types\" describes {} layers, \"num_layers\" is {}: set both",
        static_cast<int64_t>(expanded.size()) > layers ? "more" : std::to_string(expanded.size()),
        layers));
  }
  attributes["attention_layers"] = std::move(expanded);
  return {};
}

Status DeriveLayers(std::string_view type, Json& attributes) {
  if (type.starts_with("qwen")) {
    DeriveQwenLayers(type, attributes);
  } else if (type == "gemma2") {
    SetLayerTypes(attributes, [](int64_t i) { return (i + 1) % 2 != 0; });
  } else if (type == "gemma3_text") {
    if (BoolOr(attributes, "use_bidirectional_attention", false)) {
      FillDeclared(attributes, "sliding_window", 0);
      attributes["sliding_window"] = attributes["sliding_window"].get<int64_t>() / 2 + 1;
    }
    const int64_t pattern = IntOr(attributes, "sliding_window_pattern", 6);
    SetLayerTypes(attributes, [&](int64_t i) { return (i + 1) % pattern != 0; });
  } else if (type == "modernbert") {
    // A property of the class: reading halves local_attention, writing doubles into it.
    const int64_t window = IntOr(attributes, "sliding_window", 0);
    if (window > 0) attributes["local_attention"] = 2 * window;
    attributes["sliding_window"] = IntOr(attributes, "local_attention", 128) / 2;
    const int64_t every = IntOr(attributes, "global_attn_every_n_layers", 3);
    SetLayerTypes(attributes, [&](int64_t i) { return i % every != 0; });
  } else if (type == "smollm3") {
    HEADROOM_RETURN_IF_ERROR(DeriveSmolLm3Layers(attributes));
  } else if (type == "gpt_neo") {
    HEADROOM_RETURN_IF_ERROR(DeriveGptNeoLayers(attributes));
  }
  if (IsSet(attributes, "layer_types") && attributes.contains("num_hidden_layers")) {
    const size_t entries = attributes["layer_types"].size();
    const int64_t layers = IntOr(attributes, "num_hidden_layers", 0);
    if (static_cast<int64_t>(entries) != layers) {
      return Error::BadInput(
          Format("\"layer_types\" has {} entries, \"num_hidden_layers\" is {}: make them equal",
                 entries, layers));
    }
  }
  return {};
}

// ---- Rotary embeddings: older files spread over the top level what rope_parameters now holds ----

// Removes and returns an attribute; null when absent.
Json Take(Json& attributes, const char* key) {
  if (!attributes.contains(key)) return nullptr;
  Json value = std::move(attributes[key]);
  attributes.erase(key);
  return value;
}

Status CheckRope(const Json& rope) {
  const auto wrong = [&](const char* key, std::string_view needed) {
    return Error::BadInput(Format("\"{}\" must be {}, not {}", key, needed, Shown(rope[key])));
  };
  for (const char* key : {"rope_theta", "factor"}) {
    if (IsSet(rope, key) && !(rope[key].is_number() && rope[key].get<double>() > 0)) {
      return wrong(key, "a positive number");
    }
  }
  const char* partial = "partial_rotary_factor";
  if (IsSet(rope, partial)) {
    const bool number = rope[partial].is_number();
    const double value = number ? rope[partial].get<double>() : -1;
    if (value < 0 || value > 1) return wrong(partial, "a number from 0 to 1");
  }
  if (IsSet(rope, "rope_type") && !rope["rope_type"].is_string()) {
    return wrong("rope_type", "a string");
  }
  const char* original = "original_max_position_embeddings";
  if (IsSet(rope, original)) {
    if (!rope[original].is_number_integer() || rope[original].get<int64_t>() < 1) {
      return wrong(original, "a positive whole number");
    }
  }
  return {};
}

// RotaryEmbeddingConfigMixin.standardize_rope_params, its case of one set for all layers.
void Standardize(std::string_view type, const Json& attributes, Json& rope) {
  if (!rope.contains("rope_type")) {
    rope["rope_type"] = IsSet(rope, "type") ? rope["type"] : Json("default");
  }
  if (!rope["rope_type"].is_string()) return;  // CheckRope refuses it
  std::string& rope_type = rope["rope_type"].get_ref<std::string&>();
  if (type == "phi3" && IsAnyOf(rope_type, {"su", "yarn"})) rope_type = "longrope";
  if (type == "qwen2_vl_text" && rope_type == "mrope") rope_type = "default";
  if (!IsAnyOf(rope_type, {"llama3", "yarn", "longrope"})) return;
  const char* original = "original_max_position_embeddings";
  if (IsSet(attributes, original)) {
    rope[original] = attributes[original];
  } else if (!rope.contains(original) && IsSet(attributes, "max_position_embeddings")) {
    rope[original] = attributes["max_position_embeddings"];
  }
}

// gemma3_text and modernbert keep one set for full and one for sliding attention.
Status DeriveRopePerKind(std::string_view type, Json& attributes, const Json& scaling) {
  const bool gemma = type == "gemma3_text";
  const Json full_theta = Take(attributes, gemma ? "rope_theta" : "global_rope_theta");
  const Json local_theta = Take(attributes, gemma ? "rope_local_base_freq" : "local_rope_theta");
  Json rope = attributes["rope_parameters"];
  if (rope.is_null()) rope = Json::object();
  const std::pair<const char*, Json> kinds[] = {
      {"full_attention", full_theta.is_null() ? Json(gemma ? 1000000.0 : 160000.0) : full_theta},
      {"sliding_attention", local_theta.is_null() ? Json(10000.0) : local_theta}};
  for (const auto& [kind, theta] : kinds) {
    if (!IsSet(rope, kind)) rope[kind] = Json{{"rope_type", "default"}};
    if (!rope[kind].is_object()) {
      return Error::BadInput(
          Format("\"rope_parameters\": \"{}\" must be an object, not {}", kind, Shown(rope[kind])));
    }
    const bool scaled = scaling.is_object() && (!gemma || std::string_view(kind)[0] == 'f');
    if (scaled) rope[kind].update(scaling);
    if (!rope[kind].contains("rope_theta")) rope[kind]["rope_theta"] = theta;
    Standardize(type, attributes, rope[kind]);
    HEADROOM_RETURN_IF_ERROR(CheckRope(rope[kind]));
  }
  attributes["rope_parameters"] = std::move(rope);
  return {};
}

Status DeriveRope(const ConfigClass& config_class, Json& attributes) {
  const std::string_view type = config_class.model_type;
  const auto declares = [&](std::string_view name) {
    return std::ranges::find(config_class.attributes, name, &ConfigAttribute::name) !=
           config_class.attributes.end();
  };
  if (!declares("rope_parameters")) return {};
  Json scaling = Take(attributes, "rope_scaling");
  if (scaling.is_object() && scaling.empty()) scaling = nullptr;
  if (!scaling.is_null() && !scaling.is_object()) {
    return Error::BadInput(
        Format("\"rope_scaling\" must be an object or null, not {}", Shown(scaling)));
  }
  if (IsAnyOf(type, {"gemma3_text", "modernbert"})) {
    return DeriveRopePerKind(type, attributes, scaling);
  }
  const bool neox = type == "gpt_neox";
  const Json theta = Take(attributes, neox ? "rotary_emb_base" : "rope_theta");
  Json partial = Take(attributes, neox ? "rotary_pct" : "partial_rotary_factor");
  if (partial.is_null() && neox) partial = 0.25;
  if (partial.is_null() && type == "phi3") partial = 1.0;
  Json rope = scaling.is_null() ? attributes["rope_parameters"] : scaling;
  if (rope.is_null()) rope = Json::object();
  if (!rope.contains("rope_theta")) {
    rope["rope_theta"] = theta.is_null() ? Json(config_class.default_theta) : theta;
  }
  if (!partial.is_null() && !rope.contains("partial_rotary_factor")) {
    rope["partial_rotary_factor"] = partial;
  }
  Standardize(type, attributes, rope);
  HEADROOM_RETURN_IF_ERROR(CheckRope(rope));
  attributes["rope_parameters"] = std::move(rope);
  return {};
}

}  // namespace

Status DeriveAttributes(const ConfigClass& config_class, Json& attributes) {
  const std::string_view type = config_class.model_type;
  HEADROOM_RETURN_IF_ERROR(DeriveSizes(type, attributes));
  if (IsAnyOf(type, {"t5", "mt5"})) HEADROOM_RETURN_IF_ERROR(DeriveT5(attributes));
  HEADROOM_RETURN_IF_ERROR(DeriveLayers(type, attributes));
  return DeriveRope(config_class, attributes);
}

}  // namespace headroom
