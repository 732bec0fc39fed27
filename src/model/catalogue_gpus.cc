// SPDX-License-Identifier: Apache-2.0
//
// GPUs and how a user's words find them.
//
// Where the figures come from:
// - `usable`, kRead: a total that CUDA itself reported on Linux: the message of a PyTorch OOM ("GPU
//   0 has a total capacity of 23.52 GiB"), the device line of Ultralytics ("RTX 4090, 24072MiB")
//   or llama.cpp ("VRAM: 24210 MiB"), Unsloth's banner ("Max memory: 39.557 GB", which is GiB), or
//   a run of our own (H200). Drivers since 2023 keep more for themselves than those before
//   (RTX 2080: 7,982 MiB, later 7,783), so the smallest total seen stands here: a verdict must not
//   promise what the next driver takes. Windows hides the reserve and reports the whole size; there
//   the verdict is cautious. A figure in GiB is rounded down to MiB.
// - `usable`, kDerived: nvidia-smi's total less the reserve of the nearest card that was read,
//   written as that difference, or the total of a twin.
// - Compute capability, multiprocessors, bandwidth, FLOP rates: NVIDIA's data sheets and white
//   papers, dense (no sparsity). The 16-bit rate is the one with fp32 accumulation, which PyTorch
//   uses: half of the often quoted rate on GeForce. Pascal has no tensor cores; its 16-bit matrix
//   products run at the fp32 rate, but for the P100's. Since Ampere every data sheet gives TF32
//   half of the 16-bit rate (A100 156 and 312, RTX 4090 82.6 and 165.2, H100 494.7 and 989.4, B200
//   1,125 and 2,250 TFLOP/s).
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "model/catalogue_tables.h"

