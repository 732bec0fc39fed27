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
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
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

    def test_exit_code_tells_what_a_closed_standard_error_cannot(self):
        shell = ["sh", "-c", 'exec "$0" "$@" 2>&-', HEADROOM, "plan", "missing.json"]
        done = subprocess.run(shell, cwd=DATA, stdout=subprocess.PIPE, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, b""))

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


class Measure(unittest.TestCase):
    ANY = ["ops", "train/tiny.json", "--measure"]
    TINY = [*ANY, "--device", "cpu", "--batch", "2", "--seq", "16"]

    def measure(self, *words):
        done = run(*self.TINY, "--json", *words)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return json.loads(done.stdout)

    def test_every_table_adds_up_to_the_step(self):
        report = self.measure()
        for table in ("ops", "classes", "phases", "cells"):
            for key in ("seconds", "flops", "bytes", "ops"):
                self.assertAlmostEqual(sum(line[key] for line in report[table]),
                                       report["total"][key], delta=1e-9 * report["total"][key])
            self.assertAlmostEqual(sum(line["share"] for line in report[table]), 1)
        self.assertEqual([line["phase"] for line in report["phases"]],
                         ["forward", "backward", "optimizer"])
        self.assertEqual([line["class"] for line in report["classes"]],
                         ["contraction", "normalization", "elementwise"])
        self.assertEqual(report["total"]["ops"], len(report["ops"]))
        self.assertAlmostEqual(report["step"]["op_seconds"], report["total"]["seconds"])
        self.assertIsNone(report["step"]["replayed_seconds"])
        self.assertIsNone(report["total"]["roofline_share"])
        seconds = [line["seconds"] for line in report["largest"]]
        self.assertEqual(seconds, sorted(seconds, reverse=True))
        for line in report["ops"]:
            self.assertGreater(line["seconds"], 0)
            self.assertGreater(line["bytes"], 0)

    def test_accumulation_repeats_all_but_the_optimizer(self):
        flops = [{line["phase"]: line["flops"] for line in self.measure("--accum", n)["phases"]}
                 for n in ("1", "4")]
        for phase, times in (("forward", 4), ("backward", 4), ("optimizer", 1)):
            self.assertEqual(flops[1][phase], times * flops[0][phase])

    def test_text_keeps_to_80_columns_and_names_the_modules(self):
        text = run(*self.TINY).stdout.decode()
        self.assertIn("One optimizer step, measured on the CPU\n", text)
        self.assertRegex(text, r"  h\.\*\.\S+: \w+")
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_refuses_what_does_not_run(self):
        for words, message in (
                (["--device", "cpu", "--lora"], "has no LoRA: leave out --measure"),
                (["--device", "cpu", "--gpu", "H200"], "leave it out on the CPU"),
                (["--device", "cpu", "--batch", "1000000", "--seq", "64"], "lower --batch or"),
                (["--device", "tpu"], "--device tpu: unknown")):
            done = run(*self.ANY, *words)
            self.assertEqual((done.returncode, done.stdout), (2, b""), words)
            self.assertIn(message, done.stderr.decode())
            self.assertEqual(done.stderr.count(b"\n"), 1)
        done = run("ops", "train/tiny.json", "--device", "cpu")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--device: says where --measure runs", done.stderr)

    def test_interrupted_measurement_says_so(self):
        words = [*self.ANY, "--device", "cpu", "--batch", "2000", "--seq", "64"]
        process = subprocess.Popen([HEADROOM, *words], cwd=DATA, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, out), (130, b""))
        self.assertEqual(err, b"headroom ops: stopped before the step was measured\n")


