#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the GPU memory of fine-tuning runs: LoRA, QLoRA, 8-bit optimizers, evaluation.

usage: measure_finetuning.py CASES.jsonl OUT.jsonl [--only TEXT] [--workers N] [--seconds S]
                             [--timeout S] [--snapshots FOLDER]

Needs a CUDA GPU, PyTorch, transformers, peft and bitsandbytes. Each line of CASES is one run of
Hugging Face's Trainer in a process of its own (forked from this one, which imports everything
once), and becomes one line of OUT, in the form that `headroom score` reads; all sizes are bytes. Beside the keys of other measured rows a recipe may
have:

  lora          LoraConfig's arguments
  quantization  BitsAndBytesConfig's arguments; the model is then loaded with from_pretrained
  kbit          arguments of prepare_model_for_kbit_training
  eval          {"batch", "samples", "every", "accumulation_steps", "metrics", "loss_only"}
  empty_cache_steps   torch_empty_cache_steps
  problem_type  of a sequence classifier
  snapshot      true: with --snapshots, the allocator's history is written there
"""

import argparse
import contextlib
import gzip
import importlib
import json
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from unittest import mock

import torch


@contextlib.contextmanager
def cuda_untouched():
    """Answers what libraries ask about the GPU as they are imported, so that CUDA stays closed.

    A process that has opened CUDA cannot be forked, and bitsandbytes asks for the capability.
    """
    with mock.patch.multiple(
        torch.cuda,
        is_available=lambda: True,
        device_count=lambda: 1,
        get_device_capability=lambda device=None: (9, 0),
    ):
        yield
    assert not torch.cuda.is_initialized()


with cuda_untouched():
    import accelerate  # noqa: F401
    import bitsandbytes
    import peft
    import transformers
    from transformers import BitsAndBytesConfig, Trainer, TrainerCallback, TrainingArguments
    from transformers.initialization import no_init_weights

    for imported_late in (
        "peft.tuners.lora.bnb",
        "pynvml",
        "torch._dynamo",
        "torch._inductor",
        "transformers.integrations.bitsandbytes",
        "transformers.quantizers.quantizer_bnb_4bit",
        "transformers.quantizers.quantizer_bnb_8bit",
        "transformers.trainer_pt_utils",
    ):
        try:
            importlib.import_module(imported_late)
        except ImportError as failure:
            print("not imported ahead:", failure)

CLASSES = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
}


def auto_class(case):
    speech = case["config"]["model_type"] == "whisper"
    return getattr(transformers, "AutoModelForSpeechSeq2Seq" if speech else CLASSES[case["task"]])


def process_bytes():
    """What the driver counts for this process."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.pid == os.getpid():
            return int(process.usedGpuMemory or 0)
    return None


def fill(model):
    """Values do not decide memory, but what lies in fresh memory could be NaN and stop a scaler."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point():
                one = parameter.dim() < 2 and not name.endswith("bias")
                parameter.fill_(1.0 if one else 0.0)


def model_arguments(recipe):
    arguments = {}
    if recipe.get("attn"):
        arguments["attn_implementation"] = recipe["attn"]
    if recipe.get("weights_dtype"):
        arguments["dtype"] = getattr(torch, recipe["weights_dtype"])
    return arguments


def model_config(case):
    arguments = dict(case["config"])
    config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
    if case["recipe"].get("problem_type"):
        config.problem_type = case["recipe"]["problem_type"]
    if case["task"] == "seq2seq-lm":
        for name in ("decoder_start_token_id", "pad_token_id"):
            if getattr(config, name, None) is None:
                setattr(config, name, 0)
    return config


def fresh_model(case):
    auto = auto_class(case)
    with no_init_weights():
        model = auto.from_config(model_config(case), **model_arguments(case["recipe"]))
    model.tie_weights()
    return model


def load_quantized(case, row):
    """from_pretrained, as users load a model; the checkpoint's tensors are zeros in memory."""
    with torch.device("meta"):
        empty = fresh_model(case)
    row["params"] = sum(p.numel() for p in empty.parameters())
    weights = {n: torch.zeros(p.shape, dtype=p.dtype) for n, p in empty.named_parameters()}
    torch.cuda.reset_peak_memory_stats()
    loaded = type(empty).from_pretrained(
        None,
        config=model_config(case),
        state_dict=dict(sorted(weights.items())),
        quantization_config=BitsAndBytesConfig(**case["recipe"]["quantization"]),
        device_map={"": 0},
        **model_arguments(case["recipe"]),
    )
    row["load_peak_allocated"] = torch.cuda.max_memory_allocated()
    row["load_peak_reserved"] = torch.cuda.max_memory_reserved()
    row["after_load_allocated"] = torch.cuda.memory_allocated()
    row["after_load_reserved"] = torch.cuda.memory_reserved()
    kbit = case["recipe"].get("kbit")
    if kbit is not None:
        loaded = peft.prepare_model_for_kbit_training(loaded, **kbit)
        row["after_kbit_allocated"] = torch.cuda.memory_allocated()
    return loaded


