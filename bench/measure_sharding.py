#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what one rank of several allocates: DDP, FSDP, tensor parallelism; and mixed lengths.

usage: measure_sharding.py CASES.jsonl OUT.jsonl [--only TEXT] [--workers N] [--seconds S]
                           [--timeout S] [--snapshots FOLDER]

Needs one CUDA GPU, PyTorch, transformers and accelerate. The ranks are pretended: PyTorch's fake
process group makes every collective return at once, while the wrappers allocate what they allocate
on a real rank 0. What NCCL itself holds is therefore not in the figures. Each line of CASES is one
run of Hugging Face's Trainer in a process forked from this one, and becomes one line of OUT in the
form that `headroom score` reads. Beside the keys of other measured rows a recipe may have:

  parallel     {"kind": "ddp" | "fsdp" | "tp", "world": N, and for fsdp TrainingArguments'
               fsdp_config as "config"; for ddp "bucket_cap_mb", "find_unused"}
  lengths      the sequence length of each step's batch
  snapshot     true: with --snapshots, the allocator's history is written there
"""

import argparse
import gzip
import importlib
import json
import os
import pickle
import signal
import tempfile
import time
import traceback
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

# A process that has opened CUDA cannot be forked: libraries that ask about the GPU get answers.
with mock.patch.multiple(
    torch.cuda,
    is_available=lambda: True,
    device_count=lambda: 1,
    get_device_capability=lambda device=None: (9, 0),
):
    import accelerate
    import transformers
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.initialization import no_init_weights

    for imported_late in (
        "accelerate.utils.fsdp_utils",
        "pynvml",
        "torch._dynamo",
        "torch._inductor",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
        "transformers.distributed.tensor_parallel",
        "transformers.trainer_pt_utils",
    ):
        try:
            importlib.import_module(imported_late)
        except ImportError as failure:
            print("not imported ahead:", failure)

DEVICE = "cuda"
CLASSES = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "causal-lm": "AutoModelForCausalLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
}


def process_bytes():
    """What the driver counts for this process."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.pid == os.getpid():
            return int(process.usedGpuMemory or 0)
    return None


def pretend_ranks(world):
    """This process becomes rank 0 of `world`."""
    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="localhost", MASTER_PORT="29500",
    )
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())


class PretendedDdp(torch.nn.parallel.DistributedDataParallel):
    """DDP whose bucket reduction is done at once.

    A fake collective hands back no tensors, which DDP's own reduction insists on; as a hook this
    one works on the same buckets and allocates nothing.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

        def reduced(_, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        self.register_comm_hook(None, reduced)


def model_config(case):
    arguments = dict(case["config"])
    config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
    if case["task"] == "seq2seq-lm":
        config.decoder_start_token_id = config.pad_token_id = 0
    return config


def model_arguments(recipe):
    if recipe.get("weights_dtype"):
        return {"dtype": getattr(torch, recipe["weights_dtype"])}
    return {}


def fresh_model(case):
    auto = getattr(transformers, CLASSES[case["task"]])
    with no_init_weights():
        model = auto.from_config(model_config(case), **model_arguments(case["recipe"]))
    model.tie_weights()
    return model


def fill(model):
    """Values do not decide memory, but what lies in fresh memory could be NaN."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = parameter.dim() < 2 and not name.endswith("bias")
            parameter.fill_(1.0 if one else 0.0)


def load_tensor_parallel(case):
    """from_pretrained with the model's own plan; the checkpoint is zeros in memory."""
    with torch.device("meta"):
        empty = fresh_model(case)
    weights = {
        n: torch.zeros(p.shape, dtype=p.dtype) for n, p in empty.state_dict(keep_vars=True).items()
    }
    return type(empty).from_pretrained(
        None,
        config=model_config(case),
        state_dict=weights,
        tp_plan="auto",
        **model_arguments(case["recipe"]),
    )


def build(case, row):
    parallel = case["recipe"].get("parallel") or {}
    if parallel.get("kind") == "tp":
        model = load_tensor_parallel(case)
        with torch.device("meta"):
            row["params"] = sum(p.numel() for p in fresh_model(case).parameters())
    else:
        model = fresh_model(case)
        row["params"] = sum(p.numel() for p in model.parameters())
        fill(model)
        if parallel.get("kind") != "fsdp":  # which brings each rank's share to the GPU itself
            model.to(DEVICE)
    row["trainable"] = row["params"]
    row["attn_used"] = model.config._attn_implementation
    torch.cuda.synchronize()
    row["buffers_bytes"] = sum(b.numel() * b.element_size() for b in model.buffers())
    row["after_model_allocated"] = torch.cuda.memory_allocated()
    row["after_model_reserved"] = torch.cuda.memory_reserved()
    return model


