#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what PyTorch and transformers compute for a tiny model of each family of the engine.

    python bench/engine_golden.py tests/data/engine [MINILM]

For each case NAME.json (the config, and the task as "golden_task") and NAME.safetensors:

    the weights by their names                     float16, exactly what was computed with
    input/...                                      int32, as the engine's graph names its inputs
    output/loss, output/hidden, output/logits      hidden: of every token; logits: see below
    output/smoothed_loss, output/smoothed_gradient label smoothing 0.1; gradient of the word table
    output/losses                                  before each of ten AdamW steps
    grad/NAME                                      of each parameter

Logits are those of the classes, or of each sequence's last token. src/engine/golden_test.cc reads
the files. With the folder of a MiniLM (scripts/fetch_minilm), minilm_sentences.safetensors too: the
sentence embeddings of five sentences. Needs torch and transformers (made with 2.15.0 and 5.17.0), no network.
"""

import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

PAD = 1
BATCH, SEQUENCE, TARGET, PADDED = 2, 12, 10, 5
VOCABULARY = 41
STEPS, LEARNING_RATE, WEIGHT_DECAY, CLIP = 10, 1e-3, 0.01, 1.0
SMOOTHING = 0.1
SENTENCES = ["The model does not fit into the memory of the GPU.",
             "There is not enough room on the card for this network.",
             "A cat sleeps on the warm roof.",
             "Gradient checkpointing computes activations twice.",
             "Hello!"]


def encoder(kind):
    return dict(model_type=kind, vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2,
                num_attention_heads=4, intermediate_size=24, max_position_embeddings=20,
                type_vocab_size=2, num_labels=3, pad_token_id=PAD, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0)


def decoder(kind, **more):
    return dict(model_type=kind, vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
                max_position_embeddings=64, rms_norm_eps=1e-5, **more)


def seq2seq(kind, activation):
    return dict(model_type=kind, vocab_size=VOCABULARY, d_model=16, encoder_layers=2,
                decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=20, dropout=0.0,
                attention_dropout=0.0, activation_dropout=0.0, activation_function=activation,
                scale_embedding=True, pad_token_id=PAD, eos_token_id=2,
                decoder_start_token_id=PAD if kind in ("marian", "pegasus") else 2)


CASES = {
    "bert_classification": (encoder("bert"), "sequence-classification"),
    "bert_masked_lm": (encoder("bert"), "masked-lm"),
    "roberta_classification": (encoder("roberta"), "sequence-classification"),
    "roberta_masked_lm": (encoder("roberta"), "masked-lm"),
    "gpt2": (dict(model_type="gpt2", vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4,
                  n_positions=20, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0), "causal-lm"),
    "llama": (decoder("llama"), "causal-lm"),
    "llama3": (decoder("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                       rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0,
                                            low_freq_factor=1.0, high_freq_factor=4.0,
                                            original_max_position_embeddings=16)), "causal-lm"),
    "qwen2": (decoder("qwen2", pad_token_id=PAD), "causal-lm"),
    "bart": (seq2seq("bart", "gelu"), "seq2seq-lm"),
    "marian": (seq2seq("marian", "swish"), "seq2seq-lm"),
    "mbart": (seq2seq("mbart", "relu"), "seq2seq-lm"),
    "pegasus": (seq2seq("pegasus", "relu"), "seq2seq-lm"),
}
HEADS = {
    "sequence-classification": transformers.AutoModelForSequenceClassification,
    "masked-lm": transformers.AutoModelForMaskedLM,
    "causal-lm": transformers.AutoModelForCausalLM,
    "seq2seq-lm": transformers.AutoModelForSeq2SeqLM,
}


def build(config, task, generator):
    model = HEADS[task].from_config(config, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # Marian's sines
            continue
        scale = 0.25 if parameter.dim() > 1 else 0.1
        values = torch.randn(parameter.shape, generator=generator) * scale
        if parameter.dim() == 1 and name.endswith("weight"):
            values += 1
        parameter.data = values.half().float()
    model.tie_weights()
    return model.train()


def tokens(shape, generator):
    # All but the padding, which only stands at the end (and before a decoder's first token).
    ids = torch.randint(2, VOCABULARY, shape, generator=generator)
    return ids


def batch(config, task, generator):
    """What the engine reads, and what the model is called with."""
    ids = tokens((BATCH, SEQUENCE), generator)
    lengths = torch.tensor([SEQUENCE, SEQUENCE - PADDED])
    mask = (torch.arange(SEQUENCE)[None, :] < lengths[:, None]).long()
    ids = torch.where(mask.bool(), ids, PAD)
    inputs = {"input_ids": ids, "lengths": lengths}
    call = {"input_ids": ids, "attention_mask": mask}
    if config.model_type in ("bert", "roberta"):
        types = torch.randint(0, 2, (BATCH, SEQUENCE), generator=generator)
        inputs["token_type_ids"] = call["token_type_ids"] = types
    if task == "sequence-classification":
        labels = torch.tensor([2, 0])
        inputs["labels"] = labels
    elif task == "masked-lm":
        labels = torch.where((torch.rand(ids.shape, generator=generator) < 0.4) & mask.bool(),
                             tokens(ids.shape, generator), -100)
        inputs["labels"] = labels
    elif task == "causal-lm":
        labels = torch.where(mask.bool(), ids, -100)
        labels[0, 4] = -100
        inputs["labels"] = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
        call["labels"] = labels
    else:
        labels = tokens((BATCH, TARGET), generator)
        labels[1, TARGET - 3:] = -100
        starts = torch.full((BATCH, 1), config.decoder_start_token_id)
        shifted = torch.cat([starts, labels[:, :-1].masked_fill(labels[:, :-1] == -100, PAD)], 1)
        inputs["labels"] = labels
        inputs["decoder_input_ids"] = call["decoder_input_ids"] = shifted
    call.setdefault("labels", inputs["labels"])
    return inputs, call


def hidden_and_logits(model, call, lengths, task):
    with torch.no_grad():
        output = model(**call, output_hidden_states=True)
        base = model.base_model(**{k: v for k, v in call.items() if k != "labels"})
    logits = output.logits
    if task == "seq2seq-lm":
        logits = logits[:, -1]
    elif task != "sequence-classification":
        logits = logits[torch.arange(BATCH), lengths - 1]
    return base.last_hidden_state, logits


def word_table(model):
    return model.get_input_embeddings().weight


def smoothed(model, call, inputs):
    model.zero_grad()
    logits = model(**call).logits
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), inputs["labels"].reshape(-1),
        label_smoothing=SMOOTHING)
    loss.backward()
    return loss.detach(), word_table(model).grad.clone()


def optimizer_of(model):
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return torch.optim.AdamW(
        [{"params": [p for n, p in named if n in decayed], "weight_decay": WEIGHT_DECAY},
         {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0}],
        lr=LEARNING_RATE)


def train(model, call):
    optimizer = optimizer_of(model)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**call).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def write(folder, name, kind, task):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    config = transformers.AutoConfig.for_model(**kind)
    model = build(config, task, generator)
    inputs, call = batch(config, task, generator)
    tensors = {n: p.detach().half() for n, p in model.named_parameters() if p.requires_grad}
    tensors |= {"input/" + n: t.int() for n, t in inputs.items()}
    hidden, logits = hidden_and_logits(model, call, inputs["lengths"], task)
    tensors["output/hidden"], tensors["output/logits"] = hidden, logits
    loss, gradient = smoothed(model, call, inputs)
    tensors["output/smoothed_loss"] = loss.reshape(1)
    tensors["output/smoothed_gradient"] = gradient
    model.zero_grad()
    loss = model(**call).loss
    loss.backward()
    tensors["output/loss"] = loss.detach().reshape(1)
    tensors |= {"grad/" + n: p.grad.clone() for n, p in model.named_parameters()
                if p.grad is not None}
    tensors["output/losses"] = train(model, call)
    save_file({n: t.detach().clone().contiguous() for n, t in tensors.items()},
              os.path.join(folder, name + ".safetensors"))
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        json.dump({**kind, "golden_task": task}, file, indent=1)
        file.write("\n")
    print(f"{name}: loss {loss.item():.6f}, after {STEPS - 1} steps {tensors['output/losses'][-1]:.6f}")


def embed_sentences(folder, minilm):
    """Mean of the last hidden state over the tokens, normalised, as sentence-transformers has it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    encoded = tokenizer(SENTENCES, padding="max_length", max_length=24, return_tensors="pt")
    mask = encoded["attention_mask"]
    with torch.no_grad():
        hidden = model(**encoded).last_hidden_state
    mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    save_file({"input/input_ids": encoded["input_ids"].int(),
               "input/token_type_ids": encoded["token_type_ids"].int(),
               "input/lengths": mask.sum(1).int(),
               "output/embedding": torch.nn.functional.normalize(mean).contiguous()},
              os.path.join(folder, "minilm_sentences.safetensors"))
    print(f"minilm_sentences: {len(SENTENCES)} of {mask.sum(1).tolist()} tokens")


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    for name, (kind, task) in CASES.items():
        write(folder, name, kind, task)
    if len(sys.argv) > 2:
        embed_sentences(folder, sys.argv[2])


if __name__ == "__main__":
    main()
