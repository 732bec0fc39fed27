#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bounds on the predictor's error over measured runs: `headroom score` on tests/data/*.jsonl.

usage: accuracy.py --headroom PROGRAM --data FOLDER
"""
import argparse
import json
import subprocess
import sys

# Fractions. The allocated bounds are those of the real runs' own spread (docs/accuracy.md); the
# reserved ones allow for a segment more or less where free blocks tie.
BOUNDS = {
    "hf_memory_foundation.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 60, "phase_max": 0.01,
        "reserved_max": 0.03, "reserved_median": 0.01, "device_max": 0.02,
    },
    "hf_memory_breadth.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 38, "phase_max": 0.02,
        "reserved_max": 0.03, "reserved_median": 0.01, "device_max": 0.03,
    },
    "hf_memory_generate.jsonl": {
        "allocated_max": 0.002, "allocated_exact": 34, "phase_max": 0.005,
        "reserved_max": 0.01, "reserved_median": 0.005, "device_max": 0.02,
    },
    "hf_memory_expandable.jsonl": {
        "allocated_max": 0.0, "allocated_exact": 10, "phase_max": 0.0,
        "reserved_max": 0.0, "reserved_median": 0.0, "device_max": 0.0,
    },
    "hf_memory_sharding.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 14, "phase_max": 0.015,
        "reserved_max": 0.03, "reserved_median": 0.005, "device_max": 0.01,
    },
    "hf_memory_more.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 28, "phase_max": 0.01,
        "reserved_max": 0.04, "reserved_median": 0.01, "device_max": 0.03,
    },
    # Architectures that had no rows when they were written. CamemBERT's reserved peak holds one
    # segment too many, of 126 MiB, behind an address tie.
    "hf_memory_architectures.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 16, "phase_max": 0.01,
        "reserved_max": 0.08, "reserved_median": 0.001, "device_max": 0.06,
    },
    "fit_boundary.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 7, "phase_max": 0.01,
        "reserved_max": 0.03, "reserved_median": 0.01, "device_max": 0.03,
        "boundary_max": 0.01, "boundary_rows": 12,
    },
    # LoRA, bitsandbytes' optimizers, evaluation, the classifiers' losses.
    "hf_memory_lora.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 35, "phase_max": 0.01,
        "reserved_max": 0.03, "reserved_median": 0.005, "device_max": 0.03,
    },
    # LoRA on weights that bitsandbytes quantised.
    "hf_memory_qlora.jsonl": {
        "allocated_max": 0.005, "allocated_exact": 12, "phase_max": 0.01,
        "reserved_max": 0.03, "reserved_median": 0.005, "device_max": 0.03,
    },
}


def failures(name, score, bounds):
    """What is out of bounds, one line each."""
    checks = [
        ("unsupported rows", sum(score["unsupported"].values()), bounds.get("unsupported", 0), "most"),
        ("rows with exact parameter counts", score["params_exact"],
         0 if "boundary_rows" in bounds else score["supported"], "least"),
        ("allocated peak, largest error", score["allocated"]["max"], bounds["allocated_max"], "most"),
        ("allocated peak, exact rows", score["allocated"]["exact"], bounds["allocated_exact"], "least"),
        ("allocated peak, rows over 1 % too low", score["allocated"]["under_1pct"], 0, "most"),
        ("allocated in any phase, largest error", score["phase_allocated"]["max"], bounds["phase_max"], "most"),
        ("reserved peak, largest error", score["reserved"]["max"], bounds["reserved_max"], "most"),
        ("reserved peak, median error", score["reserved"]["median"], bounds["reserved_median"], "most"),
        ("device total, largest error", score["device"]["max"], bounds["device_max"], "most"),
    ]
    if "boundary_rows" in bounds:
        fit = score["fit"]
        checks += [
            ("rows with a predicted boundary", fit["rows"], bounds["boundary_rows"], "least"),
            ("boundary, largest error", fit["boundary"]["max"], bounds["boundary_max"], "most"),
            ("false fits", fit["false_fits"], 0, "most"),
            ("false refusals", fit["false_refusals"], 0, "most"),
        ]
    for what, value, bound, direction in checks:
        if value > bound if direction == "most" else value < bound:
            yield f"{name}: {what}: {value}, allowed at {direction} {bound}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headroom", required=True)
    parser.add_argument("--data", required=True)
    arguments = parser.parse_args()
    failed = []
    for name, bounds in BOUNDS.items():
        run = subprocess.run([arguments.headroom, "score", f"{arguments.data}/{name}", "--json"],
                             capture_output=True, text=True, check=False)
        if run.returncode != 0:
            failed.append(f"{name}: headroom score failed: {run.stderr.strip()}")
            continue
        score = json.loads(run.stdout)
        print(f"{name}: {score['supported']} rows, allocated exact on {score['allocated']['exact']}, "
              f"largest error {score['allocated']['max']:.3%}, reserved {score['reserved']['max']:.3%}")
        failed.extend(failures(name, score, bounds))
    for line in failed:
        print("FAILED", line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