namespace headroom {
namespace {

enum class Source { kRead, kDerived };
constexpr Source kRead = Source::kRead;
constexpr Source kDerived = Source::kDerived;

struct Card {
  std::string_view name;
  std::string_view also;  // further words a user may add: the size on the box, the socket
  int64_t usable_mib;
  Source source;
  int compute;  // 86 is 8.6, 103 is 10.3
  int multiprocessors;
  double gigabytes_per_second;
  double tensor16_tflops;
  double fp32_tflops;
};

// Reserves read on cards whose nvidia-smi total is known, in MiB.
constexpr int64_t kReservePascalEcc = 130;     // Tesla P40 with ECC off: 24576 - 24446
constexpr int64_t kReserveTuring = 448;        // Tesla T4: 15360 - 14912
constexpr int64_t kReserveAmpere8 = 439;       // RTX 3070: 8192 - 7753
constexpr int64_t kReserveAda8 = 383;          // RTX 4060 Ti: 8188 - 7805
constexpr int64_t kReserveAda12 = 416;         // RTX 4070: 12282 - 11866
constexpr int64_t kReserveAda16 = 436;         // RTX 4060 Ti 16 GB: 16380 - 15944
constexpr int64_t kReserveAda24 = 492;         // RTX 4090: 24564 - 24072
constexpr int64_t kReserveAda48 = 613;         // L40S: 46068 - 45455
constexpr int64_t kReserveBlackwell = 495;     // RTX 5070 Ti: 16303 - 15808
constexpr int64_t kReserveGraceHopper = 1103;  // see the GH200

// clang-format off
constexpr Card kCards[] = {
    // Pascal.
    {"GeForce GTX 1080", "8gb", 8098, kRead, 61, 20, 320, 8.9, 8.9},
    {"GeForce GTX 1080 Ti", "11gb", 11172, kRead, 61, 28, 484, 11.3, 11.3},
    {"Tesla P40", "24gb", 23040 - kReservePascalEcc, kDerived, 61, 30, 346, 11.8, 11.8},
    {"Tesla P100-PCIE-16GB", "", 16269, kRead, 60, 56, 732, 18.7, 9.3},

    // Volta.
    {"TITAN V", "12gb", 12064, kRead, 70, 80, 653, 110, 13.8},
    {"Tesla V100-SXM2-16GB", "sxm", 16130, kRead, 70, 80, 900, 125, 15.7},
    {"Tesla V100-PCIE-16GB", "", 16130, kDerived, 70, 80, 900, 112, 14},
    {"Tesla V100-SXM2-32GB", "sxm", 32494, kRead, 70, 80, 900, 125, 15.7},
    {"Tesla V100-PCIE-32GB", "", 32494, kRead, 70, 80, 900, 112, 14},
    {"Tesla V100S-PCIE-32GB", "", 32501, kRead, 70, 80, 1134, 130, 16.4},

    // Turing. The RTX 2080 Ti's 10.56 GiB is from OOM messages; no other card has that size.
    {"Tesla T4", "16gb", 14912, kRead, 75, 40, 320, 65, 8.1},
    {"GeForce RTX 2060", "6gb", 5735, kRead, 75, 30, 336, 25.8, 6.5},
    {"GeForce RTX 2060 12GB", "", 11833, kRead, 75, 34, 336, 28.7, 7.2},
    {"GeForce RTX 2070", "8gb", 7782, kRead, 75, 36, 448, 29.9, 7.5},
    {"GeForce RTX 2070 SUPER", "8gb", 7782, kDerived, 75, 40, 448, 36.3, 9.1},
    {"GeForce RTX 2080", "8gb", 7783, kRead, 75, 46, 448, 40.3, 10.1},
    {"GeForce RTX 2080 SUPER", "8gb", 7783, kDerived, 75, 48, 496, 44.6, 11.2},
    {"GeForce RTX 2080 Ti", "11gb", 10813, kRead, 75, 68, 616, 53.8, 13.4},
    {"TITAN RTX", "24gb", 24576 - kReserveTuring, kDerived, 75, 72, 672, 130.5, 16.3},
    {"Quadro RTX 5000", "16gb", 15927, kRead, 75, 48, 448, 89.2, 11.2},
    {"Quadro RTX 6000", "24gb", 24576 - kReserveTuring, kDerived, 75, 72, 672, 130.5, 16.3},
    {"Quadro RTX 8000", "48gb", 48380, kRead, 75, 72, 672, 130.5, 16.3},

    // Ampere, GeForce. nvidia-smi calls both sizes of the RTX 3080 by one name. The 10 GB one's
    // 9.62 GiB is from OOM messages; no other card has that size.
    {"GeForce RTX 3060", "12gb", 11910, kRead, 86, 28, 360, 25.5, 12.7},
    {"GeForce RTX 3060 Ti", "8gb", 7833, kRead, 86, 38, 448, 32.4, 16.2},
    {"GeForce RTX 3070", "8gb", 7753, kRead, 86, 46, 448, 40.6, 20.3},
    {"GeForce RTX 3070 Ti", "8gb", 7840, kRead, 86, 48, 608, 43.5, 21.7},
    {"GeForce RTX 3080", "10gb", 9850, kRead, 86, 68, 760, 59.5, 29.8},
    {"GeForce RTX 3080 12GB", "", 11910, kDerived, 86, 70, 912, 61.3, 30.6},
    {"GeForce RTX 3080 Ti", "12gb", 11910, kRead, 86, 80, 912, 68.2, 34.1},
    {"GeForce RTX 3090", "24gb", 24123, kRead, 86, 82, 936, 71, 35.6},
    {"GeForce RTX 3090 Ti", "24gb", 24110, kRead, 86, 84, 1008, 80, 40},

    // Ampere, workstation; ECC off, as they are delivered. With ECC an RTX A6000 has 44.55 GiB.
    {"RTX A2000", "6gb", 6138 - kReserveAmpere8, kDerived, 86, 26, 288, 31.9, 8},
    {"RTX A2000 12GB", "", 12282 - kReserveAmpere8, kDerived, 86, 26, 288, 31.9, 8},
    {"RTX A4000", "16gb", 15967, kRead, 86, 48, 448, 76.7, 19.2},
    {"RTX A4500", "20gb", 20470 - kReserveAda24, kDerived, 86, 56, 640, 94.6, 23.7},
    {"RTX A5000", "24gb", 24564 - kReserveAda24, kDerived, 86, 64, 768, 111.1, 27.8},
    {"RTX A6000", "48gb", 48537, kRead, 86, 84, 768, 154.8, 38.7},

    // Ampere, data centre; ECC on, as they are delivered. OOM messages from the cards that
    // nvidia-smi gives about 23,028 MiB (A10, A10G, L4) say 21.95 to 22.19 GiB; the smallest is
    // taken for the three. An A16 is four GPUs; this is one.
    {"A2", "16gb", 15356 - kReserveTuring, kDerived, 86, 10, 200, 18, 4.5},
    {"A10", "24gb", 22476, kDerived, 86, 72, 600, 125, 31.2},
    {"A10G", "24gb", 22476, kDerived, 86, 80, 600, 70, 35},
    {"A16", "16gb", 15356 - kReserveTuring, kDerived, 86, 10, 200, 17.9, 4.5},
    {"A30", "24gb pcie", 24164, kRead, 80, 56, 933, 165, 10.3},
    {"A40", "48gb", 45363, kRead, 86, 84, 696, 149.7, 37.4},
    {"A100-SXM4-40GB", "sxm", 40339, kRead, 80, 108, 1555, 312, 19.5},
    {"A100-PCIE-40GB", "", 40377, kRead, 80, 108, 1555, 312, 19.5},
    {"A100-SXM4-80GB", "sxm", 81049, kRead, 80, 108, 2039, 312, 19.5},
    {"A100 80GB PCIe", "", 81049, kRead, 80, 108, 1935, 312, 19.5},
    {"A800-SXM4-80GB", "sxm", 81049, kDerived, 80, 108, 2039, 312, 19.5},

    // Ada, GeForce.
    {"GeForce RTX 4060", "8gb", 8188 - kReserveAda8, kDerived, 89, 24, 272, 30.2, 15.1},
    {"GeForce RTX 4060 Laptop GPU", "8gb", 7815, kRead, 89, 24, 256, 23.2, 11.6},
    {"GeForce RTX 4060 Ti", "8gb", 7805, kRead, 89, 34, 288, 44.1, 22.1},
    {"GeForce RTX 4060 Ti 16GB", "", 15944, kRead, 89, 34, 288, 44.1, 22.1},
    {"GeForce RTX 4070", "12gb", 11866, kRead, 89, 46, 504, 58.3, 29.1},
    {"GeForce RTX 4070 Laptop GPU", "8gb", 7805, kRead, 89, 36, 256, 31.2, 15.6},
    {"GeForce RTX 4070 SUPER", "12gb", 12282 - kReserveAda12, kDerived, 89, 56, 504, 71, 35.5},
    {"GeForce RTX 4070 Ti", "12gb", 12282 - kReserveAda12, kDerived, 89, 60, 504, 80.2, 40.1},
    {"GeForce RTX 4070 Ti SUPER", "16gb", 16376 - kReserveAda16, kDerived, 89, 66, 672, 88.2, 44.1},
    {"GeForce RTX 4080", "16gb", 16376 - kReserveAda16, kDerived, 89, 76, 717, 97.5, 48.7},
    {"GeForce RTX 4080 SUPER", "16gb", 16376 - kReserveAda16, kDerived, 89, 80, 736, 104.4, 52.2},
    {"GeForce RTX 4090", "24gb", 24072, kRead, 89, 128, 1008, 165.2, 82.6},
    {"GeForce RTX 4090 Laptop GPU", "16gb", 16376 - kReserveAda16, kDerived, 89, 76, 576, 66, 33},

    // Ada, workstation (ECC off) and data centre (ECC on).
    {"RTX 4000 Ada Generation", "20gb", 20475 - kReserveAda24, kDerived, 89, 48, 360, 106.8, 26.7},
    {"RTX 4500 Ada Generation", "24gb", 24570 - kReserveAda24, kDerived, 89, 60, 432, 158.5, 39.6},
    {"RTX 5000 Ada Generation", "32gb", 32760 - kReserveAda48, kDerived, 89, 100, 576, 261.1, 65.3},
    {"RTX 6000 Ada Generation", "48gb", 48539, kRead, 89, 142, 960, 364.2, 91.1},
    {"L4", "24gb", 22476, kDerived, 89, 58, 300, 121, 30.3},
    {"L40", "48gb", 45455, kDerived, 89, 142, 864, 181, 90.5},
    {"L40S", "48gb", 45455, kRead, 89, 142, 864, 362, 91.6},

    // Hopper. The H200 was measured: nvidia-smi's 143,771 MiB less a reserve of 616. The reserve of
    // a GH200 is that of the OOM messages that say 94.50 GiB, a total that no other card of
    // 97,871 MiB reports. "GH200 480GB" counts the LPDDR5X of the CPU; the GPU has 96 GB.
    {"H100 80GB HBM3", "sxm sxm5", 80995, kRead, 90, 132, 3352, 989.4, 66.9},
    {"H100 PCIe", "80gb", 80995, kDerived, 90, 114, 2039, 756, 51.2},
    {"H100 NVL", "94gb", 95320, kRead, 90, 132, 3938, 835.5, 60},
    {"H800", "80gb sxm sxm5", 80995, kDerived, 90, 132, 3352, 989.4, 66.9},
    {"H20", "96gb", 97285, kRead, 90, 78, 4000, 148, 44},
    {"H200", "141gb sxm sxm5", 143155, kRead, 90, 132, 4800, 989.4, 66.9},
    {"H200 NVL", "141gb", 143155, kDerived, 90, 132, 4800, 835.5, 60},
    {"GH200 480GB", "96gb", 97871 - kReserveGraceHopper, kDerived, 90, 132, 4000, 989.4, 66.9},
    {"GH200 144G HBM3e", "144gb", 146831 - kReserveGraceHopper, kDerived, 90, 132, 4900, 989.4,
     66.9},

    // Blackwell, GeForce and workstation.
    {"GeForce RTX 5060", "8gb", 8151 - kReserveBlackwell, kDerived, 120, 30, 448, 38.4, 19.2},
    {"GeForce RTX 5060 Ti", "8gb", 8151 - kReserveBlackwell, kDerived, 120, 36, 448, 47.4, 23.7},
    {"GeForce RTX 5060 Ti 16GB", "", 15825, kRead, 120, 36, 448, 47.4, 23.7},
    {"GeForce RTX 5070", "12gb", 12227 - kReserveBlackwell, kDerived, 120, 48, 672, 61.7, 30.9},
    {"GeForce RTX 5070 Ti", "16gb", 15808, kRead, 120, 70, 896, 87.9, 43.9},
    {"GeForce RTX 5080", "16gb", 15840, kRead, 120, 84, 960, 112.6, 56.3},
    {"GeForce RTX 5090", "32gb", 32102, kRead, 120, 170, 1792, 209.5, 104.8},
    {"RTX PRO 6000 Blackwell Workstation Edition", "96gb", 97239, kRead, 120, 188, 1792, 503.8,
     125},
    {"RTX PRO 6000 Blackwell Max-Q Workstation Edition", "96gb", 97247, kRead, 120, 188, 1792,
     438.9,
     110},
    {"RTX PRO 6000 Blackwell Server Edition", "96gb", 97239, kDerived, 120, 188, 1597, 483.6, 120},

    // Blackwell, data centre: OOM messages say 178.35, 184.31 and 267.69 GiB, totals of one product
    // each. The B100, never sold widely, is given the B200's memory.
    {"B100", "192gb", 182630, kDerived, 100, 148, 8000, 1750, 60},
    {"B200", "180gb 192gb", 182630, kRead, 100, 148, 8000, 2250, 75},
    {"GB200", "186gb 192gb", 188733, kRead, 100, 152, 8000, 2500, 80},
    {"B300 SXM6 AC", "sxm 270gb 288gb", 274114, kRead, 103, 148, 8000, 2250, 75},
};
// clang-format on

Gpu ToGpu(const Card& card) {
  return {.name = card.name,
          .usable = MiB(card.usable_mib),
          .compute_major = card.compute / 10,
          .compute_minor = card.compute % 10,
          .memory_bandwidth = card.gigabytes_per_second * 1e9,
          .bf16_flops = card.tensor16_tflops * 1e12,
          .tf32_flops = card.compute >= 80 ? card.tensor16_tflops / 2 * 1e12 : 0,
          .fp32_flops = card.fp32_tflops * 1e12,
          .measured = card.source == kRead,
          .multiprocessors = card.multiprocessors};
}

bool IsOneOf(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool IsBrand(std::string_view word) {
  static constexpr std::string_view kBrands[] = {"nvidia", "geforce", "tesla"};
  return IsOneOf(word, kBrands);
}

// Lower-case words of letters and digits, brands left out.
std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      words.back() += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else {
      words.emplace_back();
    }
  }
  std::erase_if(words, [](const std::string& word) { return word.empty() || IsBrand(word); });
  return words;
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word;
  return text;
}

// "A100-SXM4-80GB" is asked for as "a100 80gb", "a10080gb" or "a100 sxm"; "4090" must not find the
// laptop's. So a card is a set of words, of which a query needs those that make the product (4090,
// laptop, ti, nvl) and may name or omit those that only describe it (rtx, 80gb, pcie).
struct CardWords {
  std::vector<std::string> words;
  uint32_t needed = 0;  // a bit for each word
};

bool IsDescriptive(const std::string& word) {
  static constexpr std::string_view kWords[] = {"gpu",       "generation", "edition", "workstation",
                                                "blackwell", "server",     "pcie",    "ac"};
  const bool is_size = word[0] <= '9' && (word.ends_with("gb") || word.ends_with('g'));
  return is_size || word.starts_with("sxm") || word.starts_with("hbm") || IsOneOf(word, kWords);
}

CardWords WordsOf(const Card& card) {
  static constexpr std::string_view kSeries[] = {"rtx", "gtx", "quadro"};
  CardWords result{.words = Words(card.name)};
  bool leading = true;  // "TITAN RTX" needs its RTX, "RTX 4090" does not
  for (size_t i = 0; i < result.words.size(); ++i) {
    leading = leading && IsOneOf(result.words[i], kSeries);
    if (!leading && !IsDescriptive(result.words[i])) result.needed |= 1U << i;
  }
  for (std::string& word : Words(card.also)) result.words.push_back(std::move(word));
  return result;
}

// Whether `query`, words run together, is made of `card`'s words, each used once at most and the
// needed ones all.
bool IsMadeOf(std::string_view query, const CardWords& card, uint32_t used = 0) {
  if (query.empty()) return (card.needed & ~used) == 0;
  for (size_t i = 0; i < card.words.size(); ++i) {
    const uint32_t bit = 1U << i;
    if ((used & bit) != 0 || !query.starts_with(card.words[i])) continue;
    if (IsMadeOf(query.substr(card.words[i].size()), card, used | bit)) return true;
  }
  return false;
}

// "nvidiageforcertx4090" in one word keeps its brands until here.
std::string Query(std::string_view name) {
  std::string query = Join(Words(name));
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view brand : {"nvidia", "geforce", "tesla"}) {
      if (!query.starts_with(brand)) continue;
      query.erase(0, brand.size());
      found = true;
    }
  }
  return query;
}

