#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the GPU memory of model.generate, and of the load before it, one process a case.

usage: measure_generation.py CASES.jsonl OUT.jsonl [--only TEXT] [--budget SECONDS]

A case is {"id", "task", "config", "recipe"} as tests/data/hf_memory_generate.jsonl has them; recipe:
  batch, seq, new_tokens, beams, do_sample, cache ("dynamic", "static", "none")
  weights_dtype   what the checkpoint holds and the model is loaded in
  load            "to" (built on the host, moved with .to("cuda")) or "device-map" (saved, then
                  from_pretrained(device_map="cuda")); quantised cases are always the latter
  quant           "int8", "fp4", "nf4"; double_quant, compute_dtype (default float32)

Needs PyTorch 2.11, transformers 5.17, accelerate and, for quantised cases, bitsandbytes 0.50.2
(pip install --no-deps --no-index bitsandbytes-0.50.2-*.whl, carried along where there is no net).
A row adds "phases": load, prefill and decode as [name, allocated, peak since the last, reserved].
"""
import gc
import json
import os
import sys
import tempfile
import time
import traceback

import torch
import transformers
from transformers import AutoConfig, BitsAndBytesConfig, StoppingCriteria, StoppingCriteriaList
from transformers.initialization import no_init_weights
from transformers.utils import logging as transformers_logging

transformers_logging.set_verbosity_error()
CLASSES = {"causal-lm": transformers.AutoModelForCausalLM,
           "seq2seq-lm": transformers.AutoModelForSeq2SeqLM}


def process_memory():
    """This process's own device memory, so that other processes do not count."""
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
        if process.pid == os.getpid():
            return int(process.usedGpuMemory or 0)
    return None


class Marks:
    def __init__(self):
        self.rows = []

    def add(self, name):
        torch.cuda.synchronize()
        self.rows.append([name, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(),
                          torch.cuda.memory_reserved()])
        torch.cuda.reset_peak_memory_stats()


class MarkTokens(StoppingCriteria):
    """Never stops; marks the first token and the last."""

    def __init__(self, marks, tokens):
        self.marks, self.tokens, self.seen = marks, tokens, 0

    def __call__(self, input_ids, scores, **kwargs):
        self.seen += 1
        if self.seen == 1:
            self.marks.add("prefill")
        if self.seen == self.tokens:
            self.marks.add("decode")
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def config_of(case):
    values = dict(case["config"])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    if case["task"] == "seq2seq-lm":
        for key in ("decoder_start_token_id", "pad_token_id"):
            if getattr(config, key, None) is None:
                setattr(config, key, 0)
    return config


def quick(cls, case, dtype):
    """The model on the host; every weight is the same, which takes no time."""
    with no_init_weights():
        model = cls.from_config(config_of(case), dtype=dtype)
        model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    return model


def build(case, folder):
    """The model on the device, loaded as the recipe says, and its parameters. Random weights."""
    recipe = case["recipe"]
    dtype = getattr(torch, recipe.get("weights_dtype", "float32"))
    cls = CLASSES[case["task"]]
    if recipe.get("load", "to") == "to" and not recipe.get("quant"):
        model = quick(cls, case, dtype)
        return model.to("cuda"), model.num_parameters()
    host = quick(cls, case, dtype)
    parameters = host.num_parameters()  # packed weights would count by halves
    host.save_pretrained(folder)
    del host
    gc.collect()
    kwargs = {"dtype": dtype, "device_map": "cuda"}
    quant = recipe.get("quant")
    if quant == "int8":
        kwargs["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    elif quant:
        kwargs["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type=quant,
            bnb_4bit_use_double_quant=recipe.get("double_quant", False),
            bnb_4bit_compute_dtype=getattr(torch, recipe.get("compute_dtype", "float32")))
    torch.cuda.reset_peak_memory_stats()
    return cls.from_pretrained(folder, **kwargs), parameters


def run(case, out):
    recipe = case["recipe"]
    marks = Marks()
    with tempfile.TemporaryDirectory() as folder:
        model, out["params"] = build(case, folder)
    model.eval()
    out["attn_used"] = getattr(model.config, "_attn_implementation", None)
    out["after_model_allocated"] = torch.cuda.memory_allocated()
    out["after_model_reserved"] = torch.cuda.memory_reserved()
    marks.add("load")
    vocabulary = min(30000, model.config.get_text_config().vocab_size - 1)
    ids = torch.randint(min(100, vocabulary // 2), vocabulary, (recipe["batch"], recipe["seq"]),
                        device="cuda")
    tokens = recipe["new_tokens"]
    kwargs = {"max_new_tokens": tokens, "min_new_tokens": tokens, "pad_token_id": 0,
              "do_sample": recipe.get("do_sample", False), "num_beams": recipe.get("beams", 1),
              "use_cache": recipe.get("cache") != "none"}
    if recipe.get("cache") == "static":
        kwargs.update(cache_implementation="static", disable_compile=True)
    if kwargs["num_beams"] == 1:
        kwargs["stopping_criteria"] = StoppingCriteriaList([MarkTokens(marks, tokens)])
    start = time.time()
    with torch.no_grad():
        model.generate(ids, attention_mask=torch.ones_like(ids), **kwargs)
    marks.add("end")
    out["seconds"] = time.time() - start
    out["peak_allocated"] = max(row[2] for row in marks.rows if row[0] != "load")
    if kwargs["num_beams"] == 1:
        out["phases"] = [row for row in marks.rows if row[0] != "end"]


def one(case, path):
    out = {"id": case["id"], "task": case["task"], "config": case["config"],
           "recipe": case["recipe"] | {"mode": "generate"}}
    try:
        torch.manual_seed(0)
        torch.ones((1, 1)).to("cuda")
        torch.cuda.synchronize()
        out["context_process"] = process_memory()
        run(case, out)
        stats = torch.cuda.memory_stats()
        out["peak_reserved"] = torch.cuda.max_memory_reserved()
        out["final_allocated"] = torch.cuda.memory_allocated()
        out["final_reserved"] = torch.cuda.memory_reserved()
        out["final_process"] = process_memory()
        out["segments"] = stats["segment.all.allocated"]
        out["alloc_retries"] = stats["num_alloc_retries"]
    except Exception:  # noqa: BLE001  a case that fails is a row that says so
        out["error"] = traceback.format_exc()[-1500:]
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(out) + "\n")


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = [json.loads(line) for line in file if line.strip()]
    only, budget, start = option("--only", ""), float(option("--budget", "1e9")), time.time()
    workers, running = int(option("--workers", "1")), 0
    for case in cases:
        if only not in case["id"]:
            continue
        if time.time() - start > budget:
            print("budget reached before", case["id"])
            break
        if running == workers:
            os.wait()
            running -= 1
        if os.fork() == 0:
            begin = time.time()
            one(case, sys.argv[2])
            print(case["id"], round(time.time() - begin, 1), flush=True)
            os._exit(0)
        running += 1
    for _ in range(running):
        os.wait()
    print("seconds", round(time.time() - start))


if __name__ == "__main__":
    main()
