#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what `headroom explain` says of recorded runs against what was measured in them, and `plan`
against both.

    recordings.py --headroom build/release/cli/headroom --snapshots FOLDER --rows FILE.jsonl …

A snapshot NAME.pickle.gz is a recording of the first steps of the row whose id is NAME. Of each:

  peak         allocated, less the row's for the same steps and phases: 0, or where two processes of
               one script placed their segments differently (docs/accuracy.md) within 0.2 %
  hand         less the peak of a replay by hand of the pickle's events, every request rounded to 512
               bytes: what blocks hold beyond that, never less
  end          less what the segments of the file say stands at its end: 0
  weights …    bytes asked for at the end (gradients: at the end of the last backward pass), against
               parameters x bytes of their type: within 1 %
  unexplained  of the peak: under 2 %
  plan         the largest difference of a component between `plan` and the recording, of the peak:
               under 2 %; "-" for recipes that `plan` does not take

Exit status 1 when a row misses one of these.
"""

import argparse
import gzip
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MOST_OF_PEAK, MOST_OF_PARAMETERS, MOST_UNEXPLAINED, MOST_OF_PLAN = 0.002, 0.01, 0.02, 0.02


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def by_hand(path):
    """Peak of the events of device 0 by addition, and the bytes of live blocks in the segments."""
    with gzip.open(path) as file:
        snapshot = pickle.load(file)  # our own file

    def rounded(size):
        return max(512, (size + 511) // 512 * 512)
    live, total, peak = {}, 0, 0
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            live[event["addr"]] = rounded(event["size"])
            total += live[event["addr"]]
        elif event["action"] == "free_completed":
            total -= live.pop(event["addr"], 0)
        peak = max(peak, total)
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    return peak, sum(block["size"] for block in blocks if block["state"] != "inactive")


def row_peak(row, steps):
    """Highest allocated up to the end of step `steps`."""
    peak, ends = 0, 0
    for name, _, phase_peak, _ in row["phases"]:
        peak = max(peak, phase_peak)
        ends += name == "step_end"
        if ends == steps:
            break
    return peak


def plan_flags(row):
    recipe, flags = row["recipe"], ["--task", row["task"], "--batch", str(row["recipe"]["batch"])]
    known = {"batch", "seq", "precision", "optim", "attn", "checkpoint", "accum", "weights_dtype", "steps",
             "max_grad_norm", "attention_mask", "target_seq", "reentrant", "snapshot", "lora"}
    if set(recipe) - known:
        return None
    if recipe.get("seq"):
        flags += ["--seq", str(recipe["seq"])]
    if recipe.get("target_seq"):
        flags += ["--target-seq", str(recipe["target_seq"])]
    flags += ["--" + recipe.get("precision", "fp32"), "--dtype", recipe.get("weights_dtype", "float32"), "--steps", "2"]
    for key, flag in (("optim", "--optim"), ("attn", "--attn"), ("accum", "--accum"), ("max_grad_norm", "--max-grad-norm")):
        if key in recipe:
            flags += [flag, str(recipe[key])]
    if recipe.get("checkpoint"):
        flags += ["--gradient-checkpointing=" + ("reentrant" if recipe.get("reentrant") else "non-reentrant")]
    if "lora" in recipe:
        lora = recipe["lora"]
        flags += ["--lora", "--lora-r", str(lora["r"]), "--lora-dropout", str(lora["lora_dropout"]),
                  "--lora-target-modules", ",".join(lora["target_modules"])]
    if recipe.get("attention_mask"):
        flags += ["--attention-mask"]
    return flags


def plan_difference(headroom, path, row, folder):
    flags = plan_flags(row)
    if flags is None:
        return None
    config, ledger = folder / "config.json", folder / "plan.json"
    config.write_text(json.dumps(row["config"]))
    try:
        run([headroom, "plan", config, *flags, "--ledger", ledger])
    except RuntimeError as failure:
        print(f"  {row['id']}: {failure}", file=sys.stderr)
        return None
    diff = json.loads(run([headroom, "diff", ledger, path, "--json"]))
    return diff["largest_difference"]


def study(headroom, path, row, folder):
    report = json.loads(run([headroom, "explain", path, "--json"]))
    recipe = row["recipe"]
    dtype = BYTES[recipe.get("weights_dtype", "float32")]
    lora = "lora" in recipe
    steps = len(report["steps"])
    end = report["requested"]["final"]
    backward = report["requested"]["after_backward"]
    hand_peak, hand_end = by_hand(path)
    # A row counts adapters in "trainable" only; they are float32 whatever the model's type is.
    weights = row["params"] * dtype + (row["trainable"] * 4 if lora else 0)
    trained = row["trainable"] * (4 if lora else dtype)
    states = None if recipe.get("optim", "adamw_torch_fused") not in ("adamw_torch", "adamw_torch_fused") else 2 * trained
    peak = report["totals"]["allocated"]
    return {
        "peak": peak - row_peak(row, steps),
        "peak share": abs(peak / row_peak(row, steps) - 1),
        "hand": peak - hand_peak,
        "end": report["final"]["allocated"] - hand_end,
        "weights": end["weights"] / weights - 1,
        "gradients": backward["gradients"] / trained - 1,
        "optimizer": None if states is None else end["optimizer"] / states - 1,
        "unexplained": report["unexplained"] / peak,
        "plan": plan_difference(headroom, path, row, folder),
    }


def misses(figures):
    missed = [] if figures["peak share"] < MOST_OF_PEAK else ["peak"]
    missed += [] if figures["hand"] >= 0 else ["hand"]
    missed += [] if figures["end"] == 0 else ["end"]
    for name in ("weights", "gradients", "optimizer"):
        if figures[name] is not None and abs(figures[name]) > MOST_OF_PARAMETERS:
            missed.append(name)
    if figures["unexplained"] >= MOST_UNEXPLAINED:
        missed.append("unexplained")
    if figures["plan"] is not None and figures["plan"] >= MOST_OF_PLAN:
        missed.append("plan")
    return missed


def text(value, percent=True):
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if percent else f"{value:,}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headroom", required=True)
    parser.add_argument("--snapshots", required=True, type=pathlib.Path)
    parser.add_argument("--rows", required=True, nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    rows = {}
    for path in args.rows:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows.setdefault(row.get("id"), row)
    columns = ("peak", "hand", "end", "weights", "gradients", "optimizer", "unexplained", "plan")
    print(f"{'recording':44}" + "".join(f"{name:>13}" for name in columns))
    failed = studied = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(args.snapshots.glob("*.pickle.gz")):
            row = rows.get(path.name.removesuffix(".pickle.gz"))
            if row is None:
                continue
            figures = study(args.headroom, path, row, pathlib.Path(folder))
            missed = misses(figures)
            studied += 1
            failed += bool(missed)
            cells = [text(figures[name], name not in ("peak", "hand", "end")) for name in columns]
            print(f"{row['id']:44}" + "".join(f"{cell:>13}" for cell in cells) + ("  MISSES " + ", ".join(missed) if missed else ""))
    print(f"{studied} recordings, {failed} with a miss")
    sys.exit(1 if failed or not studied else 0)


if __name__ == "__main__":
    main()
