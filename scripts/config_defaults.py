#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/model/config_defaults.cc: what each config class of transformers declares.

  pip install huggingface_hub httpx numpy packaging pyyaml regex tokenizers safetensors tqdm
  pip install --no-deps transformers==5.17.0
  scripts/config_defaults.py [FOLDER_HOLDING_transformers] > src/model/config_defaults.cc

PyTorch is not needed. Values that a class derives from others when it is built (head_dim,
layer_types, ...) are null here; src/model/config_derive.cc fills them in.
"""

import dataclasses
import json
import logging
import sys
import textwrap
import types
import typing

if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
logging.disable(logging.CRITICAL)

import transformers  # noqa: E402
from transformers import CONFIG_MAPPING, PreTrainedConfig  # noqa: E402

MODEL_TYPES = """
albert bart bert bloom camembert codegen cohere deberta deberta-v2 deit distilbert electra falcon
gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite llama marian mbart mistral
mixtral modernbert mpt mt5 olmo olmo2 opt pegasus phi phi3 qwen2 qwen2_moe qwen2_vl_text qwen3
qwen3_moe roberta smollm3 stablelm starcoder2 t5 vit whisper xlm-roberta
""".split()

# Composite types, and the type of the text part when the file does not name it.
COMPOSITES = {"gemma3": "gemma3_text", "llava": "llama", "qwen2_vl": "qwen2_vl_text"}

# Neither memory nor the shape of the model depends on these.
DROPPED = {
    "architectures", "dtype", "id2label", "label2id", "return_dict", "transformers_version",
    "begin_suppress_tokens", "suppress_tokens", "apply_spec_augment", "init_device",
}  # fmt: skip

# Attributes that the modelling code reads with getattr and a default, or that __post_init__ adds.
EXTRA = {
    "bloom": [("n_embed", "i?", None)],
    "deberta": [
        ("attention_head_size", "i?", None),
        ("cls_dropout", "f?", None),
        ("embedding_size", "i?", None),
        ("pooler_hidden_size", "i?", None),
        ("talking_head", "b", False),
    ],
    "deberta-v2": [
        ("attention_head_size", "i?", None),
        ("cls_dropout", "f?", None),
        ("conv_act", "s", "tanh"),
        ("conv_groups", "i", 1),
        ("conv_kernel_size", "i", 0),
        ("embedding_size", "i?", None),
        ("norm_rel_ebd", "s", "none"),
        ("pooler_hidden_size", "i?", None),
        ("position_buckets", "i", -1),
        ("share_att_key", "b", False),
    ],
    "deit": [("head_dim", "i?", None), ("tie_word_embeddings", "b", False)],
    "falcon": [("classifier_dropout", "f?", None), ("n_embed", "i?", None)],
    "gemma3_text": [("sliding_window_pattern", "i", 6)],
    "gpt_bigcode": [("num_key_value_heads", "i?", None)],
    "modernbert": [("global_attn_every_n_layers", "i", 3), ("sliding_window", "i?", None)],
    "mt5": [("dense_act_fn", "s?", None), ("is_gated_act", "b?", None)],
    "phi": [("partial_rotary_factor", "f", 0.5)],
    "qwen2_vl_text": [("tie_word_embeddings", "b", False)],
    "stablelm": [("partial_rotary_factor", "f", 0.25)],
    "t5": [
        ("dense_act_fn", "s?", None),
        ("is_gated_act", "b?", None),
        ("scale_decoder_outputs", "b?", None),
        ("tie_word_embeddings", "b", True),
    ],
    "vit": [("head_dim", "i?", None), ("tie_word_embeddings", "b", False)],
}

# Classes whose number of labels differs from PreTrainedConfig's 2 (BartConfig.__post_init__).
NUM_LABELS = {"bart": 3}

# The plain nn.Transformer between two embeddings; a class of Headroom, not of transformers.
TORCH_TRANSFORMER = [
    ("d_model", "i", 512),
    ("dim_feedforward", "i", 2048),
    ("dropout", "f", 0.1),
    ("max_len", "i", 5000),
    ("nhead", "i", 8),
    ("num_decoder_layers", "i", 6),
    ("num_encoder_layers", "i", 6),
    ("tie_word_embeddings", "b", False),
    ("vocab_size", "i", 32000),
]
TORCH_TRANSFORMER_ALIASES = {
    "hidden_size": "d_model",
    "max_position_embeddings": "max_len",
    "num_attention_heads": "nhead",
    "num_hidden_layers": "num_encoder_layers",
}


def kinds_of(annotation):
    """'i', 'f', 'b', 's', 'o' for the scalar types, 'l' for lists, '?' when None is one."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = set().union(*(kinds_of(part) for part in typing.get_args(annotation)))
        return kinds - {"i"} if "f" in kinds else kinds  # an 'f' takes whole numbers as well
    if origin is typing.Literal:
        return {"s"}
    if origin in (list, tuple) or annotation in (list, tuple):
        element = [arg for arg in typing.get_args(annotation) if arg is not ...]
        return {{int: "I", str: "S"}.get(element[0] if element else None, "l")}
    if origin is dict or annotation is dict:
        return {"o"}
    if annotation is type(None):
        return {"?"}
    known = {bool: {"b"}, int: {"i"}, float: {"f"}, str: {"s"}}
    if annotation in known:
        return known[annotation]
    return {"o"}  # a nested config class or a TypedDict


