// SPDX-License-Identifier: Apache-2.0
//
// Tables, JSON lines and texts as any bytes; the first says which. What is read and passes
// CheckExamples() makes batches; what is not is refused in one line.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "engine/data/batches.h"
#include "engine/data/dataset.h"
#include "engine/data/tokenizer.h"

namespace {

using namespace headroom;
using namespace headroom::engine;

constexpr int64_t kLength = 8;

const Tokenizer& SmallTokenizer() {
  static const Tokenizer tokenizer = *Tokenizer::Parse(
      R"({"model": {"type": "WordPiece", "unk_token": "[UNK]",
                    "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##a": 4, "the": 5}},
          "added_tokens": [{"id": 1, "content": "[CLS]", "special": true},
                           {"id": 2, "content": "[SEP]", "special": true}],
          "pre_tokenizer": {"type": "BertPreTokenizer"},
          "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]}})",
      "small");
  return tokenizer;
}

Result<Dataset> Read(uint8_t kind, const std::string& path, ModelLimits& limits) {
  const Tokenizer& tokenizer = SmallTokenizer();
  limits.vocabulary = tokenizer.vocab_size();
  limits.types = 2;
  switch (kind % 5) {
    case 0:
      limits.task = Task::kSequenceClassification;
      return LoadClassificationTsv(path, tokenizer, kLength);
    case 1:
      limits.task = Task::kSeq2SeqLm;
      return LoadTranslationTsv(path, tokenizer, kLength, 1, 2);
    case 2:
      limits.task = Task::kCausalLm;
      return LoadText(path, tokenizer, kLength);
    case 3:
      limits.task = Task::kMaskedLm;
      return LoadText(path, tokenizer, kLength, Task::kMaskedLm);
    default:
      constexpr Task kTasks[] = {Task::kSequenceClassification, Task::kTokenClassification,
                                 Task::kCausalLm, Task::kMaskedLm, Task::kSeq2SeqLm};
      limits.task = kTasks[kind / 5 % 5];
      return LoadPretokenised(path, tokenizer.vocab_size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int file = ::memfd_create("dataset", 0);
  HEADROOM_CHECK(file >= 0 && ::write(file, data + 1, size - 1) == static_cast<ssize_t>(size - 1),
                 "no memory");
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  ModelLimits limits;
  const auto dataset = Read(data[0], path, limits);
  ::close(file);
  if (!dataset.ok()) {
    HEADROOM_CHECK(dataset.error().message.starts_with(path), "a refusal without a file");
    return 0;
  }
  if (!CheckExamples(*dataset, limits).ok()) return 0;
  BatchStream stream(*dataset, {.task = limits.task, .batch_size = 3, .group_by_length = true});
  Batch batch;
  int64_t rows = 0;
  for (int64_t i = 0; i < stream.batches_per_epoch(); ++i) {
    stream.Next(batch);
    rows += batch.rows;
    HEADROOM_CHECK(batch.sequence <= stream.shapes().back().sequence, "a batch of no shape");
  }
  HEADROOM_CHECK(rows == dataset->size(), "an epoch that is none");
  return 0;
}
