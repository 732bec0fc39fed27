#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps a second of the engine against PyTorch, in turns, on the same cores.

    OMP_NUM_THREADS=2 python bench/engine_speed.py build/release/bench/engine_bench [ROUNDS]

A step is forward, backward, clipping and AdamW, in float32, with dropout. Of PyTorch the faster of
its settings counts: attention by scaled_dot_product_attention or by single operations, AdamW fused
or by foreach. What a step takes is printed as the median, and their ratio: above 1 the engine is
faster. Each round runs every program once, so that a machine that is busy at times slows all.
"""

import itertools
import os
import statistics
import subprocess
import sys
import time

import torch
import transformers

CASES = [("minilm", 8, 128), ("minilm", 16, 64), ("gpt2", 4, 256)]


def config(name, attention):
    if name == "minilm":
        return transformers.BertConfig(
            vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
            intermediate_size=1536, max_position_embeddings=512, num_labels=2,
            attn_implementation=attention)
    return transformers.GPT2Config(vocab_size=8192, n_embd=256, n_layer=4, n_head=8,
                                   n_positions=256, bos_token_id=0, eos_token_id=0,
                                   loss_type="ForCausalLM", use_cache=False,
                                   attn_implementation=attention)


class Torch:
    def __init__(self, name, batch, sequence, attention, fused):
        kind = (transformers.BertForSequenceClassification if name == "minilm"
                else transformers.GPT2LMHeadModel)
        self.model = kind(config(name, attention)).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, weight_decay=0.01,
                                           fused=fused, foreach=not fused)
        ids = (7919 * torch.arange(batch * sequence) % 8000).reshape(batch, sequence)
        self.inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                       "labels": torch.arange(batch) % 2 if name == "minilm" else ids}
        for _ in range(2):
            self.step()

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad()
        self.model(**self.inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - start


class Engine:
    def __init__(self, program, name, batch, sequence, rounds):
        self.process = subprocess.Popen(
            [program, name, str(batch), str(sequence), str(rounds)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1, env={**os.environ, "GO": "1"})

    def step(self):
        self.process.stdin.write("\n")
        return float(self.process.stdout.readline())


def compare(program, case, rounds):
    runs = {"engine": Engine(program, *case, rounds)}
    for attention, fused in itertools.product(("sdpa", "eager"), (True, False)):
        runs[f"PyTorch {attention}, {'fused' if fused else 'foreach'}"] = Torch(
            *case, attention, fused)
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run.step())
    runs["engine"].process.stdin.close()
    runs["engine"].process.wait()
    for name, seconds in times.items():
        print(f"  {name:24} median {1e3 * statistics.median(seconds):8.1f} ms, "
              f"best {1e3 * min(seconds):8.1f} ms")
    torch_times = [t for name, t in times.items() if name != "engine"]
    return [min(map(of, torch_times)) / of(times["engine"]) for of in (statistics.median, min)]


def main():
    program = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    for case in CASES:
        print("{} {} x {}".format(*case))
        medians, bests = compare(program, case, rounds)
        print(f"  the engine is {medians:.2f} times as fast by medians, {bests:.2f} by the best")


if __name__ == "__main__":
    main()