def build(case, row):
    recipe = case["recipe"]
    if recipe.get("quantization"):
        model = load_quantized(case, row)
    else:
        model = fresh_model(case)
        row["params"] = sum(p.numel() for p in model.parameters())
    row["attn_used"] = model.config._attn_implementation
    if recipe.get("lora"):
        model = peft.get_peft_model(model, peft.LoraConfig(**recipe["lora"]))
        if recipe.get("checkpoint") and not recipe.get("quantization"):
            model.enable_input_require_grads()
    row["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if not recipe.get("quantization"):  # which is there already
        model.to("cuda")
    torch.cuda.synchronize()
    row["buffers_bytes"] = sum(b.numel() * b.element_size() for b in model.buffers())
    row["after_model_allocated"] = torch.cuda.memory_allocated()
    row["after_model_reserved"] = torch.cuda.memory_reserved()
    if not recipe.get("quantization"):
        fill(model)
    return model


class Samples:
    def __init__(self, case, config, count):
        self.case, self.count = case, count
        self.config = config
        self.vocab = min(30000, getattr(config, "vocab_size", 1) - 1)
        self.num_labels = config.num_labels
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self):
        return self.count

    def label(self, ids):
        recipe, task = self.case["recipe"], self.case["task"]
        if task == "sequence-classification":
            if recipe.get("problem_type") == "multi_label_classification":
                return torch.zeros(self.num_labels)
            if recipe.get("problem_type") == "regression" or self.num_labels == 1:
                return torch.tensor(0.0)
            return torch.tensor(0)
        if task == "token-classification":
            return torch.zeros(recipe["seq"], dtype=torch.long)
        if task == "seq2seq-lm":
            length = recipe.get("target_seq", recipe["seq"])
            return torch.randint(100, self.vocab, (length,), generator=self.generator)
        return ids.clone()

    def __getitem__(self, index):
        if self.case["task"] == "image-classification":
            size = self.config.image_size
            return {"pixel_values": torch.zeros(self.config.num_channels, size, size), "labels": 0}
        if self.case["config"]["model_type"] == "whisper":
            frames = 2 * self.config.max_source_positions
            features = torch.zeros(self.config.num_mel_bins, frames)
            return {"input_features": features, "labels": self.label(None)}
        ids = torch.randint(100, self.vocab, (self.case["recipe"]["seq"],), generator=self.generator)
        sample = {"input_ids": ids}
        if self.case["recipe"].get("attention_mask"):
            sample["attention_mask"] = torch.ones_like(ids)
        sample["labels"] = self.label(ids)
        return sample


class Marks(TrainerCallback):
    """[name, allocated now, peak since the mark before, reserved now] at each phase boundary."""

    def __init__(self):
        self.rows = []
        self.peak_reserved = 0  # since the statistics are reset at each mark

    def mark(self, name):
        torch.cuda.synchronize()
        self.peak_reserved = max(self.peak_reserved, torch.cuda.max_memory_reserved())
        self.rows.append(
            [
                name,
                torch.cuda.memory_allocated(),
                torch.cuda.max_memory_allocated(),
                torch.cuda.memory_reserved(),
            ]
        )
        torch.cuda.reset_peak_memory_stats()

    def on_train_begin(self, *args, **kwargs):
        self.mark("train_begin")

    def on_step_begin(self, *args, **kwargs):
        self.mark("step_begin")

    def on_substep_end(self, *args, **kwargs):
        self.mark("substep_end")

    def on_pre_optimizer_step(self, *args, **kwargs):
        self.mark("backward_end")

    def on_optimizer_step(self, *args, **kwargs):
        self.mark("optimizer_end")

    def on_step_end(self, *args, **kwargs):
        self.mark("step_end")


class MarkedTrainer(Trainer):
    marks = None

    def compute_loss(self, model, *args, **kwargs):
        training = self.model.training
        if training:
            self.marks.mark("forward_begin")
        result = super().compute_loss(model, *args, **kwargs)
        if training:
            self.marks.mark("forward_end")
        return result

    def evaluate(self, *args, **kwargs):
        self.marks.mark("evaluate_begin")
        metrics = super().evaluate(*args, **kwargs)
        self.marks.mark("evaluate_end")
        return metrics


def training_arguments(recipe, folder):
    arguments = {
        "output_dir": folder,
        "max_steps": recipe.get("steps", 3),
        "per_device_train_batch_size": recipe["batch"],
        "gradient_accumulation_steps": recipe.get("accum", 1),
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 10**6,
        "log_level": "error",
        "disable_tqdm": True,
        "seed": 0,
        "bf16": recipe["precision"] == "bf16",
        "fp16": recipe["precision"] == "fp16",
        "tf32": True if recipe["precision"] == "tf32" else None,
        "optim": recipe.get("optim", "adamw_torch_fused"),
        "gradient_checkpointing": bool(recipe.get("checkpoint")),
        "torch_empty_cache_steps": recipe.get("empty_cache_steps"),
    }
    if recipe.get("checkpoint"):
        arguments["gradient_checkpointing_kwargs"] = {
            "use_reentrant": bool(recipe.get("reentrant", False))
        }
    if recipe.get("max_grad_norm") is not None:
        arguments["max_grad_norm"] = recipe["max_grad_norm"]
    if recipe.get("eval"):
        arguments["eval_strategy"] = "steps"
        arguments["eval_steps"] = recipe["eval"]["every"]
        arguments["per_device_eval_batch_size"] = recipe["eval"]["batch"]
        arguments["eval_accumulation_steps"] = recipe["eval"].get("accumulation_steps")
        arguments["prediction_loss_only"] = bool(recipe["eval"].get("loss_only"))
    return TrainingArguments(**{k: v for k, v in arguments.items() if v is not None})


