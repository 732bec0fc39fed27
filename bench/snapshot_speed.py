#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a command that reads a memory snapshot with Python's pickle.load, in one run.

usage: snapshot_speed.py SNAPSHOT.pickle -- COMMAND ...

Each runs in a process of its own, after the file has been read once so that both find it in the
page cache. For the command the memory it holds beside the mapped file (RssAnon) is sampled too.
Exit status 1 when the command takes more than a quarter of pickle.load's time or more than 500 MB.
"""

import os
import subprocess
import sys
import time

LOAD = "import pickle, os, sys; pickle.load(open(sys.argv[1], 'rb')); os._exit(0)"
MOST_SHARE = 0.25
MOST_BYTES = 500e6


def anonymous_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(command):
    start, most = time.monotonic(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, anonymous_bytes(process.pid))
            time.sleep(0.005)
    if process.returncode not in (0, 1):
        sys.exit(f"{command[0]} ended with {process.returncode}")
    usage = os.times()
    return time.monotonic() - start, most, usage.children_user + usage.children_system


def main():
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    snapshot, command = sys.argv[1], sys.argv[3:]
    with open(snapshot, "rb") as file:
        while file.read(1 << 24):
            pass
    seconds, most, cpu = run(command)
    load_seconds, _, all_cpu = run([sys.executable, "-c", LOAD, snapshot])
    share = seconds / load_seconds
    print(f"file            {os.path.getsize(snapshot) / 1e6:10.0f} MB")
    print(f"command         {seconds:10.2f} s   {cpu:8.2f} s of CPU   {most / 1e6:8.0f} MB beside the file")
    print(f"pickle.load     {load_seconds:10.2f} s   {all_cpu - cpu:8.2f} s of CPU")
    print(f"share           {share:10.3f}")
    sys.exit(0 if share <= MOST_SHARE and most <= MOST_BYTES else 1)


if __name__ == "__main__":
    main()
