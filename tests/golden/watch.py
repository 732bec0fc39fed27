#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headroom watch against an NVML that the build makes: a shell script plays the training run and
writes what its processes hold into a file that this NVML reads."""

import argparse
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

HEADROOM = ""
NVML = ""
MIB = 1 << 20
IDLE = 512 * MIB
# Holds 300, then 900, then 700 MiB, half a second each.
RUN = ('for size in 300 900 700; do echo "$$ $size" > "$FAKE_NVML_FILE.new";'
       ' mv "$FAKE_NVML_FILE.new" "$FAKE_NVML_FILE"; sleep 0.5; done; : > "$FAKE_NVML_FILE"; ')


class Watch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.file = self.path / "processes"
        self.file.write_text("")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FAKE_NVML")}
        self.env = {**kept, "LD_LIBRARY_PATH": NVML, "LC_ALL": "C",
                    "FAKE_NVML_FILE": str(self.file)}

    def tearDown(self):
        self.folder.cleanup()

    def start(self, *words, **more):
        return subprocess.Popen([HEADROOM, "watch", *words], env={**self.env, **more},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_(self, *words, **more):
        watch = self.start(*words, **more)
        out, err = watch.communicate(timeout=60)
        return watch.returncode, out, err

    def record(self, script, **more):
        target = self.path / "run.json"
        code, out, err = self.run_("--json", str(target), "--", "sh", "-c", script, **more)
        return code, out, err, json.loads(target.read_text())

    # ---- Live ----

    def test_no_driver_is_one_line(self):
        code, out, err = self.run_(FAKE_NVML_INIT="9")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err, "headroom watch: the NVIDIA driver does not answer: "
                              "Driver Not Loaded\n")

    def test_a_look_is_a_line_of_json(self):
        self.file.write_text(f"{os.getpid()} 700\n")
        code, out, err = self.run_("--count", "2", "--interval", "0.05")
        self.assertEqual((code, err), (0, ""))
        first, second = map(json.loads, out.splitlines())
        self.assertLess(first["time"], second["time"])
        gpu = first["gpus"][0]
        self.assertEqual(gpu["used"], IDLE + 700 * MIB)
        self.assertEqual(gpu["total"], gpu["used"] + gpu["free"] + gpu["reserved"])
        self.assertEqual([(p["pid"], p["bytes"], p["type"]) for p in gpu["processes"]],
                         [(os.getpid(), 700 * MIB, "compute")])
        self.assertIn("python", gpu["processes"][0]["name"])

    def test_closed_pipe_ends_it(self):
        watch = self.start("--interval", "0.02")
        watch.stdout.readline()
        watch.stdout.close()
        self.assertEqual(watch.wait(timeout=20), 0)
        self.assertEqual(watch.stderr.read(), "")
        watch.stderr.close()

    def test_interrupt_ends_it_and_keeps_the_recording(self):
        target = self.path / "live.json"
        watch = self.start("--interval", "0.05", "--json", str(target))
        watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=20)
        self.assertEqual(watch.returncode, 0)
        self.assertEqual(json.loads(target.read_text())["devices"][0]["matched_by"], "none")

    def on_terminal(self, rows, columns):
        """What two looks write to a terminal of this size."""
        try:
            ours, theirs = pty.openpty()
        except OSError:  # a chroot without /dev/pts
            self.skipTest("this system has no pseudo terminals")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        watch = subprocess.Popen([HEADROOM, "watch", "--count", "2", "--interval", "0.05"],
                                 env={**self.env, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
                                 stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        text = b""
        while select.select([ours], [], [], 10)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        os.close(ours)
        self.assertEqual(watch.wait(timeout=10), 0)
        watch.stderr.close()
        return text.decode().replace("\r\n", "\n")

    def test_a_terminal_is_redrawn_in_place(self):
        self.file.write_text(f"{os.getpid()} 700\n")
        text = self.on_terminal(30, 100)
        self.assertEqual(text.count("\x1b[5A\x1b[J"), 1)
        self.assertEqual(text.count("GPU 0: NVIDIA Fake, 81,920.0 MiB"), 2)
        self.assertIn("driver      1,024.0 MiB  reserved, not in used", text)
        self.assertIn("1,212.0 MiB", text)

    def test_a_small_terminal_is_neither_broken_nor_scrolled(self):
        self.file.write_text("".join(f"{2000000000 + i} 700\n" for i in range(20)))
        for rows, columns in ((8, 40), (10, 60)):
            text = self.on_terminal(rows, columns)
            first, second = text.split(f"\x1b[{rows - 1}A\x1b[J")
            for look in (first, second):
                lines = re.sub("\x1b\\[[0-9]*m", "", look).splitlines()
                self.assertEqual(len(lines), rows - 1)
                self.assertLessEqual(max(map(len, lines)), columns)
                self.assertEqual(lines[-1], "(more below)")

    def test_no_gpu_is_said(self):
        code, out, err = self.run_(FAKE_NVML_DEVICES="0")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err, "headroom watch: the NVIDIA driver sees no GPU here\n")

    def test_only_the_cards_and_processes_asked_for(self):
        self.file.write_text(f"{os.getpid()} 700\n1 300\n")
        _, out, _ = self.run_("--count", "1", "--gpu-index", "1", FAKE_NVML_DEVICES="2")
        self.assertEqual([gpu["index"] for gpu in json.loads(out)["gpus"]], [1])
        code, _, err = self.run_("--count", "1", "--gpu-index", "7")
        self.assertEqual(code, 2)
        self.assertIn("there is no GPU 7: this machine has 1", err)
        _, out, _ = self.run_("--count", "1", "--pid", str(os.getpid()))
        self.assertEqual([p["pid"] for p in json.loads(out)["gpus"][0]["processes"]],
                         [os.getpid()])
        code, _, err = self.run_("--pid", "2147483646")
        self.assertEqual((code, err), (2, "headroom watch: --pid 2147483646: no such process\n"))

    def test_ends_with_the_process_it_watches(self):
        with subprocess.Popen(["sleep", "0.4"]) as sleeper:
            watch = self.start("--pid", str(sleeper.pid), "--interval", "0.05")
            time.sleep(0.5)
            sleeper.wait()
            out, _ = watch.communicate(timeout=20)
        self.assertEqual(watch.returncode, 0)
        self.assertGreaterEqual(len(out.splitlines()), 2)

    def test_missing_figures_and_lists_are_said(self):
        self.file.write_text(f"{os.getpid()} 700\n")
        _, out, _ = self.run_("--count", "1", FAKE_NVML_HIDDEN="1")
        self.assertIsNone(json.loads(out)["gpus"][0]["processes"][0]["bytes"])
        _, out, _ = self.run_("--count", "1", FAKE_NVML_REFUSE="1")
        self.assertEqual(json.loads(out)["gpus"][0]["processes_missing"],
                         "Insufficient Permissions")
        _, out, _ = self.run_("--count", "1", FAKE_NVML_OLD="1")
        self.assertIsNone(json.loads(out)["gpus"][0]["reserved"])

    def test_mig_instances_stand_under_their_gpu(self):
        self.file.write_text(f"{os.getpid()} 700\n")
        _, out, _ = self.run_("--count", "1", FAKE_NVML_MIG="1")
        gpu = json.loads(out)["gpus"][0]
        self.assertEqual(gpu["processes"], [])
        self.assertEqual(gpu["instances"][0]["processes"][0]["pid"], os.getpid())

    # ---- A command ----

    def test_a_command_has_a_ladder(self):
        code, out, err, recording = self.record(RUN + "echo done; exit 7")
        self.assertEqual((code, out), (7, "done\n"))
        self.assertEqual(recording["exit_code"], 7)
        device = recording["devices"][0]
        self.assertEqual(device["matched_by"], "pid")
        ladder = device["ladder"]
        self.assertEqual(ladder["idle"], IDLE)
        self.assertEqual(ladder["context"]["own"], 300 * MIB)
        self.assertEqual(ladder["peak"]["own"], 900 * MIB)
        self.assertEqual(ladder["peak"]["used"], IDLE + 900 * MIB)
        self.assertEqual(ladder["end"]["own"], 700 * MIB)
        self.assertEqual(ladder["after"], IDLE)
        for words in ("exit code 7", "  peak          900.0 MiB    1,412.0 MiB", "sh (command)",
                      "1,024.0 MiB reserved by the driver"):
            self.assertIn(words, err)
        for line in err.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_what_the_command_starts_counts(self):
        # The parent ends at once; its orphan holds the memory.
        script = f"({RUN}) & sleep 1"
        child = script.replace("$$", "$(exec sh -c 'echo $PPID')")
        _, _, _, recording = self.record(child)
        self.assertEqual(recording["devices"][0]["matched_by"], "pid")
        self.assertGreaterEqual(recording["devices"][0]["ladder"]["peak"]["own"], 300 * MIB)

    def test_ids_of_another_namespace_are_matched_by_appearance(self):
        _, _, err, recording = self.record(RUN.replace("$$", "2147483646"))
        self.assertEqual(recording["devices"][0]["matched_by"], "appearance")
        self.assertEqual(recording["devices"][0]["ladder"]["peak"]["own"], 900 * MIB)
        self.assertIn("process ids of another namespace", err)

    def test_without_figures_the_difference_counts(self):
        _, _, err, recording = self.record(RUN, FAKE_NVML_HIDDEN="1")
        self.assertEqual(recording["devices"][0]["matched_by"], "difference")
        self.assertEqual(recording["devices"][0]["ladder"]["peak"]["own"], 900 * MIB)
        self.assertIn("no figures per process", err)

    def test_a_mig_instance_is_a_device(self):
        _, _, err, recording = self.record(RUN, FAKE_NVML_MIG="1")
        self.assertEqual([d["instance"] for d in recording["devices"]], [0, 1])
        self.assertEqual(recording["devices"][0]["ladder"]["peak"]["own"], 900 * MIB)
        self.assertIn("GPU 0 MIG 0: NVIDIA Fake MIG 1g.10gb", err)

    def test_a_card_in_use_is_told(self):
        self.file.write_text(f"{os.getpid()} 700\n")
        code, _, err = self.run_("--", "true")
        self.assertEqual(code, 0)
        self.assertRegex(err, r"GPU 0 is not idle: 1,212.0 MiB used, by python\S* \(pid \d+, "
                              r"700.0 MiB\)")
        self.assertIn("The command held no device memory.", err)

    def test_signals_reach_the_command(self):
        watch = self.start("--", "sh", "-c",
                           "trap 'echo stopped; exit 9' TERM; echo ready; "
                           "while :; do sleep 0.05; done")
        self.assertEqual(watch.stdout.readline(), "ready\n")
        watch.send_signal(signal.SIGTERM)
        out, _ = watch.communicate(timeout=20)
        self.assertEqual((watch.returncode, out), (9, "stopped\n"))

    def test_a_killed_command_is_128_and_its_signal(self):
        self.assertEqual(self.run_("--", "sh", "-c", "kill -9 $$")[0], 137)

    def test_a_command_that_is_not_there(self):
        code, _, err = self.run_("--", "no-such-command-here")
        self.assertEqual(code, 2)
        self.assertEqual(err, "headroom watch: no-such-command-here cannot be started: "
                              "No such file or directory\n")

    def test_flags_of_the_command_are_its_own(self):
        self.assertEqual(self.run_("--", "echo", "--json", "--", "x")[1], "--json -- x\n")

    def test_a_command_reads_pipes_as_without_us(self):
        # SIGPIPE is back at its default: yes ends quietly.
        code, out, err = self.run_("--", "sh", "-c", "yes | head -1")
        self.assertEqual((code, out), (0, "y\n"))
        self.assertNotIn("Broken pipe", err)

    def test_a_page_is_written(self):
        target = self.path / "run.html"
        code, _, _ = self.run_("--html", str(target), "--", "sh", "-c", RUN)
        self.assertEqual(code, 0)
        text = target.read_text()
        self.assertIn("GPU 0: memory over time", text)
        self.assertIn('"axis":"seconds"', text)

    def test_a_file_that_cannot_be_written_does_not_hide_the_exit_code(self):
        code, _, err = self.run_("--json", "/no/such/folder/x.json", "--", "sh", "-c", "exit 4")
        self.assertEqual(code, 4)
        self.assertIn("/no/such/folder/x.json", err)


def main():
    global HEADROOM, NVML
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headroom", required=True, help="the program")
    parser.add_argument("--nvml", required=True, help="the folder of the fake libnvidia-ml.so.1")
    arguments, rest = parser.parse_known_args()
    HEADROOM = str(pathlib.Path(arguments.headroom).resolve())
    NVML = str(pathlib.Path(arguments.nvml).resolve())
    return 0 if unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
