#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny snapshots of this folder: one small history in every pickle protocol, and in the
shapes that older and newer versions of PyTorch write. Run in the folder itself."""

import base64
import gzip
import json
import pickle

MIB = 1 << 20
LINEAR = {"name": "forward", "filename": "/x/torch/nn/modules/linear.py", "line": 125}
ADAMW = {"name": "step", "filename": "/x/torch/optim/adamw.py", "line": 243}
MAIN = {"name": "<module>", "filename": "train.py", "line": 7}
ENGINE = {"name": "torch::autograd::Engine::thread_main(…)", "filename": "??", "line": 0}
BASE = 0x7F0000000000


def event(action, addr, size, time, frames, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time,
            "compile_context": "N/A", "user_metadata": "", "frames": frames, **more}


def block(address, size, requested, state, frames):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def segment(address, total, blocks, **more):
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {"device": 0, "address": address, "total_size": total, "allocated_size": active, "active_size": active,
            "requested_size": active, "stream": 0, "segment_type": "large" if total > 2 * MIB else "small",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks, **more}


def snapshot():
    forward, optimizer = [LINEAR, MAIN], [ADAMW, MAIN]
    trace = [
        event("segment_alloc", BASE, 20 * MIB, 100, forward),
        event("alloc", BASE, 4 * MIB - 100, 101, forward),
        event("alloc", BASE + 4 * MIB, 8 * MIB, 102, [ENGINE]),
        event("free_requested", BASE, 4 * MIB - 100, 103, optimizer),
        event("free_completed", BASE, 4 * MIB - 100, 103, optimizer),
        event("alloc", BASE, 2 * MIB, 104, optimizer),
    ]
    blocks = [
        block(BASE, 2 * MIB, 2 * MIB, "active_allocated", optimizer),
        block(BASE + 2 * MIB, 2 * MIB, 0, "inactive", []),
        block(BASE + 4 * MIB, 8 * MIB, 8 * MIB, "active_allocated", [ENGINE]),
        block(BASE + 12 * MIB, 8 * MIB, 0, "inactive", []),
    ]
    return {
        "segments": [segment(BASE, 20 * MIB, blocks)],
        "device_traces": [trace, []],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.5,
                               "expandable_segments": False, "roundup_power2_divisions": {"1": 0, "256": 8}},
        "external_annotations": [
            {"stage": "START", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": 103},
            {"stage": "END", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": 105},
        ],
    }


def history_era():
    """PyTorch 1.13 to 2.0: no addresses in blocks, a history instead of frames."""
    blocks = [
        {"size": 2 * MIB, "state": "active_allocated",
         "history": [{"addr": BASE, "real_size": 2 * MIB - 8, "frames": [LINEAR, MAIN]},
                     {"addr": BASE, "real_size": 5, "frames": [MAIN]}]},
        {"size": 18 * MIB, "state": "inactive"},
    ]
    return {"segments": [{"device": 0, "address": BASE, "total_size": 20 * MIB, "allocated_size": 2 * MIB,
                          "active_size": 2 * MIB, "stream": 0, "segment_type": "large", "blocks": blocks}],
            "device_traces": [[{"action": "alloc", "addr": BASE, "size": 2 * MIB, "stream": 0, "frames": [MAIN]}]]}


def odd_values():
    """Numbers of 64 bits, a dict as metadata, pool ids, expandable segments, pinned host memory."""
    high = 2**63 + 512
    trace = [
        event("segment_map", high, 20 * MIB, 5, [], pool_id=(0, 0)),
        event("alloc", high, 1024, 6, [], pool_id=(0, 7), user_metadata={"layer": 3, "op": "mm"}),
        event("teleport", 1, 2, 7, []),
        {"action": "oom", "device_free": 12345, "size": 99 * MIB, "stream": high, "time_us": 8, "frames": []},
    ]
    data = snapshot()
    data["device_traces"] = [[], trace]
    data["segments"] = [segment(high, 20 * MIB, [block(high, 1024, 1000, "active_pending_free", []),
                                                 block(high + 1024, 20 * MIB - 1024, 0, "inactive", [])],
                                device=1, is_expandable=True)]
    data["allocator_settings"]["max_split_size"] = 2**64 - 1
    data["allocator_settings"]["trace_alloc_overflowed"] = True
    data["allocator_settings"]["trace_alloc_max_entries"] = 100000
    data["host_segments"] = [segment(64, 4096, [])]
    data["host_traces"] = [[event("alloc", 64, 4096, 5, [])]]
    return data


def write(name, data):
    with open(name, "wb") as out:
        out.write(data)


def main():
    for protocol in range(6):
        write(f"tiny-protocol{protocol}.pickle", pickle.dumps(snapshot(), protocol))
    write("tiny-list.pickle", pickle.dumps(snapshot()["segments"], 4))
    write("tiny-history.pickle", pickle.dumps(history_era(), 4))
    write("tiny-odd.pickle", pickle.dumps(odd_values(), 5))
    write("tiny.pickle.gz", gzip.compress(pickle.dumps(snapshot(), 4), mtime=0))
    packed = pickle.dumps(snapshot(), 4)
    packed += b"\0" * (3 - len(packed) % 3)
    local = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(packed).decode()}])
    page = f"\n<!DOCTYPE html>\n<html>\n<body>\n<script type=\"module\">\nconst local_files = {local}\n</script>\n</body>\n"
    write("tiny.html", page.encode())


if __name__ == "__main__":
    main()
