// SPDX-License-Identifier: Apache-2.0
//
// Other names. The instructed models here have the config of their base model, but for the ids of
// special tokens; those that differ in shape, positions or dtype stand in the tables themselves.
#include "model/catalogue_tables.h"

namespace headroom {
namespace {

// clang-format off
constexpr ModelAlias kAliases[] = {
    {"camembert/camembert-base", "almanach/camembert-base"},
    {"minilm", "sentence-transformers/all-MiniLM-L6-v2"},

    {"gpt2-small", "openai-community/gpt2"},
    {"gpt-j", "EleutherAI/gpt-j-6b"},
    {"gpt-neox", "EleutherAI/gpt-neox-20b"},
    {"EleutherAI/pythia-70m-deduped", "EleutherAI/pythia-70m"},
    {"EleutherAI/pythia-160m-deduped", "EleutherAI/pythia-160m"},
    {"EleutherAI/pythia-410m-deduped", "EleutherAI/pythia-410m"},
    {"EleutherAI/pythia-1b-deduped", "EleutherAI/pythia-1b"},
    {"EleutherAI/pythia-1.4b-deduped", "EleutherAI/pythia-1.4b"},
    {"EleutherAI/pythia-2.8b-deduped", "EleutherAI/pythia-2.8b"},
    {"EleutherAI/pythia-6.9b-deduped", "EleutherAI/pythia-6.9b"},
    {"EleutherAI/pythia-12b-deduped", "EleutherAI/pythia-12b"},
    {"bigscience/bloom-176b", "bigscience/bloom"},
    {"bigscience/bloomz", "bigscience/bloom"},
    {"tiiuae/falcon-7b-instruct", "tiiuae/falcon-7b"},
    {"tiiuae/falcon-40b-instruct", "tiiuae/falcon-40b"},
    {"mosaicml/mpt-7b-instruct", "mosaicml/mpt-7b"},
    {"mosaicml/mpt-7b-chat", "mosaicml/mpt-7b"},
    {"bigcode/starcoderbase", "bigcode/starcoder"},

    {"meta-llama/Llama-2-7b", "meta-llama/Llama-2-7b-hf"},
    {"meta-llama/Llama-2-13b", "meta-llama/Llama-2-13b-hf"},
    {"meta-llama/Llama-2-70b", "meta-llama/Llama-2-70b-hf"},
    {"meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"},
    {"meta-llama/Llama-2-13b-chat-hf", "meta-llama/Llama-2-13b-hf"},
    {"meta-llama/Llama-2-70b-chat-hf", "meta-llama/Llama-2-70b-hf"},
    {"meta-llama/Llama-3-8B", "meta-llama/Meta-Llama-3-8B"},
    {"meta-llama/Llama-3-70B", "meta-llama/Meta-Llama-3-70B"},
    {"meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B"},
    {"meta-llama/Meta-Llama-3-70B-Instruct", "meta-llama/Meta-Llama-3-70B"},
    {"meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"},
    {"meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.1-70B"},
    {"meta-llama/Meta-Llama-3.1-405B", "meta-llama/Llama-3.1-405B"},
    {"meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"},
    {"meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B"},
    {"meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Llama-3.1-405B"},
    {"meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"},
    {"meta-llama/Meta-Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B"},
    {"meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B"},
    {"meta-llama/Llama-3.2-3B-Instruct", "meta-llama/Llama-3.2-3B"},
    {"meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"},
    {"TinyLlama", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
    {"TinyLlama-1.1B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
    {"HuggingFaceTB/SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M"},
    {"HuggingFaceTB/SmolLM2-360M-Instruct", "HuggingFaceTB/SmolLM2-360M"},
    {"HuggingFaceTB/SmolLM2-1.7B-Instruct", "HuggingFaceTB/SmolLM2-1.7B"},
    {"mistralai/Mistral-7B", "mistralai/Mistral-7B-v0.1"},
    {"mistralai/Mistral-7B-Instruct-v0.1", "mistralai/Mistral-7B-v0.1"},
    {"mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mistral-7B-v0.3"},
    {"mistralai/Mistral-Small-24B-Instruct-2501", "mistralai/Mistral-Small-24B-Base-2501"},
    {"mistralai/Mixtral-8x7B", "mistralai/Mixtral-8x7B-v0.1"},
    {"mistralai/Mixtral-8x22B", "mistralai/Mixtral-8x22B-v0.1"},
    {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1"},
    {"Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B"},
    {"Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B"},

    {"google/gemma-2b-it", "google/gemma-2b"},
    {"google/gemma-7b-it", "google/gemma-7b"},
    {"google/gemma-3-270m-it", "google/gemma-3-270m"},
    {"google/gemma-3-1b-it", "google/gemma-3-1b-pt"},
    {"google/gemma-3-1b", "google/gemma-3-1b-pt"},
    {"microsoft/phi-1.5", "microsoft/phi-1_5"},
    {"microsoft/phi-3-mini", "microsoft/Phi-3-mini-4k-instruct"},
    {"microsoft/phi-3.5-mini", "microsoft/Phi-3.5-mini-instruct"},
    {"stabilityai/stablelm-2-1.6b", "stabilityai/stablelm-2-1_6b"},
    {"allenai/OLMo-1B", "allenai/OLMo-1B-hf"},
    {"allenai/OLMo-7B", "allenai/OLMo-7B-hf"},
    {"allenai/OLMo-2-7B", "allenai/OLMo-2-1124-7B"},
    {"CohereLabs/c4ai-command-r-v01", "CohereForAI/c4ai-command-r-v01"},
    {"command-r", "CohereForAI/c4ai-command-r-v01"},

    {"facebook/mbart-large-50-many-to-many-mmt", "facebook/mbart-large-50"},
    {"openai/whisper-large", "openai/whisper-large-v2"},
    {"whisper-turbo", "openai/whisper-large-v3-turbo"},
};
// clang-format on

}  // namespace

std::span<const ModelAlias> ModelAliases() { return kAliases; }

}  // namespace headroom
