#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files beside it: what torch.save(trainer.args, "training_args.bin") writes, without torch.

An archive of stored members in which data.pkl is a pickle of protocol 2. The classes have the names
of transformers 5.17 and accelerate 1.15; what they hold is a small part of the real fields.
"""

import enum
import os
import pathlib
import pickle
import sys
import types
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def module(name, **members):
    parent = name.rpartition(".")[0]
    if parent:
        sys.modules.setdefault(parent, types.ModuleType(parent))
    made = types.ModuleType(name)
    for key, value in members.items():
        if isinstance(value, type):
            value.__module__ = name
            value.__qualname__ = key
        setattr(made, key, value)
    sys.modules[name] = made
    return made


class OptimizerNames(str, enum.Enum):
    ADAMW_TORCH_FUSED = "adamw_torch_fused"
    ADAFACTOR = "adafactor"


class IntervalStrategy(str, enum.Enum):
    NO = "no"
    STEPS = "steps"


class TrainingArguments:
    pass


class PartialState:
    pass


class Device:
    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return (type(self), self.parts)


class Hostile:
    def __reduce__(self):
        return (os.system, ("echo this must never run",))


def arguments():
    args, state = TrainingArguments(), PartialState()
    state.device = Device("cuda", 0)
    state.backend = "nccl"
    args.output_dir = "out"
    args.per_device_train_batch_size = 4
    args.gradient_accumulation_steps = 2
    args.bf16 = True
    args.fp16 = False
    args.tf32 = None
    args.optim = OptimizerNames.ADAFACTOR
    args.eval_strategy = IntervalStrategy.NO
    args.gradient_checkpointing = True
    args.gradient_checkpointing_kwargs = {"use_reentrant": True}
    args.max_grad_norm = 0.5
    args.learning_rate = 5e-5
    args.fsdp = []
    args.deepspeed = None
    args.torch_compile = False
    args.use_cache = False
    args.label_names = None
    args.distributed_state = state
    args._n_gpu = 1
    return args


def save(name, value):
    with zipfile.ZipFile(HERE / name, "w", zipfile.ZIP_STORED) as archive:
        for member, content in (
            ("data.pkl", pickle.dumps(value, protocol=2)),
            ("byteorder", b"little"),
            ("version", b"3\n"),
        ):
            archive.writestr(zipfile.ZipInfo("training_args/" + member), content)


def main():
    module("transformers.training_args", TrainingArguments=TrainingArguments, OptimizerNames=OptimizerNames)
    module("transformers.trainer_utils", IntervalStrategy=IntervalStrategy)
    module("accelerate.state", PartialState=PartialState)
    module("torch", device=Device)
    save("training_args.bin", arguments())
    save("hostile.bin", Hostile())
    save("weights.bin", {"weight": [1, 2, 3]})


if __name__ == "__main__":
    main()
