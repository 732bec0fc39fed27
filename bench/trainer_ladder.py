#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer on the canonical run of the memory anatomy guide: BERT-large, 512 synthetic
sequences of 512 tokens, batch 4. Prints this process's memory by NVML at each rung of the ladder,
the runtime and samples a second, as one JSON object.

    bench/trainer_ladder.py            # float32
    bench/trainer_ladder.py --bf16
    headroom train bert-large-uncased --device cuda --bf16 --task sequence-classification \\
      --dataset synthetic --batch 4 --seq 512 --epochs 1 --validation-split 0     # ours
"""
import argparse
import json
import os
import tempfile

import pynvml
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

ROWS = 512
SEQUENCE = 512
VOCABULARY = 30522


class Synthetic(torch.utils.data.Dataset):
    def __init__(self):
        self.ids = torch.randint(100, VOCABULARY, (ROWS, SEQUENCE))
        self.labels = torch.randint(0, 2, (ROWS,))

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"input_ids": self.ids[row], "labels": self.labels[row]}


def process_mib():
    """This process's bytes on the first card; in a container all of the card's, where its number is
    another outside."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    mine = [p for p in processes if p.pid == os.getpid()] or processes
    return sum(p.usedGpuMemory or 0 for p in mine) / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    pynvml.nvmlInit()
    ladder = {"idle": process_mib()}
    torch.ones((1, 1)).to("cuda")
    ladder["context"] = process_mib()
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(vocab_size=VOCABULARY, hidden_size=1024, num_hidden_layers=24,
                   num_attention_heads=16, intermediate_size=4096)).to("cuda")
    ladder["weights"] = process_mib()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=4,
                                      num_train_epochs=1, bf16=options.bf16, report_to=[],
                                      logging_strategy="no", save_strategy="no")
        result = Trainer(model=model, args=arguments, train_dataset=Synthetic()).train()
    ladder["trained"] = process_mib()
    print(json.dumps({"process_mib": ladder,
                      "train_runtime": result.metrics["train_runtime"],
                      "train_samples_per_second": result.metrics["train_samples_per_second"],
                      "peak_allocated_mib": torch.cuda.max_memory_allocated() / 2**20,
                      "peak_reserved_mib": torch.cuda.max_memory_reserved() / 2**20}))


if __name__ == "__main__":
    main()
