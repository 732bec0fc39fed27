// SPDX-License-Identifier: Apache-2.0
#include "observe/oom_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "observe/traceback.h"

namespace headroom::observe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Backend = OomMessage::Backend;

Bytes Mib(double count) { return Bytes(static_cast<int64_t>(count * 1048576.0 + 0.5)); }
Bytes Gib(double count) { return Mib(count * 1024); }

OomMessage Parse(std::string_view text) {
  Result<OomMessage> message = ParseOomMessage(text);
  EXPECT_TRUE(message.ok()) << text;
  return message.ok() ? *message : OomMessage();
}

std::string RealMessage() {
  std::ifstream in(std::string(HEADROOM_TEST_DATA) + "/snapshots/oom-gpt2.txt");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(OomMessage, ReadsPyTorch2_11) {
  const OomMessage m = Parse(RealMessage());
  EXPECT_EQ(m.backend, Backend::kCuda);
  EXPECT_EQ(m.wording, "PyTorch 2.2 or newer");
  EXPECT_EQ(m.requested, MiB(786));
  EXPECT_EQ(m.device, 0);
  EXPECT_EQ(m.capacity, Gib(139.80));
  EXPECT_EQ(m.free, Gib(134.04));
  EXPECT_EQ(m.process, Gib(5.75));
  EXPECT_EQ(m.allowed, Gib(5.37));
  EXPECT_EQ(m.allocated, Gib(4.94));
  EXPECT_EQ(m.unallocated(), Mib(141.69));
  EXPECT_EQ(m.reserved, Gib(4.94) + Mib(141.69));
  EXPECT_NEAR(m.outside_allocator()->gib(), 0.67, 0.01);
  EXPECT_TRUE(m.other_processes.empty());
  EXPECT_THAT(Causes(m), ElementsAre(OomCause::kCappedByFraction));
}

TEST(OomMessage, ReadsOtherProcessesAndPrivatePools) {
  const OomMessage m = Parse(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 344.00 MiB. GPU 3 has a total "
      "capacity of 79.15 GiB of which 2.00 MiB is free. Process 3131906 has 39.80 GiB memory in "
      "use. "
      "Process 77 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has "
      "29.30 "
      "GiB memory in use. Of the allocated memory 27.97 GiB is allocated by PyTorch, with 1.50 GiB "
      "allocated in private pools (e.g., CUDA Graphs), and 704.56 MiB is reserved by PyTorch but "
      "unallocated. If reserved but unallocated memory is large try setting "
      "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.");
  EXPECT_EQ(m.device, 3);
  EXPECT_EQ(m.process, Gib(29.30));
  EXPECT_EQ(m.private_pools, Gib(1.5));
  ASSERT_EQ(m.other_processes.size(), 2U);
  EXPECT_EQ(m.other_processes[0].pid, 3131906U);
  EXPECT_EQ(m.other_processes[0].bytes, Gib(39.80));
  EXPECT_EQ(m.other_processes[1].bytes, Gib(10));
  EXPECT_THAT(Causes(m), ElementsAre(OomCause::kOtherProcesses, OomCause::kFragmentation));
}

TEST(OomMessage, ReadsPyTorch2_1WithItsTypo) {
  const OomMessage m = Parse(
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a "
      "total capacty of 7.93 GiB of which 3.19 MiB is free. Including non-PyTorch memory, this "
      "process has 7.90 GiB memory in use. Of the allocated memory 7.10 GiB is allocated by "
      "PyTorch, "
      "and 22.50 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
      "large try setting max_split_size_mb to avoid fragmentation.");
  EXPECT_EQ(m.wording, "PyTorch 2.1");
  EXPECT_EQ(m.capacity, Gib(7.93));
  EXPECT_EQ(m.free, Mib(3.19));
  EXPECT_THAT(Causes(m), ElementsAre(OomCause::kFragmentation));
}

TEST(OomMessage, ReadsPyTorch1_5To2_0) {
  const OomMessage m = Parse(
      "RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 1; 6.00 GiB total "
      "capacity; "
      "781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch) If "
      "reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
      "fragmentation.");
  EXPECT_EQ(m.wording, "PyTorch 1.5 to 2.0");
  EXPECT_EQ(m.device, 1);
  EXPECT_EQ(m.requested, Gib(2.26));
  EXPECT_EQ(m.capacity, Gib(6));
  EXPECT_EQ(m.allocated, Mib(781.59));
  EXPECT_EQ(m.free, Gib(3.03));
  EXPECT_EQ(m.reserved, Gib(1.24));
}

TEST(OomMessage, ReadsPyTorch1_0WhereCachedIsTheRest) {
  const OomMessage m = Parse(
      "RuntimeError: CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total "
      "capacity; 10.90 GiB already allocated; 576.00 KiB free; 30.96 MiB cached)");
  EXPECT_EQ(m.wording, "PyTorch 1.0 to 1.4");
  EXPECT_EQ(m.requested, KiB(1024));
  EXPECT_EQ(m.free, KiB(576));
  EXPECT_EQ(m.unallocated(), Mib(30.96));
}

TEST(OomMessage, ReadsOtherBackends) {
  const OomMessage hip = Parse(
      "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 76.00 MiB.\nGPU 1 has a total "
      "capacity of 287.98 GiB of which 0 bytes is free.\nOf the allocated memory 200.12 GiB is "
      "allocated by PyTorch");
  EXPECT_EQ(hip.backend, Backend::kHip);
  EXPECT_EQ(hip.free, Bytes(0));
  EXPECT_EQ(hip.allocated, Gib(200.12));

  const OomMessage npu = Parse(
      "RuntimeError: NPU out of memory. Tried to allocate 22.00 MiB (NPU 0; 60.97 GiB total "
      "capacity; "
      "10.24 GiB already allocated; 10.24 GiB current active; 19.52 MiB free; 10.65 GiB reserved "
      "in "
      "total by PyTorch)");
  EXPECT_EQ(npu.backend, Backend::kNpu);
  EXPECT_EQ(npu.device, 0);
  EXPECT_EQ(npu.free, Mib(19.52));
  EXPECT_EQ(npu.reserved, Gib(10.65));

  const OomMessage mps = Parse(
      "RuntimeError: MPS backend out of memory (MPS allocated: 6.04 GB, other allocations: 1.04 "
      "GB, "
      "max allowed: 6.77 GB). Tried to allocate 459.07 MB on private pool. Use "
      "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations");
  EXPECT_EQ(mps.backend, Backend::kMps);
  EXPECT_EQ(mps.requested, Mib(459.07));
  EXPECT_EQ(mps.allowed, Gib(6.77));
  EXPECT_EQ(mps.allocated, Gib(6.04));

  const OomMessage cpu = Parse(
      "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't "
      "allocate "
      "memory: you tried to allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)");
  EXPECT_EQ(cpu.backend, Backend::kCpu);
  EXPECT_EQ(cpu.requested, GiB(16));

  const OomMessage async = Parse(
      "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
      "memory)\nCurrently allocated     : 20.50 GiB\nRequested               : 1.00 GiB\nDevice "
      "limit "
      "           : 23.65 GiB\nFree (according to CUDA): 12.81 MiB\nPyTorch limit (set by "
      "user-supplied memory fraction)\n                        : 17179869184.00 GiB\n");
  EXPECT_EQ(async.wording, "cudaMallocAsync");
  EXPECT_EQ(async.requested, GiB(1));
  EXPECT_EQ(async.allocated, Gib(20.5));
  EXPECT_EQ(async.capacity, Gib(23.65));
  EXPECT_EQ(async.free, Mib(12.81));
  EXPECT_FALSE(async.allowed.has_value());
}

TEST(OomMessage, ReadsMessagesWithoutNumbers) {
  for (const char* text :
       {"RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/"
        "THCStorage.cu:58",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA out of memory. Tried to allocate more than 1EB memory."}) {
    const OomMessage m = Parse(text);
    EXPECT_FALSE(m.requested.has_value()) << text;
    EXPECT_FALSE(m.capacity.has_value()) << text;
    EXPECT_THAT(Causes(m), ElementsAre(OomCause::kUnknown));
  }
}

TEST(OomMessage, ReadsAWholeTraceback) {
  const OomMessage m = Parse(R"(  3%|3         | 3/100 [00:01<00:52,  1.83it/s]
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/u/train.py", line 88, in <module>
[rank0]:     main()
[rank0]:   File "/home/u/train.py", line 60, in main
[rank0]:     trainer.train()
[rank0]:   File "/v/lib/python3.12/site-packages/transformers/trainer.py", line 2325, in train
[rank0]:     return inner_training_loop(
[rank0]:            ^^^^^^^^^^^^^^^^^^^^
[rank0]:   File "/v/site-packages/torch/nn/modules/module.py", line 1775, in _wrapped_call_impl
[rank0]:     return self._call_impl(*args, **kwargs)
[rank0]:   File "/v/site-packages/transformers/models/gpt2/modeling_gpt2.py", line 702, in forward
[rank0]:     loss = self.loss_function(
[rank0]:   File "/v/site-packages/transformers/loss/loss_utils.py", line 59, in ForCausalLMLoss
[rank0]:     logits = logits.float()
[rank0]:              ^^^^^^^^^^^^^^
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 134.00 MiB is free.
)");
  EXPECT_EQ(m.phase, "forward");
  EXPECT_EQ(m.kind, Kind::kLogitsLoss);
  ASSERT_EQ(m.traceback.size(), 6U);
  ASSERT_NE(m.where(), nullptr);
  EXPECT_EQ(m.where()->function, "ForCausalLMLoss");
  EXPECT_EQ(m.where()->line, 59);
  EXPECT_EQ(m.where()->code, "logits = logits.float()");
  EXPECT_EQ(m.requested, MiB(786));
}

TEST(OomMessage, NamesThePhase) {
  const struct {
    const char* frames;
    const char* phase;
  } cases[] = {
      {"  File \"/x/torch/_tensor.py\", line 630, in backward\n  File "
       "\"/x/torch/autograd/graph.py\", line 829, in _engine_run_backward\n",
       "backward"},
      {"  File \"/x/torch/optim/adamw.py\", line 220, in step\n  File "
       "\"/x/torch/optim/adam.py\", line 170, in _init_group\n",
       "optimizer"},
      {"  File \"/x/torch/nn/utils/clip_grad.py\", line 96, in _get_total_norm\n", "optimizer"},
      {"  File \"/x/transformers/modeling_utils.py\", line 4000, in from_pretrained\n  File "
       "\"/x/torch/nn/modules/module.py\", line 900, in _apply\n",
       "load"},
      {"  File \"/x/transformers/trainer.py\", line 4000, in evaluation_loop\n  File "
       "\"/x/transformers/trainer_pt_utils.py\", line 140, in nested_concat\n",
       "evaluation"},
      {"  File \"/x/transformers/generation/utils.py\", line 2000, in generate\n  File "
       "\"/x/torch/nn/modules/linear.py\", line 125, in forward\n",
       "generation"},
      {"  File \"/x/transformers/trainer.py\", line 3000, in _save_checkpoint\n", "save"},
      {"  File \"/x/transformers/trainer.py\", line 3000, in _prepare_inputs\n", "data"},
      {"  File \"/x/mine.py\", line 3, in go\n", ""},
  };
  for (const auto& c : cases) {
    const std::string text = std::string("Traceback (most recent call last):\n") + c.frames +
                             "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
    EXPECT_EQ(Parse(text).phase, c.phase) << c.frames;
  }
}

TEST(OomMessage, TakesTheLastMessageWithNumbers) {
  const OomMessage m = Parse(
      "CUDA out of memory. Tried to allocate 1.00 GiB\nretrying\n\nCUDA out of memory. Tried to "
      "allocate 2.00 GiB\n\nerror: out of memory\n");
  EXPECT_EQ(m.requested, GiB(2));
  EXPECT_EQ(m.occurrences, 3);
}

TEST(OomMessage, RefusesOtherText) {
  for (const char* text : {"", "hello", "Segmentation fault", "{\"a\": 1}"}) {
    EXPECT_FALSE(LooksLikeOomText(text));
    const Result<OomMessage> message = ParseOomMessage(text);
    ASSERT_FALSE(message.ok());
    EXPECT_THAT(message.error().message, HasSubstr("no out-of-memory message"));
  }
}

TEST(OomMessage, SaysWhenNothingHelpsButLess) {
  const OomMessage m = Parse(
      "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 15.47 GiB of "
      "which 12.73 GiB is free. Including non-PyTorch memory, this process has 2.70 GiB memory in "
      "use. Of the allocated memory 2.08 GiB is allocated by PyTorch, and 9.35 MiB is reserved by "
      "PyTorch but unallocated.");
  EXPECT_THAT(Causes(m), ElementsAre(OomCause::kRequestBeyondDevice));
}

TEST(OomMessage, SurvivesDamagedText) {
  const std::string whole = RealMessage();
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    std::string text = whole.substr(0, random() % whole.size());
    for (int change = 0; change < 4 && !text.empty(); ++change) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    (void)ParseOomMessage(text);
  }
  std::string repeated;
  for (int i = 0; i < 20'000; ++i) repeated += "out of memory gpu process 1 has ";
  EXPECT_GT(Parse(repeated).occurrences, 19'000);
}

TEST(Traceback, ReadsNotebooks) {
  const auto modern = LastTraceback(
      "OutOfMemoryError                          Traceback (most recent call last)\n"
      "Cell In[5], line 3\n"
      "      1 x = 1\n"
      "----> 3 trainer.train()\n\n"
      "File ~/v/transformers/trainer.py:1859, in Trainer.train(self, resume, **kwargs)\n"
      "   1857         hf_hub_utils.enable_progress_bars()\n"
      "-> 1859     return inner_training_loop(\n");
  ASSERT_EQ(modern.size(), 1U);
  EXPECT_EQ(modern[0].file, "~/v/transformers/trainer.py");
  EXPECT_EQ(modern[0].line, 1859);
  EXPECT_EQ(modern[0].function, "train");
  EXPECT_EQ(modern[0].code, "return inner_training_loop(");

  const auto old = LastTraceback(
      "<ipython-input-5-abc> in <module>\n"
      "----> 1 model(x)\n\n"
      "/v/torch/nn/modules/module.py in _call_impl(self, *input, **kwargs)\n"
      "    725             result = self._slow_forward(*input, **kwargs)\n"
      "--> 727             result = self.forward(*input, **kwargs)\n");
  ASSERT_EQ(old.size(), 1U);
  EXPECT_EQ(old[0].line, 727);
  EXPECT_EQ(old[0].function, "_call_impl");
}

TEST(Traceback, KeepsTheLastOne) {
  const auto frames = LastTraceback(
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\nKeyError: 1\n\n"
      "During handling of the above exception, another exception occurred:\n\n"
      "Traceback (most recent call last):\n  File \"b.py\", line 2, in h\n    i()\n");
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].file, "b.py");
  EXPECT_EQ(frames[0].code, "i()");
}

}  // namespace
}  // namespace headroom::observe