def train(case, row, snapshots):
    recipe = case["recipe"]
    keep_history = bool(recipe.get("snapshot") and snapshots)
    if keep_history:
        torch.cuda.memory._record_memory_history(max_entries=400000)
    model = build(case, row)
    torch.cuda.reset_peak_memory_stats()
    marks = Marks()
    MarkedTrainer.marks = marks
    per_step = recipe["batch"] * recipe.get("accum", 1)
    config = model.config
    evaluation = recipe.get("eval")
    with tempfile.TemporaryDirectory() as folder:
        trainer = MarkedTrainer(
            model=model,
            args=training_arguments(recipe, folder),
            train_dataset=Samples(case, config, per_step * recipe.get("steps", 3)),
            eval_dataset=Samples(case, config, evaluation["samples"]) if evaluation else None,
            compute_metrics=(lambda _: {}) if evaluation and evaluation.get("metrics") else None,
            callbacks=[marks],
        )
        trainer.train()
    if keep_history:
        history = torch.cuda.memory._snapshot()
        with gzip.open(os.path.join(snapshots, case["id"] + ".pickle.gz"), "wb", 6) as out:
            pickle.dump(history, out)
    row["phases"] = marks.rows
    row["peak_allocated"] = max(mark[2] for mark in marks.rows)
    row["peak_reserved"] = max(marks.peak_reserved, torch.cuda.max_memory_reserved())


def run(case, path, snapshots):
    row = {name: case[name] for name in ("id", "task", "config", "recipe")}
    row["versions"] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "bitsandbytes": bitsandbytes.__version__,
    }
    try:
        torch.manual_seed(0)
        torch.ones((1, 1)).to("cuda")
        torch.cuda.synchronize()
        row["context_process"] = process_bytes()
        train(case, row, snapshots)
        stats = torch.cuda.memory_stats()
        row["final_allocated"] = torch.cuda.memory_allocated()
        row["final_reserved"] = torch.cuda.memory_reserved()
        row["final_process"] = process_bytes()
        row["segments"] = stats["segment.all.allocated"]
        row["alloc_retries"] = stats["num_alloc_retries"]
    except torch.cuda.OutOfMemoryError as failure:
        row["oom"] = str(failure)[:500]
    except Exception:
        row["error"] = traceback.format_exc()[-1500:]
    with open(path, "a") as out:
        out.write(json.dumps(row) + "\n")


def start_child(case, arguments):
    """A process of its own, forked so that nothing is imported again; returns its id."""
    child = os.fork()
    if child != 0:
        return child
    signal.alarm(arguments.timeout)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    run(case, arguments.out, arguments.snapshots)
    os._exit(0)


def import_models(cases):
    """The modelling files too."""
    with cuda_untouched():
        for case in cases:
            auto_class(case)._model_mapping[type(model_config(case))]


def report(path, seconds):
    rows = [json.loads(line) for line in open(path)]
    print(f"{len(rows)} rows in {seconds:.0f} s, {rows[0]['versions'] if rows else ''}")
    for row in rows:
        if "error" in row or "oom" in row:
            print(row["id"], row.get("oom") or row["error"][-600:])
            continue
        print(
            f"{row['id']}: trainable {row['trainable']:,}, model "
            f"{row['after_model_allocated'] / 2**20:.1f} MiB, peak "
            f"{row['peak_allocated'] / 2**20:.1f}, reserved {row['peak_reserved'] / 2**20:.0f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases")
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e9, help="no case starts later")
    parser.add_argument("--timeout", type=int, default=120, help="seconds a case may take")
    parser.add_argument("--snapshots")
    arguments = parser.parse_args()
    cases = [json.loads(line) for line in open(arguments.cases) if line.strip()]
    cases = [case for case in cases if arguments.only in case["id"]]
    start = time.time()
    import_models(cases)
    print(f"models imported in {time.time() - start:.0f} s", flush=True)
    live = {}

    def finish_one():
        child, status = os.wait()
        name, begun = live.pop(child)
        ending = f", status {status}" if status else ""
        print(f"{name}: {time.time() - begun:.1f} s{ending}", flush=True)

    for case in cases:
        if time.time() - start > arguments.seconds:
            print("no time left for", case["id"])
            continue
        while len(live) >= arguments.workers:
            finish_one()
        live[start_child(case, arguments)] = (case["id"], time.time())
    while live:
        finish_one()
    report(arguments.out, time.time() - start)


if __name__ == "__main__":
    main()
