#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a transcript cannot show: pipes that close, full disks, JSON that adds up, files that stay
whole, colours that come and go."""

import argparse
import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

DATA = pathlib.Path(__file__).resolve().parent / "data"
PLAN = ["plan", "folder", "--batch", "2", "--seq", "64"]
TENSORS = ["weights", "gradients", "optimizer", "activations", "temporaries", "inputs", "kv_cache",
           "workspace"]
HEADROOM = ""


def run(*words, env=None, **options):
    outer = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    variables = {**outer, "LC_ALL": "C", "HOME": str(DATA / "home"), **(env or {})}
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([HEADROOM, *words], cwd=DATA, env=variables, stderr=subprocess.PIPE,
                          timeout=60, **options)


class Output(unittest.TestCase):
    def test_closed_pipe_ends_quietly(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = run(*PLAN, stdout=writer)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_full_disk_is_told(self):
        with open("/dev/full", "wb") as full:
            done = run(*PLAN, stdout=full)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"standard output failed", done.stderr)

    def test_no_colour_in_a_pipe_and_some_when_told(self):
        self.assertNotIn(b"\x1b", run(*PLAN, env={"LC_ALL": "C.UTF-8"}).stdout)
        self.assertTrue(run(*PLAN).stdout.isascii())
        coloured = run(*PLAN, "--color", "always", env={"LC_ALL": "C.UTF-8"}).stdout.decode()
        self.assertIn("\x1b[", coloured)
        self.assertIn("█", coloured)

    def test_every_page_keeps_to_80_columns(self):
        for words in (["gpus"], ["models"], ["--help"], ["plan", "--help"], ["score", "--help"],
                      [*PLAN, "--by-module"], ["score", "unsupported.jsonl"]):
            for line in run(*words).stdout.decode().splitlines():
                self.assertLessEqual(len(line), 80, line)

    def too_wide(self, text, columns):
        """Lines beyond `columns` that could have been broken: names and calls cannot."""
        return [line for line in text.splitlines()
                if len(line) > columns and len(max(line.split(), key=len)) < columns // 2]

    def test_text_keeps_to_narrow_terminals(self):
        snapshots = DATA.parents[1] / "data" / "snapshots"
        recording = str(snapshots / "oom-gpt2.pickle.gz")
        for columns in (40, 60, 80):
            for words in (PLAN, [*PLAN, "--by-module"], [*PLAN, "--gpu", "A100 80GB"],
                          ["plan", "openai-community/gpt2", "--generate", "--batch", "2", "--seq", "64",
                           "--max-new-tokens", "8"], ["explain", recording],
                          ["explain", str(snapshots / "oom-gpt2.txt")],
                          ["diff", "plan_small.json", "plan_large.json"]):
                text = run(*words, env={"COLUMNS": str(columns)}).stdout.decode()
                self.assertGreater(len(text), 500, words)
                self.assertEqual(self.too_wide(text, columns), [], (columns, words))

    def test_width_is_that_of_the_terminal(self):
        try:
            ours, theirs = pty.openpty()
        except OSError:
            self.skipTest("this system has no pseudo terminals")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 50, 0, 0))
        run(*PLAN, stdout=theirs)
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 1 << 16):
                text += part
        except OSError:  # Linux says so at the end
            pass
        os.close(ours)
        text = re.sub("\x1b\\[[0-9;]*m", "", text.decode())
        self.assertEqual(self.too_wide(text, 50), [])
        self.assertGreater(max(map(len, text.splitlines())), 40)

    def test_hostile_names_stay_on_one_line(self):
        done = run("plan", "no\nsuch\x1b[31mmodel")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertNotIn(b"\x1b", done.stderr)


class Json(unittest.TestCase):
    def plan(self, *words):
        done = run(*PLAN, "--json", *words)
        self.assertIn(done.returncode, (0, 1))
        return json.loads(done.stdout)

    def test_plan_has_the_documented_keys(self):
        plan = self.plan()
        self.assertEqual(list(plan), ["schema", "model", "parameters", "totals", "peak", "phases",
                                      "assumptions", "verdict"])
        self.assertIsNone(plan["verdict"])
        self.assertEqual(plan["phases"][0]["name"], "train_begin")

    def test_components_add_up_to_the_three_totals(self):
        plan = self.plan("--bf16")
        components, totals = plan["peak"]["components"], plan["totals"]
        tensors = sum(components[name] for name in TENSORS)
        self.assertEqual(tensors, plan["peak"]["allocated"])
        self.assertEqual(tensors, totals["allocated"])
        self.assertEqual(tensors + components["cache"], totals["reserved"])
        self.assertEqual(totals["reserved"] + components["context"], totals["device"])
        self.assertEqual(sum(plan["peak"]["modules"].values()), totals["allocated"])
        self.assertEqual(sum(plan["peak"]["kinds"].values()),
                         components["activations"] + components["temporaries"])
        for phase in plan["phases"]:
            self.assertEqual(sum(phase["components"][name] for name in TENSORS), phase["allocated"])

    def test_weights_dtype_is_the_first_assumption(self):
        self.assertIn("float32", self.plan()["assumptions"][0])
        self.assertIn("bfloat16", self.plan("--dtype", "bfloat16")["assumptions"][0])

    def test_verdict_and_exit_code_agree(self):
        self.assertEqual(run(*PLAN, "--memory", "200MiB").returncode, 1)
        self.assertEqual(run(*PLAN, "--memory", "2GiB").returncode, 0)
        verdict = self.plan("--memory", "800MiB")["verdict"]
        self.assertFalse(verdict["fits"])
        self.assertEqual(verdict["short_by"], verdict["needed"] - verdict["cap"])
        enough = verdict["memory"] + verdict["short_by"]
        self.assertTrue(self.plan("--memory", str(enough))["verdict"]["fits"])

    def test_warnings_go_to_stderr(self):
        done = run("plan", "folder", "--args", "args.yaml", "--seq", "64", "--json")
        json.loads(done.stdout)
        self.assertIn(b"learning_rate", done.stderr)

    def test_lists_are_one_object(self):
        self.assertGreaterEqual(len(json.loads(run("gpus", "--json").stdout)["gpus"]), 40)
        self.assertGreaterEqual(len(json.loads(run("models", "--json").stdout)["models"]), 40)


class Ledger(unittest.TestCase):
    def test_ledger_agrees_with_the_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ledger.json"
            plan = json.loads(run(*PLAN, "--json", "--ledger", str(path)).stdout)
            ledger = json.loads(path.read_text())
            self.assertEqual(ledger["totals"]["allocated"], plan["totals"]["allocated"])
            self.assertEqual(ledger["totals"]["device"], plan["totals"]["device"])
            self.assertEqual(len(ledger["events"]["type"]), len(ledger["events"]["value"]))
            self.assertEqual(os.listdir(folder), ["ledger.json"])

    def test_failed_plan_leaves_the_old_ledger(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ledger.json"
            path.write_text("old")
            self.assertEqual(run("plan", "gpt2", "--seq", "9999", "--ledger", str(path)).returncode, 2)
            self.assertEqual(path.read_text(), "old")


class Score(unittest.TestCase):
    def test_a_plan_scores_itself_as_exact(self):
        plan = json.loads(run("plan", "gpt2", "--batch", "1", "--seq", "64", "--json").stdout)
        row = {"id": "own", "task": "causal-lm", "config": {"model_type": "gpt2"},
               "recipe": {"batch": 1, "seq": 64, "precision": "fp32", "steps": 3},
               "params": plan["parameters"],
               "phases": [[p["name"], p["allocated"], p["peak"], p["reserved"]]
                          for p in plan["phases"]],
               "peak_allocated": plan["totals"]["allocated"],
               "peak_reserved": plan["totals"]["reserved"],
               "final_process": plan["totals"]["device"],
               "final_reserved": plan["totals"]["reserved"]}
        score = json.loads(run("score", "-", "--json", input=json.dumps(row).encode()).stdout)
        self.assertEqual((score["rows"], score["supported"], score["params_exact"]), (1, 1, 1))
        for what in ("allocated", "reserved", "device", "phase_allocated"):
            self.assertEqual((score[what]["exact"], score[what]["max"]), (1, 0.0), what)
        self.assertEqual(score["worst"], [])
        row["peak_allocated"] *= 2
        score = json.loads(run("score", "-", "--json", input=json.dumps(row).encode()).stdout)
        self.assertEqual(score["worst"][0]["what"], "allocated")
        self.assertEqual(score["allocated"]["under_1pct"], 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--headroom", required=True)
    known, rest = parser.parse_known_args()
    HEADROOM = str(pathlib.Path(known.headroom).resolve())
    unittest.main(argv=[sys.argv[0], *rest])