class Samples:
    def __init__(self, case, config):
        recipe = case["recipe"]
        self.case, self.lengths = case, recipe.get("lengths")
        self.world = (recipe.get("parallel") or {}).get("world", 1)
        self.per_step = recipe["batch"] * recipe.get("accum", 1) * self.world
        self.steps = len(self.lengths) if self.lengths else recipe.get("steps", 3)
        self.vocab = min(30000, config.vocab_size - 1)

    def __len__(self):
        return self.per_step * self.steps

    def __getitem__(self, index):
        recipe, task = self.case["recipe"], self.case["task"]
        length = self.lengths[index // self.per_step] if self.lengths else recipe["seq"]
        ids = torch.arange(length) % self.vocab
        sample = {"input_ids": ids}
        if recipe.get("attention_mask"):
            sample["attention_mask"] = torch.ones_like(ids)
        sample["labels"] = torch.tensor(0) if task == "sequence-classification" else ids.clone()
        return sample


class Marks(TrainerCallback):
    """[name, allocated now, peak since the mark before, reserved now] at each phase boundary."""

    def __init__(self):
        self.rows = []

    def mark(self, name):
        torch.cuda.synchronize()
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

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model, *args, **kwargs):
        self.marks.mark("forward_begin")
        result = super().compute_loss(model, *args, **kwargs)
        self.marks.mark("forward_end")
        return result


def training_arguments(recipe, folder):
    parallel = recipe.get("parallel") or {}
    arguments = {
        "output_dir": folder,
        "max_steps": len(recipe["lengths"]) if recipe.get("lengths") else recipe.get("steps", 3),
        "per_device_train_batch_size": recipe["batch"],
        "gradient_accumulation_steps": recipe.get("accum", 1),
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 10**6,
        "log_level": "error",
        "disable_tqdm": True,
        "seed": 0,
        "bf16": recipe["precision"] == "bf16",
        "optim": recipe.get("optim", "adamw_torch_fused"),
        "gradient_checkpointing": bool(recipe.get("checkpoint")),
        "max_grad_norm": recipe.get("max_grad_norm"),
        "ddp_bucket_cap_mb": parallel.get("bucket_cap_mb"),
        "ddp_find_unused_parameters": parallel.get("find_unused"),
    }
    if recipe.get("checkpoint"):
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if parallel.get("kind") == "fsdp":
        arguments["fsdp"] = "full_shard auto_wrap" if parallel.get("words") else True
        arguments["fsdp_config"] = dict(parallel.get("config") or {})
    return TrainingArguments(**{k: v for k, v in arguments.items() if v is not None})


def train(case, row, snapshots):
    recipe = case["recipe"]
    keep_history = bool(recipe.get("snapshot") and snapshots)
    with tempfile.TemporaryDirectory() as folder:
        if recipe.get("parallel"):
            pretend_ranks(recipe["parallel"]["world"])
            torch.nn.parallel.DistributedDataParallel = PretendedDdp
        if keep_history:
            torch.cuda.memory._record_memory_history(max_entries=400000)
        model = build(case, row)
        torch.cuda.reset_peak_memory_stats()
        marks = Marks()
        MarkedTrainer.marks = marks
        trainer = MarkedTrainer(
            model=model,
            args=training_arguments(recipe, folder),
            train_dataset=Samples(case, model.config),
            callbacks=[marks],
        )
        marks.mark("trainer_made")
        trainer.train()
        row["wrapped"] = type(trainer.model_wrapped).__name__
        row["world"] = trainer.accelerator.num_processes
    if keep_history:
        history = torch.cuda.memory._snapshot()
        with gzip.open(os.path.join(snapshots, case["id"] + ".pickle.gz"), "wb", 6) as out:
            pickle.dump(history, out)
    row["phases"] = marks.rows
    row["peak_allocated"] = max(mark[2] for mark in marks.rows)


def run(case, path, snapshots):
    row = {name: case[name] for name in ("id", "task", "config", "recipe")}
    row["versions"] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": accelerate.__version__,
    }
    try:
        torch.manual_seed(0)
        torch.ones((1, 1)).to(DEVICE)
        torch.cuda.synchronize()
        row["context_process"] = process_bytes()
        train(case, row, snapshots)
        stats = torch.cuda.memory_stats()
        row["peak_reserved"] = torch.cuda.max_memory_reserved()
        row["final_allocated"] = torch.cuda.memory_allocated()
        row["final_reserved"] = torch.cuda.memory_reserved()
        row["final_process"] = process_bytes()
        row["segments"] = stats["segment.all.allocated"]
        row["alloc_retries"] = stats["num_alloc_retries"]
    except torch.cuda.OutOfMemoryError as failure:
        row["oom"] = str(failure)[:500]
    except Exception:
        row["error"] = traceback.format_exc()[-2500:]
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


def report(path, seconds):
    rows = [json.loads(line) for line in open(path)]
    print(f"{len(rows)} rows in {seconds:.0f} s, {rows[0]['versions'] if rows else ''}")
    for row in rows:
        if "error" in row or "oom" in row:
            print(row["id"], row.get("oom") or row["error"][-700:])
            continue
        print(
            f"{row['id']}: {row['wrapped']} of {row['world']}, peak "
            f"{row['peak_allocated'] / 2**20:.1f} MiB, reserved {row['peak_reserved'] / 2**20:.0f}"
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
    for case in cases:  # the modelling files too
        auto = getattr(transformers, CLASSES[case["task"]])
        auto._model_mapping[type(model_config(case))]
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