def default_of(field):
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default if field.default is not dataclasses.MISSING else None


def dropped(name):
    token = name.endswith(("_token_id", "_token_index")) and name != "pad_token_id"
    return token or name in DROPPED or name.startswith(("mask_", "vision_", "text_config"))


def rows_of(cls):
    rows = {}
    for field in dataclasses.fields(cls):
        if dropped(field.name):
            continue
        kinds = kinds_of(field.type)
        if field.name in ("image_size", "patch_size"):
            kinds = {"i"}  # a list of equal sides is folded into one by config_derive.cc
        # Upper and lower case of a letter in one fixed order, '?' last.
        text = "".join(k for k in "ifbsolIS?" if k in kinds)
        rows[field.name] = (text, default_of(field))
    return rows


def cpp_string(text):
    if '"' not in text:
        return f'"{text}"'
    lines = textwrap.wrap(text.replace(",", ", "), 64, break_on_hyphens=False)
    return " ".join(f'R"({line})"' for line in lines)


def cpp_rows(rows):
    cells = [
        "{" + f'"{name}", "{kinds}", {cpp_string(json.dumps(value, separators=(",", ":")))}' + "},"
        for name, kinds, value in rows
    ]
    # Non-breaking joints keep each row whole while lines are filled, save between string pieces.
    joined = " ".join(cell.replace(" ", "\0").replace(')"\0R"', ')" R"') for cell in cells)
    lines = textwrap.wrap(joined, 96, break_long_words=False, break_on_hyphens=False)
    return "\n".join("    " + line.replace("\0", " ") for line in lines)


def cpp_aliases(aliases):
    return "\n".join(f'    {{"{name}", "{target}"}},' for name, target in sorted(aliases.items()))


def identifier(model_type):
    return "k" + "".join(word.capitalize() for word in model_type.replace("-", "_").split("_"))


def class_rows(model_type, common):
    cls = CONFIG_MAPPING[model_type]
    aliases = dict(cls.attribute_map)
    rows = {aliases.get(name, name): row for name, row in rows_of(cls).items()}
    for name, kinds, value in EXTRA.get(model_type, []):
        rows.setdefault(name, (kinds, value))
    if "rope_parameters" in rows:
        rows.setdefault("head_dim", ("i?", None))
    if model_type in NUM_LABELS:
        rows["num_labels"] = ("i", NUM_LABELS[model_type])
    if model_type == "mpt":
        inner = rows_of(type(cls().attn_config))
        value = {key: value for key, (_, value) in inner.items() if key not in common}
        rows["attn_config"] = ("o", value)
    rows = {name: row for name, row in rows.items() if common.get(name) != row}
    theta = cls.default_theta if isinstance(cls.default_theta, float) else 10000.0
    return [(name, *rows[name]) for name in sorted(rows)], aliases, theta


def main():
    common = rows_of(PreTrainedConfig)
    common["num_labels"] = ("i", 2)
    common["output_attentions"] = ("b?", False)
    out = []
    table = []
    for model_type in sorted([*MODEL_TYPES, *COMPOSITES, "torch-transformer"]):
        if model_type in COMPOSITES:
            table.append(f'    {{"{model_type}", {{}}, {{}}, 0, "{COMPOSITES[model_type]}"}},')
            continue
        if model_type == "torch-transformer":
            rows, aliases, theta = TORCH_TRANSFORMER, TORCH_TRANSFORMER_ALIASES, 10000.0
        else:
            rows, aliases, theta = class_rows(model_type, common)
        name = identifier(model_type)
        out.append(f"constexpr ConfigAttribute {name}[] = {{\n{cpp_rows(rows)}\n}};")
        alias_name = "{}"
        if aliases:
            alias_name = f"{name}Aliases"
            out.append(f"constexpr ConfigAlias {alias_name}[] = {{\n{cpp_aliases(aliases)}\n}};")
        table.append(f'    {{"{model_type}", {name}, {alias_name}, {theta:.1f}, ""}},')
    common_rows = cpp_rows([(name, *common[name]) for name in sorted(common)])
    print(f"""\
// SPDX-License-Identifier: Apache-2.0
//
// Made by scripts/config_defaults.py from transformers {transformers.__version__}; do not edit.
#include "model/config_defaults.h"

#include <algorithm>

namespace headroom {{
namespace {{

// clang-format off
constexpr ConfigAttribute kCommon[] = {{
{common_rows}
}};
""")
    print("\n".join(out))
    print("""
constexpr ConfigClass kClasses[] = {
""" + "\n".join(table) + """
};
// clang-format on

}  // namespace

std::span<const ConfigClass> ConfigClasses() { return kClasses; }

std::span<const ConfigAttribute> CommonConfigAttributes() { return kCommon; }

const ConfigClass* FindConfigClass(std::string_view model_type) {
  const auto found = std::ranges::lower_bound(kClasses, model_type, {}, &ConfigClass::model_type);
  return found != std::end(kClasses) && found->model_type == model_type ? found : nullptr;
}

}  // namespace headroom""")


if __name__ == "__main__":
    main()
