#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs headroom as the transcripts beside this file say and compares what it prints.

A transcript is text with commands in it, indented by two spaces, each followed by what came back:

    Zero samples are no batch.

      $ headroom plan gpt2 --batch 0
      ! headroom plan: --batch 0: must be from 1 to 1,048,576
      [2]

Lines of stdout stand as they are, lines of stderr behind "! ", and an exit code that is not 0 in
brackets. Commands run in the folder data/ with no shell, a C locale and an empty home.

    run.py --headroom build/dev/cli/headroom            compares every transcript
    run.py --headroom build/dev/cli/headroom --update   writes what comes back into them
"""

import argparse
import difflib
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_SECONDS = 60


def environment():
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS")}
    return {**kept, "LC_ALL": "C", "HOME": str(HERE / "data" / "home")}


def run(headroom, command):
    """What `command` prints and returns, as the lines of a transcript."""
    words = shlex.split(command)
    if words[0] != "headroom":
        raise SystemExit(f"a transcript runs headroom and nothing else: {command}")
    words[0] = headroom
    source = subprocess.DEVNULL
    if "<" in words:
        at = words.index("<")
        source = open(HERE / "data" / words[at + 1], "rb")
        del words[at : at + 2]
    done = subprocess.run(words, cwd=HERE / "data", env=environment(), stdin=source,
                          capture_output=True, timeout=TIMEOUT_SECONDS)
    lines = [f"  ! {line}" for line in done.stderr.decode().splitlines()]
    lines += [f"  {line}".rstrip() for line in done.stdout.decode().splitlines()]
    if done.returncode != 0:
        lines.append(f"  [{done.returncode}]")
    return lines


def replay(headroom, transcript):
    """The transcript with every command's output replaced by what it prints now."""
    lines = []
    in_output = False
    # A blank line ends an output only when text that is not indented follows it.
    pending_blank = 0
    for line in transcript.splitlines():
        if line.startswith("  $ "):
            lines += [""] * pending_blank
            pending_blank = 0
            command = line[4:]
            lines.append(line)
            lines += run(headroom, command)
            in_output = True
        elif in_output and line == "":
            pending_blank += 1
        elif in_output and line.startswith("  "):
            pending_blank = 0
        else:
            lines += [""] * pending_blank
            pending_blank = 0
            in_output = False
            lines.append(line)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headroom", required=True, help="the program")
    parser.add_argument("--update", action="store_true", help="write what comes back")
    parser.add_argument("transcripts", nargs="*", type=pathlib.Path, help="default: all")
    arguments = parser.parse_args()
    headroom = str(pathlib.Path(arguments.headroom).resolve())
    failed = 0
    for path in arguments.transcripts or sorted(HERE.glob("*.txt")):
        expected = path.read_text()
        actual = replay(headroom, expected)
        if actual == expected:
            continue
        if arguments.update:
            path.write_text(actual)
            print(f"updated {path.name}")
            continue
        failed += 1
        sys.stdout.writelines(
            difflib.unified_diff(expected.splitlines(True), actual.splitlines(True),
                                 f"{path.name} (expected)", f"{path.name} (came back)"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
