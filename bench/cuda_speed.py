#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a training step of the CUDA backend and of PyTorch on the same card, one after the other.

  bench/cuda_speed.py --bench build/cuda/bench/cuda_bench bert-b4 gpt2-b8
  bench/cuda_speed.py --bench ... --compile bert-b4       PyTorch with torch.compile too

Needs PyTorch and transformers. Each line: milliseconds of a step (the median), the process's bytes
by NVML, and how many times as fast as the fastest PyTorch we are.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys

WORKS = {
    # name: (model, batch, sequence, precision)
    "bert-b4": ("bert", 4, 512, "bf16"),
    "bert-b4-fp16": ("bert", 4, 512, "fp16"),
    "bert-b4-tf32": ("bert", 4, 512, "tf32"),
    "bert-b4-fp32": ("bert", 4, 512, "fp32"),
    "bert-b32": ("bert", 32, 512, "bf16"),
    "gpt2-b8": ("gpt2", 8, 1024, "bf16"),
    "gpt2-b32": ("gpt2", 32, 1024, "bf16"),
    "seq2seq-b32": ("seq2seq", 32, 128, "bf16"),
}
WARM_UP = 8
STEPS = 30


def make_model(kind):
    import transformers as t

    if kind == "bert":
        config = t.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                              intermediate_size=4096, num_labels=2)
        return t.BertForSequenceClassification(config), config.vocab_size
    if kind == "gpt2":
        config = t.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        return t.GPT2LMHeadModel(config), config.vocab_size
    config = t.MarianConfig(vocab_size=32000, d_model=512, encoder_layers=6, decoder_layers=6,
                            encoder_attention_heads=8, decoder_attention_heads=8,
                            encoder_ffn_dim=2048, decoder_ffn_dim=2048,
                            max_position_embeddings=512, dropout=0.1, attention_dropout=0.1,
                            activation_function="relu", scale_embedding=True, pad_token_id=0,
                            decoder_start_token_id=0, eos_token_id=1, forced_eos_token_id=None)
    return t.MarianMTModel(config), config.vocab_size


def inputs_of(kind, batch, sequence, vocabulary):
    import torch

    ids = torch.randint(2, vocabulary, (batch, sequence), device="cuda")
    if kind == "bert":
        labels = torch.randint(0, 2, (batch,), device="cuda")
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    if kind == "gpt2":
        return {"input_ids": ids, "labels": ids}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def process_mib():
    import os

    out = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory",
                          "--format=csv,noheader,nounits"], capture_output=True, text=True)
    for line in out.stdout.splitlines():
        pid, used = (word.strip() for word in line.split(","))
        if int(pid) == os.getpid():
            return int(used)
    return None


def time_torch(name, mode):
    """Runs in a process of its own, so that its memory is its own."""
    import torch

    kind, batch, sequence, precision = WORKS[name]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    model, vocabulary = make_model(kind)
    model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    scaler = torch.amp.GradScaler(enabled=precision == "fp16")
    inputs = inputs_of(kind, batch, sequence, vocabulary)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    forward = model
    if mode != "eager":
        forward = torch.compile(model, mode=None if mode == "compile" else mode)

    def step():
        with torch.autocast("cuda", dtype=half or torch.bfloat16, enabled=half is not None):
            loss = forward(**inputs).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARM_UP):
        step()
    times = []
    for _ in range(STEPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    print(json.dumps({"ms": statistics.median(times), "mib": process_mib()}))


def run_torch(name, mode):
    out = subprocess.run([sys.executable, __file__, "--torch", mode, name], capture_output=True,
                         text=True)
    if out.returncode != 0:
        return {"ms": None, "mib": None, "error": out.stderr.strip().splitlines()[-1:]}
    return json.loads(out.stdout.splitlines()[-1])


def run_ours(bench, name):
    out = subprocess.run([bench, name], capture_output=True, text=True)
    time = re.search(r"^\S+\s+([\d.]+) ms", out.stdout, re.M)
    memory = re.search(r"running ([\d.]+) MiB", out.stdout)
    arena = re.search(r"arena ([\d.]+) MiB", out.stdout)
    if not time:
        return {"ms": None, "mib": None, "error": out.stdout + out.stderr}
    return {"ms": float(time[1]), "mib": float(memory[1]), "arena_mib": float(arena[1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *WORKS], default=[])
    parser.add_argument("--bench", default="build/cuda/bench/cuda_bench")
    parser.add_argument("--compile", action="store_true", help="PyTorch compiled, too")
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.torch:
        return time_torch(arguments.names[0], arguments.torch)
    for name in arguments.names or WORKS:
        row = {"name": name, "headroom": run_ours(arguments.bench, name)}
        modes = ["eager"] + (["reduce-overhead"] if arguments.compile else [])
        for mode in modes:
            row[mode] = run_torch(name, mode)
        fastest = [row[mode]["ms"] for mode in modes if row[mode]["ms"]]
        if fastest and row["headroom"]["ms"]:
            row["times_as_fast"] = round(min(fastest) / row["headroom"]["ms"], 2)
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
