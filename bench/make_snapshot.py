#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a synthetic PyTorch memory snapshot of any size, for speed and memory tests.

usage: make_snapshot.py OUT.pickle [--bytes 1.1e9] [--layers 24]

The file is what CPython's pickler makes of torch.cuda.memory._snapshot(): protocol 4, every dict,
list and string memoized, frames shared, some 200 bytes an event. The run in it is a Transformer of
--layers blocks under AdamW: weights, then training steps (forward, backward, optimizer) until the
size is reached. Addresses are those of an allocator that keeps one segment a block, so replaying
the trace gives the segments at the end of the file.
"""

import argparse
import struct

MIB = 1 << 20


class Pickler:
    """Appends protocol 4 instructions to a buffer; objects are remembered by a key of the caller."""

    def __init__(self):
        self.out = bytearray()
        self.memo = {}
        self.memo_size = 0

    def memoize(self, key=None):
        self.out += b"\x94"
        if key is not None:
            self.memo[key] = self.memo_size
        self.memo_size += 1

    def get(self, index):
        if index < 256:
            self.out += b"h" + bytes([index])
        else:
            self.out += b"j" + struct.pack("<I", index)

    def text(self, value, shared=True):
        if shared and value in self.memo:
            return self.get(self.memo[value])
        data = value.encode()
        if len(data) < 256:
            self.out += b"\x8c" + bytes([len(data)]) + data
        else:
            self.out += b"X" + struct.pack("<I", len(data)) + data
        self.memoize(value if shared else None)

    def integer(self, value):
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.out += b"\x8a" + bytes([len(data)]) + data

    def value(self, value):
        if isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, tuple):
            for item in value:
                self.value(item)
            self.out += b"\x86"
            self.memoize()
        elif isinstance(value, dict):
            self.out += b"}"
            self.memoize()
            if value:
                self.out += b"("
                for key, item in value.items():
                    self.text(key)
                    self.value(item)
                self.out += b"u"
        elif isinstance(value, Stack):
            self.stack(value)
        else:
            self.out += b"]"
            self.memoize()
            for at in range(0, len(value), 1000):
                self.out += b"("
                for item in value[at : at + 1000]:
                    self.value(item)
                self.out += b"e"

    def stack(self, stack):
        """A fresh list of frames that the file shares."""
        self.out += b"]"
        self.memoize()
        if not stack.frames:
            return
        self.out += b"("
        for frame in stack.frames:
            if frame in self.memo:
                self.get(self.memo[frame])
                continue
            self.out += b"}"
            self.memoize(frame)
            self.out += b"("
            for key, part in zip(("name", "filename", "line"), frame):
                self.text(key)
                self.value(part)
            self.out += b"u"
        self.out += b"e"


class Stack:
    def __init__(self, frames):
        self.frames = tuple(frames)


SITE = "/usr/lib/python3.12/site-packages/"
TENSOR = "at::Tensor const&, std::optional<c10::ScalarType>, std::optional<c10::Device>"


def cpp(name, arguments=TENSOR):
    return (f"{name}({arguments})", "??", 0)


def allocation_frames(op):
    """From malloc to the dispatcher, as unwound by PyTorch: some twenty frames."""
    base = [
        cpp("torch::unwind::unwind", ""),
        cpp("torch::CapturedTraceback::gather", "bool, bool, bool"),
        cpp("torch::cuda::(anonymous namespace)::gather_with_cpp", ""),
        cpp("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc", "unsigned long, CUstream_st*"),
        cpp("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc", "void**, signed char, unsigned long, CUstream_st*"),
        cpp("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate", "unsigned long"),
        cpp("at::detail::empty_strided_generic", "c10::ArrayRef<long>, c10::ArrayRef<long>, c10::Allocator*"),
        cpp("at::detail::empty_strided_cuda", "c10::ArrayRef<long>, c10::ArrayRef<long>, c10::ScalarType"),
    ]
    kernel = [
        cpp(f"at::(anonymous namespace)::wrapper_CUDA_{op}"),
        cpp(f"c10::impl::wrap_kernel_functor_unboxed_<at::wrapper_CUDA_{op}>::call", "c10::OperatorKernel*, c10::DispatchKeySet"),
        cpp(f"at::_ops::{op}::redispatch", "c10::DispatchKeySet, " + TENSOR),
        cpp(f"torch::autograd::VariableType::(anonymous namespace)::{op}", "c10::DispatchKeySet, " + TENSOR),
        cpp(f"at::_ops::{op}::call"),
    ]
    return base + kernel


INTERPRETER = [
    cpp("torch::autograd::THPVariable_method", "_object*, _object*, _object*"),
    cpp("PyDescr_IsData", ""),
    cpp("PyObject_Vectorcall", ""),
    *[cpp(name, "") for name in 6 * ("_PyEval_EvalFrameDefault", "_PyObject_Call_Prepend", "PyObject_Call")],
    cpp("PyEval_EvalCode", ""),
    cpp("_PyRun_SimpleFileObject", ""),
    cpp("Py_RunMain", ""),
    cpp("__libc_start_main", ""),
    cpp("_start", ""),
]
MAIN = [
    ("training_step", SITE + "transformers/trainer.py", 4020),
    ("_inner_training_loop", SITE + "transformers/trainer.py", 2674),
    ("train", SITE + "transformers/trainer.py", 2325),
    ("main", "train.py", 88),
    ("<module>", "train.py", 120),
]
CALL = [
    ("_call_impl", SITE + "torch/nn/modules/module.py", 1786),
    ("_wrapped_call_impl", SITE + "torch/nn/modules/module.py", 1775),
]


def forward_stack(op, module, line):
    block = []
    for at in (line, 340, 610, 770):
        block += [("forward", SITE + "transformers/models/gpt2/modeling_gpt2.py", at)] + CALL
    return Stack(allocation_frames(op) + INTERPRETER + [("forward", SITE + f"torch/nn/modules/{module}.py", 134)] + CALL + block + MAIN)


def backward_stack(op, node):
    engine = [
        cpp(f"torch::autograd::generated::{node}::apply", "std::vector<at::Tensor>&&"),
        cpp("torch::autograd::Node::operator()", "std::vector<at::Tensor>&&"),
        cpp("torch::autograd::Engine::evaluate_function", "std::shared_ptr<torch::autograd::GraphTask>&"),
        cpp("torch::autograd::Engine::thread_main", "std::shared_ptr<torch::autograd::GraphTask> const&"),
        cpp("torch::autograd::python::PythonEngine::thread_init", "int"),
        cpp("execute_native_thread_routine", ""),
        cpp("start_thread", ""),
        cpp("clone", ""),
    ]
    return Stack(allocation_frames(op) + engine)


def optimizer_stack(op, function, line):
    adamw = SITE + "torch/optim/adamw.py"
    return Stack(allocation_frames(op) + INTERPRETER + [(function, adamw, line), ("step", adamw, 232), ("wrapper", SITE + "torch/optim/optimizer.py", 526)] + MAIN)


def free_stack(where):
    frames = [
        cpp("torch::unwind::unwind", ""),
        cpp("torch::CapturedTraceback::gather", "bool, bool, bool"),
        cpp("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::free", "c10::cuda::Block*"),
        cpp("c10::cuda::CUDACachingAllocator::Native::local_raw_delete", "void*"),
        cpp("c10::StorageImpl::release_resources", ""),
        cpp("c10::intrusive_ptr<c10::TensorImpl>::reset_", ""),
    ]
    return Stack(frames + list(where.frames[-30:]))


class Allocator:
    """One segment a block: what a best-fit allocator does with sizes that repeat exactly."""

    def __init__(self):
        self.free = {}
        self.next = 0x7F3000000000
        self.segments = []

    def take(self, size):
        known = self.free.get(size)
        if known:
            return known.pop(), False
        address = self.next
        self.next += (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
        self.segments.append((address, size))
        return address, True

    def give(self, address, size):
        self.free.setdefault(size, []).append(address)


class Trace:
    def __init__(self):
        self.events = []
        self.allocator = Allocator()
        self.live = {}

    def event(self, action, address, size, stack):
        self.events.append((action, address, size, stack))

    def alloc(self, size, stack):
        address, new = self.allocator.take(size)
        if new:
            self.event("segment_alloc", address, size, stack)
        self.event("alloc", address, size, stack)
        self.live[address] = (size, stack)
        return address

    def drop(self, address, stack):
        size, _ = self.live.pop(address)
        self.event("free_requested", address, size, stack)
        self.event("free_completed", address, size, None)  # shares the list before it
        self.allocator.give(address, size)


OPS = [
    ("native_layer_norm", "normalization", 4), ("addmm", "linear", 12), ("_scaled_dot_product_flash_attention", "container", 4),
    ("mm", "linear", 4), ("add", "container", 4), ("native_layer_norm", "normalization", 4), ("addmm", "linear", 16),
    ("gelu", "activation", 16), ("addmm", "linear", 4), ("native_dropout", "dropout", 4),
]
NODES = ["AddmmBackward0", "GeluBackward0", "NativeLayerNormBackward0", "MmBackward0", "ScaledDotProductFlashAttentionBackward0"]
WEIGHTS = [12 * MIB, 4 * MIB, 16 * MIB, 16 * MIB]


def load(trace, layers):
    module = SITE + "torch/nn/modules/module.py"
    chain = [("convert", module, 1370), ("_apply", module, 965), ("_apply", module, 934), ("to", module, 1384)]
    stack = Stack(allocation_frames("empty_strided") + INTERPRETER + chain + MAIN[-2:])
    for _ in range(layers):
        for size in WEIGHTS:
            trace.alloc(size, stack)


def step(trace, layers, state):
    saved = []
    for layer in range(layers):
        for i, (op, module, mib) in enumerate(OPS):
            saved.append(trace.alloc(mib * MIB, forward_stack(op, module, 400 + 20 * i)))
            scratch = trace.alloc(2 * MIB, forward_stack("to_copy", module, 400 + 20 * i))
            trace.drop(scratch, free_stack(forward_stack("to_copy", module, 401 + 20 * i)))
    gradients = []
    for layer in range(layers):
        for i in range(len(OPS)):
            stack = backward_stack("mm", NODES[i % len(NODES)])
            trace.drop(trace.alloc(8 * MIB, stack), free_stack(stack))
            trace.drop(saved.pop(), free_stack(stack))
        for size in WEIGHTS:
            gradients.append(trace.alloc(size, backward_stack("mm", "AddmmBackward0")))
    if not state:
        for _ in range(2):
            for _ in range(layers):
                for size in WEIGHTS:
                    state.append(trace.alloc(size, optimizer_stack("zeros_like", "_init_group", 170)))
    for gradient in gradients:
        trace.drop(gradient, free_stack(optimizer_stack("zero_grad", "zero_grad", 1020)))


KEYS = ("action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata")


def write_events(pickler, events, time):
    """Returns where the times and the memo numbers of this run's own lists stand, to repeat it."""
    times, lists = [], []
    last_list = None
    for at in range(0, len(events), 1000):
        pickler.out += b"("
        for action, address, size, stack in events[at : at + 1000]:
            pickler.out += b"}"
            pickler.memoize()
            pickler.out += b"("
            for key, value in zip(KEYS, (action, address, size, 0)):
                pickler.text(key)
                pickler.value(value)
            pickler.text("time_us")
            times.append(len(pickler.out) + 2)
            pickler.integer(time + len(times))
            pickler.text("compile_context")
            pickler.text("N/A", shared=False)
            pickler.text("user_metadata")
            pickler.text("")
            pickler.text("frames")
            if stack is None:
                lists.append((len(pickler.out) + 1, last_list))
                pickler.out += b"j" + struct.pack("<I", last_list)
            else:
                last_list = pickler.memo_size
                pickler.stack(stack)
            pickler.out += b"u"
        pickler.out += b"e"
    return times, lists