class Train(unittest.TestCase):
    TINY = ["train", "train/tiny.json", "--dataset", "synthetic", "--batch", "2", "--seq", "16",
            "--device", "cpu"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, *words, **options):
        return run(*self.TINY, *words, **options)

    def test_interrupted_run_is_saved_and_resumes_to_the_bit(self):
        log = self.folder / "log.jsonl"
        steps = ["--max-steps", "1500", "--lr", "1e-3"]
        self.assertEqual(self.train(*steps, "--output-dir", self.folder / "whole").returncode, 0)
        stopped = [*steps, "--output-dir", str(self.folder / "stopped"), "--log", str(log)]
        process = subprocess.Popen([HEADROOM, *self.TINY, *stopped], cwd=DATA,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 30
        while not (log.exists() and log.stat().st_size) and time.monotonic() < end:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[0].decode()
        self.assertEqual(process.returncode, 130, said)
        reached = len(log.read_text().splitlines())
        self.assertIn(f"Stopped after step {reached} of 1500", said)
        self.assertTrue((self.folder / "stopped" / f"checkpoint-{reached}").is_dir())
        self.assertEqual(run(*self.TINY, *stopped, "--resume-from-checkpoint").returncode, 0)
        weights = [(self.folder / run / "model.safetensors").read_bytes()
                   for run in ("whole", "stopped")]
        self.assertEqual(weights[0], weights[1])
        steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
        self.assertEqual(steps, list(range(1, 1501)))

    def test_json_has_the_metrics_and_planned_is_allocated(self):
        # Gradients are kept from step to step where several micro-steps add to them.
        for accumulation, kept in (("1", ("weights", "optimizer")),
                                   ("2", ("weights", "gradients", "optimizer"))):
            done = self.train("--max-steps", "3", "--json", "--validation-split", "0.1", "--accum",
                              accumulation)
            result = json.loads(done.stdout)
            self.assertIn(b"step 3/3", done.stderr)
            for key in ("train_runtime", "train_samples_per_second", "train_loss", "eval_loss",
                        "peak"):
                self.assertIn(key, result)
            self.assertEqual(result["planned_bytes"], result["arena_bytes"])
            self.assertEqual(result["planned_bytes"], result["peak"]["allocated"])
            components = result["peak"]["components"]
            measured = result["measured"]
            self.assertEqual(measured["arena"], result["arena_bytes"])
            for name in kept:
                self.assertEqual(measured[name], components[name])
            self.assertEqual("gradients" in measured, "gradients" in kept)
            self.assertGreaterEqual(measured["process_growth"], result["arena_bytes"])

    def test_log_has_a_line_a_step_and_memory_stays_level(self):
        # A build with the address sanitizer holds on to what was freed, unless told, and to a
        # little for itself.
        told = {"ASAN_OPTIONS": "quarantine_size_mb=0:thread_local_quarantine_size_kb=0"}
        for name in ("log.jsonl", "log.csv"):
            self.train("--max-steps", "60", "--log", self.folder / name, env=told)
        rows = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        lines = (self.folder / "log.csv").read_text().splitlines()
        self.assertEqual(lines[0].split(","), list(rows[0]))
        self.assertEqual([row["step"] for row in rows], list(range(1, 61)))
        self.assertEqual(len(lines), 61)
        self.assertLess(rows[-1]["loss"], rows[0]["loss"])
        self.assertLessEqual(rows[-1]["resident"] - rows[9]["resident"], 4 << 20)

    def test_loss_that_is_no_number_ends_the_run_and_names_a_tensor(self):
        done = self.train("--max-steps", "60", "--optim", "sgd", "--momentum", "0.9", "--lr", "1e6",
                          "--lr-scheduler-type", "constant", "--max-grad-norm", "0", "--output-dir",
                          self.folder / "out")
        self.assertNotIn(done.returncode, (0, 134))
        self.assertRegex(done.stderr.decode(), r"step \d+: .* transformer\.")
        self.assertEqual(list((self.folder / "out").iterdir()), [])

    def test_training_outlives_its_log_and_its_reader(self):
        log = self.folder / "log.csv"
        log.symlink_to("/dev/full")
        reader, writer = os.pipe()
        os.close(reader)
        out = self.folder / "out"
        done = self.train("--max-steps", "3", "--output-dir", out, stdout=writer)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue((out / "model.safetensors").exists())
        done = self.train("--max-steps", "3", "--log", log)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.count(b"cannot be written any more"), 1)

    def test_status_line_keeps_to_the_terminal(self):
        try:
            ours, theirs = pty.openpty()
        except OSError:
            self.skipTest("this system has no pseudo terminals")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 40, 0, 0))
        self.train("--max-steps", "3", stdout=theirs)
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 1 << 16):
                text += part
        except OSError:
            pass
        os.close(ours)
        states = re.findall("\rstep [^\x1b\r]*", text.decode())
        self.assertTrue(states)
        for state in states:
            self.assertLess(len(state.strip()), 40, state)

    def test_page_has_the_curves(self):
        page = self.folder / "page.html"
        self.train("--max-steps", "5", "--html", page)
        text = page.read_text(encoding="utf-8")
        for heading in ("Loss", "Learning rate", "Memory, planned and measured"):
            self.assertIn(heading, text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--headroom", required=True)
    known, rest = parser.parse_known_args()
    HEADROOM = str(pathlib.Path(known.headroom).resolve())
    unittest.main(argv=[sys.argv[0], *rest])