// The card whose `text` is nearest to `query`; null when none is.
const Card* NearestBy(std::string (*text)(const Card&), const std::string& query) {
  std::vector<std::string> texts;
  for (const Card& card : kCards) texts.push_back(text(card));
  const std::vector<std::string_view> candidates(texts.begin(), texts.end());
  const std::string nearest = Nearest(query, candidates);
  if (nearest.empty()) return nullptr;
  return &kCards[std::find(texts.begin(), texts.end(), nearest) - texts.begin()];
}

std::string WholeName(const Card& card) { return Join(Words(card.name)); }

std::string Product(const Card& card) {
  const CardWords words = WordsOf(card);
  std::string text;
  for (size_t i = 0; i < words.words.size(); ++i) {
    if ((words.needed >> i & 1U) != 0) text += words.words[i];
  }
  return text;
}

Error UnknownGpu(std::string_view name, const std::string& query) {
  const Card* nearest = nullptr;
  if (!query.empty() && query.size() <= 100) {
    nearest = NearestBy(WholeName, query);
    if (nearest == nullptr) nearest = NearestBy(Product, query);
  }
  std::string message = "unknown GPU " + QuotedName(name);
  message += nearest == nullptr ? ". " : ": did you mean \"" + std::string(nearest->name) + "\"? ";
  return Error::BadInput(message +
                         "headroom gpus lists all; for a card without a name: --memory 24GiB");
}

}  // namespace

std::span<const Gpu> KnownGpus() {
  static const std::vector<Gpu> all = [] {
    std::vector<Gpu> gpus;
    for (const Card& card : kCards) gpus.push_back(ToGpu(card));
    return gpus;
  }();
  return all;
}

Result<Gpu> FindGpu(std::string_view name) {
  const std::string query = Query(name);
  // Of several ("a100", "4060 ti") the one with the least memory: a verdict errs on the safe side.
  const Card* found = nullptr;
  for (const Card& card : kCards) {
    if (query.empty() || (found != nullptr && card.usable_mib >= found->usable_mib)) continue;
    if (IsMadeOf(query, WordsOf(card))) found = &card;
  }
  if (found == nullptr) return UnknownGpu(name, query);
  return ToGpu(*found);
}

}  // namespace headroom
