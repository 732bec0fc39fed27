#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans of flags put together at random, from one seed.

Each ends with 0, 1 or 2, within seconds. What is planned adds up: components to allocated, with the
cache to reserved, with the context to device; and a batch of one more sample, or no checkpointing,
allocates no less. What is refused is told in one line.

  random_plans.py --headroom build/release/cli/headroom [--seed 1] [--plans 60]
"""

import argparse
import collections
import concurrent.futures
import json
import random
import subprocess
import sys

TIMEOUT_SECONDS = 30
OUTSIDE = ("cache", "context")
# Blocks are handed out whole where less than 1 MiB would be left: luck that sizes decide.
WASTE = 0.01
MODELS = {
    "causal-lm": [
        "gpt2", "meta-llama/Llama-3.2-1B", "EleutherAI/pythia-160m", "facebook/opt-125m",
        "bigscience/bloom-560m", "Qwen/Qwen3-0.6B", "google/gemma-2b", "microsoft/phi-1_5",
        "google/gemma-2-2b", "google/gemma-3-270m", "EleutherAI/gpt-neo-125m",
        "bigcode/starcoderbase-1b", "tiiuae/falcon-rw-1b", "allenai/OLMo-1B-hf",
        "stabilityai/stablelm-2-1_6b", "HuggingFaceTB/SmolLM3-3B", "bigcode/starcoder2-3b"],
    "masked-lm": [
        "bert-base-uncased", "roberta-base", "distilbert-base-uncased", "albert-base-v2",
        "google/electra-base-discriminator", "microsoft/deberta-v3-base",
        "answerdotai/ModernBERT-base", "camembert-base"],
    "sequence-classification": ["roberta-base", "microsoft/deberta-v3-base", "gpt2"],
    "token-classification": ["bert-base-uncased", "roberta-base"],
    "seq2seq-lm": ["t5-small", "facebook/bart-base", "google/mt5-small",
                   "Helsinki-NLP/opus-mt-en-de", "openai/whisper-base"],
    "image-classification": ["google/vit-base-patch16-224", "facebook/deit-base-patch16-224"],
}
OPTIMIZERS = ["adamw_torch_fused", "adamw_torch", "sgd", "adafactor", "adagrad", "rmsprop",
              "adamw_bnb_8bit", "paged_adamw_8bit", "lion_8bit"]
SEVERAL = [["--nproc-per-node", "4"], ["--nproc-per-node", "8", "--fsdp"],
           ["--nproc-per-node", "2", "--deepspeed-stage", "2"],
           ["--nproc-per-node", "4", "--tensor-parallel-size", "4"]]


def generation(pick):
    words = ["--generate", "--max-new-tokens", pick(["1", "5", "40"])]
    words += pick([[], ["--num-beams", "3"], ["--do-sample"]])
    words += pick([[], ["--load-in-8bit"], ["--load-in-4bit"], ["--load-with", "device-map"],
                   ["--dtype", "bfloat16"]])
    return words + pick([[], ["--cache-implementation", "static"],
                         ["--cache-implementation", "none"]])


def training(rng):
    pick = rng.choice
    words = pick([[], ["--bf16"], ["--fp16"], ["--tf32"]]) + ["--optim", pick(OPTIMIZERS)]
    for chance, several in [
            (0.4, [["--attn", "eager"]]),
            (0.4, [["--gradient-checkpointing"], ["--gradient-checkpointing=reentrant"]]),
            (0.4, [["--accum", "2"], ["--accum", "3"], ["--accum", "8"]]),
            (0.3, [["--lora", "--lora-target-modules", "all-linear"],
                   ["--lora", "--lora-target-modules", "all-linear", "--load-in-4bit"]]),
            (0.3, [["--attention-mask"]]),
            (0.2, [["--dtype", "bfloat16"], ["--dtype", "float16"]]),
            (0.2, SEVERAL),
            (0.15, [["--do-eval", "--eval-samples", "50", "--eval-steps", "1"]])]:
        if rng.random() < chance:
            words += pick(several)
    return words


def random_plan(rng):
    task = rng.choice(list(MODELS) + ["causal-lm"] * 3)
    words = ["plan", rng.choice(MODELS[task]), "--task", task,
             "--batch", rng.choice(["1", "2", "3", "7", "16", "64"])]
    if task != "image-classification":
        words += ["--seq", rng.choice(["1", "7", "64", "128", "333", "448"])]
    generates = task in ("causal-lm", "seq2seq-lm") and rng.random() < 0.2
    words += generation(rng.choice) if generates else training(rng)
    for chance, flag, values in [
            (0.3, "--memory", ["1GiB", "6GiB", "24GiB"]),
            (0.2, "--alloc-conf", ["expandable_segments:True", "max_split_size_mb:64",
                                   "garbage_collection_threshold:0.6"]),
            (0.2, "--gpu", ["A100-80GB", "RTX 3060", "V100", "T4"])]:
        if rng.random() < chance:
            words += [flag, rng.choice(values)]
    return words


def run(headroom, words):
    """The exit code, the plan (None when there is none) and what went to stderr."""
    done = subprocess.run([headroom, *words, "--json"], capture_output=True, text=True,
                          timeout=TIMEOUT_SECONDS)
    plan = json.loads(done.stdout) if done.stdout.strip() else None
    return done.returncode, plan, done.stderr


def needs_no_less(words):
    """The same plan in a form that allocates at least as much, or None."""
    if "--memory" in words or "--generate" in words:
        return None
    without = [word for word in words if not word.startswith("--gradient-checkpointing")]
    if without != words:
        return without
    larger = list(words)
    batch = words.index("--batch") + 1
    larger[batch] = str(int(words[batch]) + 1)
    return larger


def sums_that_differ(plan):
    totals, peak = plan["totals"], plan["peak"]
    tensors = sum(bytes_ for name, bytes_ in peak["components"].items() if name not in OUTSIDE)
    if tensors != peak["allocated"] or totals["allocated"] != peak["allocated"]:
        yield f"components are {tensors}, allocated {peak['allocated']}"
    if totals["device"] != totals["reserved"] + peak["components"]["context"]:
        yield f"device is {totals['device']}, not reserved and context"
    if totals["reserved"] < totals["allocated"]:
        yield f"reserved {totals['reserved']} is below allocated {totals['allocated']}"
    for phase in plan["phases"]:
        parts = dict(phase["components"])
        cache = parts.pop("cache")
        parts.pop("context")
        if sum(parts.values()) != phase["allocated"]:
            yield f"{phase['name']}: components are not what is allocated"
        if phase["allocated"] + cache != phase["reserved"]:
            yield f"{phase['name']}: allocated and cache are not what is reserved"


def faults_of(headroom, words):
    code, plan, told = run(headroom, words)
    if code not in (0, 1, 2):
        return code, [f"exit code {code}: {told.strip()[-200:]}"]
    if plan is None:
        one_line = told.count("\n") == 1 and told.startswith("headroom plan: ")
        return code, [] if code != 0 and one_line else [f"exit code {code}, but told: {told[:200]}"]
    faults = list(sums_that_differ(plan))
    if (more := needs_no_less(words)) is not None:
        _, other, _ = run(headroom, more)
        least = (1 - WASTE) * plan["totals"]["allocated"]
        if other is not None and other["totals"]["allocated"] < least:
            faults.append(f"allocates more than {' '.join(more)}")
    return code, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headroom", required=True, help="the program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plans", type=int, default=60)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    plans = [random_plan(rng) for _ in range(arguments.plans)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda words: faults_of(arguments.headroom, words), plans))
    failed = 0
    for words, (_, faults) in zip(plans, results):
        for fault in faults:
            failed += 1
            print(f"headroom {' '.join(words)}: {fault}")
    codes = collections.Counter(code for code, _ in results)
    print(f"{len(plans)} plans: " +
          ", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items())))
    # Refusals alone would test nothing.
    return 1 if failed or codes[0] < len(plans) / 3 else 0


if __name__ == "__main__":
    sys.exit(main())
