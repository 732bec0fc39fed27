#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the allocation events of a PyTorch memory snapshot as the short text that tests/parity reads.

usage: trace_events.py SNAPSHOT.pickle[.gz] > EVENTS.txt

Each line is one event of device 0 in order: `+N` an allocation of N bytes as asked for, `-K` the free
of the K-th allocation (from 0). What existed before the recording is left out, and the text ends with
the first optimizer step: only the snapshot's own maker can be trusted, since it is unpickled here.
"""
import gzip
import pickle
import sys


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    opened = gzip.open(sys.argv[1]) if sys.argv[1].endswith(".gz") else open(sys.argv[1], "rb")
    with opened as file:
        snapshot = pickle.load(file)
    end = min((a["time_us"] for a in snapshot["external_annotations"]
               if a["stage"] == "END" and a["name"].startswith("Optimizer.step")), default=None)
    live, count = {}, 0
    for event in snapshot["device_traces"][0]:
        if end is not None and event["time_us"] > end:
            break
        if event["action"] == "alloc":
            live[event["addr"]] = count
            count += 1
            print(f"+{event['size']}")
        elif event["action"] == "free_completed" and event["addr"] in live:
            print(f"-{live.pop(event['addr'])}")


if __name__ == "__main__":
    main()