def segment_dicts(trace):
    segments = []
    for address, size in trace.allocator.segments:
        live = trace.live.get(address)
        block = {"address": address, "size": size, "requested_size": size,
                 "state": "active_allocated" if live else "inactive",
                 "frames": live[1] if live else Stack([])}
        segments.append({
            "device": 0, "address": address, "total_size": size, "allocated_size": size if live else 0,
            "active_size": size if live else 0, "requested_size": size if live else 0, "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": Stack([]), "blocks": [block]})
    return segments


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--bytes", type=float, default=1.1e9)
    parser.add_argument("--layers", type=int, default=24)
    args = parser.parse_args()

    trace, state = Trace(), []
    load(trace, args.layers)
    step(trace, args.layers, state)  # the first step, with the optimizer's state
    first = trace.events
    trace.events = []
    step(trace, args.layers, state)  # what every further step repeats, addresses included
    trace.events, again = [], trace.events
    step(trace, args.layers, state)
    again = trace.events

    time = 1_750_000_000_000_000
    pickler = Pickler()
    pickler.out += b"\x80\x04}"
    pickler.memoize()
    pickler.out += b"("
    pickler.text("segments")
    pickler.value(segment_dicts(trace))
    pickler.text("device_traces")
    pickler.out += b"]"
    pickler.memoize()
    pickler.out += b"]"
    pickler.memoize()
    write_events(pickler, first, time)
    write_events(pickler, again, time + len(first))  # its strings and frames are known from here on
    time += len(first) + len(again)

    annotations, events = [], len(first) + len(again)
    with open(args.out, "wb") as out:
        out.write(pickler.out)
        written = len(pickler.out)
        pickler.out = bytearray()
        memo = pickler.memo_size
        times, lists = write_events(pickler, again, time)
        block, per_step = pickler.out, pickler.memo_size - memo
        steps = max(0, int((args.bytes - written) // len(block)))
        for number in range(steps):
            base = time + number * len(again)
            for i, at in enumerate(times):
                struct.pack_into("<Q", block, at, (base + 1 + i) | block[at + 7] << 56)
            for at, index in lists:
                struct.pack_into("<I", block, at, index + number * per_step)
            out.write(block)
            end = base + len(again)
            annotations += [
                {"stage": "START", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": end - 2 * len(WEIGHTS)},
                {"stage": "END", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": end - len(WEIGHTS)},
            ]
            events += len(again)
        pickler.out = bytearray()
        pickler.memo_size += (steps - 1) * per_step
        pickler.out += b"a"  # the one trace, into device_traces
        pickler.text("allocator_settings")
        pickler.value({"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                       "garbage_collection_threshold": 0.0, "expandable_segments": False})
        pickler.text("external_annotations")
        pickler.value(annotations)
        pickler.out += b"u."
        out.write(pickler.out)
        print(f"{args.out}: {out.tell():,} bytes, {events:,} events, {steps + 2} steps")


if __name__ == "__main__":
    main()
