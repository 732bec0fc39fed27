// SPDX-License-Identifier: Apache-2.0
#include "cuda_attention_parity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "engine/cuda/workspace.h"
#include "engine/half.h"

namespace headroom::engine {
namespace {

using graph::Graph;
using graph::OpAttributes;
using graph::OpKind;
using graph::Role;
using graph::TensorId;
using Halves = std::vector<uint16_t>;
using Doubles = std::vector<double>;

struct AttentionCase {
  std::string name;
  DType dtype = DType::kBFloat16;
  int64_t batch = 2, heads = 2, kv_heads = 2, sequence = 128, width = 64;
  bool causal = false;
  bool padded = false;
  float dropout = 0;

  int64_t rows() const { return batch * sequence; }
  int64_t packed() const { return (heads + 2 * kv_heads) * width; }
  int64_t out() const { return heads * width; }
  int64_t Length(int64_t b) const { return padded && b % 2 == 1 ? sequence * 2 / 7 : sequence; }
  // Whether it is compared with float64: not all of a large batch.
  bool Compares(int64_t b) const { return batch <= 2 || b == 0 || b == batch - 1; }
  int64_t Visible(int64_t b, int64_t i) const {
    return causal ? std::min(Length(b), i + 1) : Length(b);
  }
};

std::vector<AttentionCase> Cases() {
  return {
      {.name = "plain"},
      {.name = "causal", .sequence = 384, .causal = true},
      {.name = "long padded", .heads = 4, .kv_heads = 4, .sequence = 640, .padded = true},
      {.name = "causal padded", .sequence = 256, .causal = true, .padded = true},
      {.name = "shared heads", .heads = 4, .sequence = 256, .width = 128, .causal = true},
      {.name = "odd length", .sequence = 100, .padded = true},
      {.name = "odd, no lengths", .sequence = 100},
      {.name = "dropout", .heads = 4, .kv_heads = 4, .sequence = 256, .dropout = 0.1F},
      {.name = "dropout padded", .sequence = 512, .padded = true, .dropout = 0.1F},
      {.name = "dropout causal", .sequence = 256, .width = 128, .causal = true, .dropout = 0.25F},
      {.name = "dropout fp16", .dtype = DType::kFloat16, .padded = true, .dropout = 0.1F},
      {.name = "dropout, shared heads", .heads = 4, .causal = true, .dropout = 0.1F},
      {.name = "dropout in two parts", .batch = 18, .sequence = 2048, .dropout = 0.1F},
  };
}

double Value(DType dtype, uint16_t bits) {
  return static_cast<double>(dtype == DType::kBFloat16 ? FromBFloat16(bits) : FromFloat16(bits));
}
uint16_t Bits(DType dtype, double value) {
  const auto x = static_cast<float>(value);
  return dtype == DType::kBFloat16 ? BFloat16Bits(x) : Float16Bits(x);
}

// The two ops on the device, from packed queries, keys and values.
class DeviceAttention {
 public:
  explicit DeviceAttention(const AttentionCase& test) : test_(test) {
    Build();
    auto device = CudaDevice::Open(0);
    HEADROOM_CHECK(device.ok(), device.error().message);
    device_ = std::move(*device);
    plan_ = graph::PlanMemory(graph_);
    const Status allocated = device_->Allocate(plan_.size);
    HEADROOM_CHECK(allocated.ok(), allocated.ok() ? "" : allocated.error().message);
    cuda_ = std::make_unique<CudaExecutor>(*device_, graph_, plan_, CudaOptions{.graphs = false});
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < test.batch; ++b) {
      lengths.push_back(static_cast<int32_t>(test.Length(b)));
    }
    if (test.padded) cuda_->Upload(lengths_, reinterpret_cast<const std::byte*>(lengths.data()));
  }

  const CudaExecutor& cuda() const { return *cuda_; }
  void SetPacked(const Halves& values) { Upload(qkv_, values); }
  void SetGradient(const Halves& values) { Upload(dout_, values); }
  // What is not written stays a NaN.
  void Poison() {
    const std::vector<std::byte> ones(
        static_cast<size_t>(std::max(test_.rows() * test_.packed() * 2, test_.rows() * 8)),
        std::byte{0xff});
    for (const TensorId id : {o_, lse_, dqkv_}) {
      HEADROOM_CHECK(SizeOf(graph_.tensor(id)).count() <= static_cast<int64_t>(ones.size()),
                     "too little poison");
      cuda_->Upload(id, ones.data());
    }
    HEADROOM_CHECK(device_->Synchronize().ok(), "poisoning");
  }
  void Run(size_t first, size_t last, const StepScalars& scalars) {
    cuda_->RunOps(first, last, scalars);
    const Status status = device_->Synchronize();
    Check(status.ok(), test_.name + ": " + (status.ok() ? "" : status.error().message));
  }
  Halves Output() const { return Download(o_, test_.rows() * test_.out()); }
  Halves Gradients() const { return Download(dqkv_, test_.rows() * test_.packed()); }
  std::vector<float> Sums() const {
    std::vector<float> sums(static_cast<size_t>(test_.rows() * test_.heads));
    cuda_->Download(lse_, reinterpret_cast<std::byte*>(sums.data()));
    return sums;
  }

 private:
  void Build();
  void Upload(TensorId id, const Halves& values) {
    cuda_->Upload(id, reinterpret_cast<const std::byte*>(values.data()));
    HEADROOM_CHECK(device_->Synchronize().ok(), "uploading");
  }
  Halves Download(TensorId id, int64_t count) const {
    Halves values(static_cast<size_t>(count));
    cuda_->Download(id, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  AttentionCase test_;
  Graph graph_;
  graph::MemoryPlan plan_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<CudaExecutor> cuda_;
  TensorId qkv_{}, dqkv_{}, o_{}, lse_{}, dout_{}, lengths_ = graph::kNoTensor;
};

void DeviceAttention::Build() {
  const AttentionCase& t = test_;
  const auto add = [&](const char* name, DType dtype, Shape shape, Role role) {
    return graph_.Add(
        {.name = name, .dtype = dtype, .shape = std::move(shape), .role = role, .kept = true});
  };
  const Shape packed{t.rows(), t.packed()};
  const Shape out{t.rows(), t.out()};
  qkv_ = add("qkv", t.dtype, packed, Role::kInput);
  dout_ = add("do", t.dtype, out, Role::kInput);
  if (t.padded) lengths_ = add("lengths", DType::kInt32, Shape{t.batch}, Role::kInput);
  o_ = add("o", t.dtype, out, Role::kActivation);
  lse_ = add("lse", DType::kFloat32, Shape{t.batch, t.heads, t.sequence}, Role::kActivation);
  dqkv_ = add("dqkv", t.dtype, packed, Role::kTemporary);
  const auto view = [&](TensorId base, int64_t heads, int64_t first_head) {
    return graph_.AddView(base,
                          {.shape = Shape{t.rows(), heads * t.width}, .row_stride = t.packed()},
                          first_head * t.width);
  };
  const auto parts = [&](TensorId base) {
    return std::vector<TensorId>{view(base, t.heads, 0), view(base, t.kv_heads, t.heads),
                                 view(base, t.kv_heads, t.heads + t.kv_heads)};
  };
  const OpAttributes attributes{.batch = t.batch,
                                .sequence = t.sequence,
                                .dropout = t.dropout,
                                .stream = 5,
                                .heads = static_cast<int>(t.heads),
                                .kv_heads = static_cast<int>(t.kv_heads),
                                .head_dim = static_cast<int>(t.width),
                                .causal = t.causal,
                                .scale = 1 / std::sqrt(static_cast<float>(t.width))};
  const std::vector<TensorId> qkv = parts(qkv_);
  graph_.Append({.kind = OpKind::kAttention,
                 .inputs = {qkv[0], qkv[1], qkv[2], lengths_},
                 .outputs = {o_, lse_},
                 .attributes = attributes});
  graph_.Append({.kind = OpKind::kAttentionBackward,
                 .phase = graph::Phase::kBackward,
                 .inputs = {dout_, qkv[0], qkv[1], qkv[2], o_, lse_, lengths_},
                 .outputs = parts(dqkv_),
                 .attributes = attributes});
  cuda::AddWorkspaces(graph_);
}

// Factors of the probabilities, [batch, heads, queries, keys]; 1 everywhere without dropout.
using Mask = std::vector<uint8_t>;

size_t MaskAt(const AttentionCase& t, int64_t b, int64_t h, int64_t i, int64_t j) {
  return static_cast<size_t>(((b * t.heads + h) * t.sequence + i) * t.sequence + j);
}

// Values that are rows of the unit matrix bring the probabilities of as many keys as a head is wide
// into the output.
Mask ReadMask(const AttentionCase& t, DeviceAttention& device, Halves packed,
              const StepScalars& scalars) {
  Mask mask(static_cast<size_t>(t.batch * t.heads * t.sequence * t.sequence));
  const uint16_t one = Bits(t.dtype, 1);
  const int64_t values = (t.heads + t.kv_heads) * t.width;
  for (int64_t first = 0; first < t.sequence; first += t.width) {
    for (int64_t row = 0; row < t.rows(); ++row) {
      const int64_t j = row % t.sequence - first;
      for (int64_t c = 0; c < t.kv_heads * t.width; ++c) {
        packed[static_cast<size_t>(row * t.packed() + values + c)] = c % t.width == j ? one : 0;
      }
    }
    device.SetPacked(packed);
    device.Run(0, 1, scalars);
    const Halves o = device.Output();
    for (int64_t row = 0; row < t.rows(); ++row) {
      for (int64_t c = 0; c < t.out(); ++c) {
        const int64_t j = first + c % t.width;
        if (j >= t.sequence) continue;
        const bool kept = Value(t.dtype, o[static_cast<size_t>(row * t.out() + c)]) != 0;
        mask[MaskAt(t, row / t.sequence, c / t.width, row % t.sequence, j)] = kept ? 1 : 0;
      }
    }
  }
  return mask;
}

struct Wanted {
  Doubles o, lse, gradients;
};

// In float64, one query of one head at a time.
class Reference {
 public:
  Reference(const AttentionCase& t, const Halves& packed, const Halves& dout, const Mask& mask)
      : t_(t), packed_(packed), dout_(dout), mask_(mask) {
    wanted_.o.assign(static_cast<size_t>(t.rows() * t.out()), 0);
    wanted_.lse.assign(static_cast<size_t>(t.rows() * t.heads), 0);
    wanted_.gradients.assign(packed.size(), 0);
    for (int64_t b = 0; b < t.batch; ++b) {
      for (int64_t h = 0; t.Compares(b) && h < t.heads; ++h) {
        for (int64_t i = 0; i < t.sequence; ++i) Query(b, h, i);
      }
    }
  }
  const Wanted& wanted() const { return wanted_; }

 private:
  // Of the packed row, the columns of a head of queries (0), keys (1) or values (2).
  size_t At(int64_t b, int64_t i, int part, int64_t h) const {
    const int64_t head =
        part == 0 ? h : t_.heads + (part - 1) * t_.kv_heads + h / (t_.heads / t_.kv_heads);
    return static_cast<size_t>((b * t_.sequence + i) * t_.packed() + head * t_.width);
  }
  double Dot(const Halves& a, size_t at_a, size_t at_b) const {
    double sum = 0;
    for (size_t d = 0; d < static_cast<size_t>(t_.width); ++d) {
      sum += Value(t_.dtype, a[at_a + d]) * Value(t_.dtype, packed_[at_b + d]);
    }
    return sum;
  }
  void Query(int64_t b, int64_t h, int64_t i) {
    const auto keys = static_cast<size_t>(t_.Visible(b, i));
    const double scale = 1 / std::sqrt(static_cast<double>(t_.width));
    const double keep = 1 - static_cast<double>(t_.dropout);
    const auto width = static_cast<size_t>(t_.width);
    const size_t q = At(b, i, 0, h);
    const auto out = static_cast<size_t>((b * t_.sequence + i) * t_.out() + h * t_.width);
    Doubles p(keys), dp(keys), factor(keys, 1);
    double max = -std::numeric_limits<double>::infinity();
    for (size_t j = 0; j < keys; ++j) {
      p[j] = scale * Dot(packed_, q, At(b, static_cast<int64_t>(j), 1, h));
      max = std::max(max, p[j]);
    }
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x - max);
    wanted_.lse[static_cast<size_t>((b * t_.heads + h) * t_.sequence + i)] = max + std::log(sum);
    double delta = 0;
    for (size_t j = 0; j < keys; ++j) {
      p[j] /= sum;
      const auto key = static_cast<int64_t>(j);
      if (!mask_.empty()) factor[j] = mask_[MaskAt(t_, b, h, i, key)] / keep;
      dp[j] = factor[j] * Dot(dout_, out, At(b, key, 2, h));
      delta += p[j] * dp[j];
    }
    for (size_t j = 0; j < keys; ++j) {
      const size_t k = At(b, static_cast<int64_t>(j), 1, h);
      const size_t v = At(b, static_cast<int64_t>(j), 2, h);
      const double ds = scale * p[j] * (dp[j] - delta);
      for (size_t d = 0; d < width; ++d) {
        wanted_.o[out + d] += p[j] * factor[j] * Value(t_.dtype, packed_[v + d]);
        wanted_.gradients[v + d] += p[j] * factor[j] * Value(t_.dtype, dout_[out + d]);
        wanted_.gradients[q + d] += ds * Value(t_.dtype, packed_[k + d]);
        wanted_.gradients[k + d] += ds * Value(t_.dtype, packed_[q + d]);
      }
    }
  }

  const AttentionCase& t_;
  const Halves& packed_;
  const Halves& dout_;
  const Mask& mask_;
  Wanted wanted_;
};

// ‖got - want‖ / ‖want‖ over the columns [first, last) of rows.
double Difference(const AttentionCase& t, const Halves& got, const Doubles& want, int64_t columns,
                  int64_t first, int64_t last) {
  double difference = 0;
  double norm = 0;
  for (int64_t row = 0; row < t.rows(); ++row) {
    if (!t.Compares(row / t.sequence)) continue;
    for (int64_t c = first; c < last; ++c) {
      const auto at = static_cast<size_t>(row * columns + c);
      const double value = Value(t.dtype, got[at]);
      if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
      difference += (value - want[at]) * (value - want[at]);
      norm += want[at] * want[at];
    }
  }
  return std::sqrt(difference / std::max(norm, 1e-60));
}

// Of two masks, the share of visible pairs whose factors differ.
double Changed(const AttentionCase& t, const Mask& a, const Mask& b) {
  int64_t changed = 0;
  int64_t count = 0;
  for (int64_t s = 0; s < t.batch; ++s) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t i = 0; i < t.sequence; ++i) {
        for (int64_t j = 0; j < t.Visible(s, i); ++j) {
          const size_t at = MaskAt(t, s, h, i, j);
          changed += a[at] != b[at] ? 1 : 0;
          ++count;
        }
      }
    }
  }
  return static_cast<double>(changed) / static_cast<double>(count);
}

// Of two heads or sequences, the share of pairs whose factors differ.
double ChangedBetween(const AttentionCase& t, const Mask& mask, int64_t b, int64_t h) {
  int64_t changed = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < t.sequence; ++i) {
    for (int64_t j = 0; j < std::min(t.Visible(0, i), t.Visible(b, i)); ++j) {
      changed += mask[MaskAt(t, 0, 0, i, j)] != mask[MaskAt(t, b, h, i, j)] ? 1 : 0;
      ++count;
    }
  }
  return static_cast<double>(changed) / static_cast<double>(count);
}

void CheckMask(const AttentionCase& t, DeviceAttention& device, const Halves& packed,
               const StepScalars& scalars, const Mask& mask) {
  const auto keep = 1 - static_cast<double>(t.dropout);
  const Mask nothing(mask.size(), 0);
  const double kept = Changed(t, mask, nothing);
  int64_t pairs = 0;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t i = 0; i < t.sequence; ++i) pairs += t.heads * t.Visible(b, i);
  }
  const double deviation = std::sqrt(keep * (1 - keep) / static_cast<double>(pairs));
  std::printf("mask   %-22s kept %.4f of %ld pairs\n", t.name.c_str(), kept,
              static_cast<long>(pairs));
  Check(std::fabs(kept - keep) <= 5 * deviation,
        Format("{}: the mask keeps {:.4f}, not {:.4f}", t.name, kept, keep));
  const double independent = 2 * keep * (1 - keep);
  const auto differs = [&](const Mask& other, double share, const char* what) {
    const double changed = Changed(t, mask, other);
    Check(std::fabs(changed - share) <= 0.1 * independent,
          Format("{}: with another {} {:.4f} of the mask change, not {:.4f}", t.name, what, changed,
                 share));
  };
  differs(ReadMask(t, device, packed, scalars), 0, "run");
  StepScalars other = scalars;
  ++other.step;
  differs(ReadMask(t, device, packed, other), independent, "step");
  other = scalars;
  ++other.micro_step;
  differs(ReadMask(t, device, packed, other), independent, "micro-step");
  other = scalars;
  ++other.seed;
  differs(ReadMask(t, device, packed, other), independent, "seed");
  for (const auto& [sequence, head] : {std::pair<int64_t, int64_t>{t.batch / 2, 0}, {0, 1}}) {
    const double changed = ChangedBetween(t, mask, sequence, head);
    Check(std::fabs(changed - independent) <= 0.1 * independent,
          Format("{}: masks of sequence {}, head {} and of the first differ in {:.4f}, not {:.4f}",
                 t.name, sequence, head, changed, independent));
  }
}

void CheckCase(const AttentionCase& t) {
  DeviceAttention device(t);
  CheckServed(t.name, device.cuda());
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  Halves packed(static_cast<size_t>(t.rows() * t.packed()));
  Halves dout(static_cast<size_t>(t.rows() * t.out()));
  for (uint16_t& x : packed) x = Bits(t.dtype, normal(random));
  for (uint16_t& x : dout) x = Bits(t.dtype, normal(random));
  StepScalars scalars;
  scalars.seed = 11;
  scalars.step = 3;
  Mask mask;
  if (t.dropout > 0) {
    mask = ReadMask(t, device, packed, scalars);
    CheckMask(t, device, packed, scalars, mask);
  }
  device.SetPacked(packed);
  device.SetGradient(dout);
  device.Poison();
  device.Run(0, 2, scalars);
  const Halves o = device.Output();
  const Halves gradients = device.Gradients();
  const std::vector<float> sums = device.Sums();
  const Reference reference(t, packed, dout, mask);
  const Wanted& want = reference.wanted();
  double sum_error = 0;
  const auto each = static_cast<size_t>(t.heads * t.sequence);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!t.Compares(static_cast<int64_t>(i / each))) continue;
    const double error = std::fabs(static_cast<double>(sums[i]) - want.lse[i]);
    sum_error = error <= sum_error ? sum_error : error;  // a NaN is kept
  }
  const int64_t q = t.heads * t.width;
  const int64_t kv = t.kv_heads * t.width;
  const double errors[] = {
      Difference(t, o, want.o, t.out(), 0, t.out()),
      Difference(t, gradients, want.gradients, t.packed(), 0, q),
      Difference(t, gradients, want.gradients, t.packed(), q, q + kv),
      Difference(t, gradients, want.gradients, t.packed(), q + kv, q + 2 * kv)};
  std::printf("cudnn  %-22s o %.1e dq %.1e dk %.1e dv %.1e, log-sums off by %.1e\n", t.name.c_str(),
              errors[0], errors[1], errors[2], errors[3], sum_error);
  // A few roundings to 16 bits of random sign: half a unit in the last place is 2^-9 or 2^-12.
  const double bound = t.dtype == DType::kBFloat16 ? 4 * 0x1p-9 : 4 * 0x1p-12;
  const char* names[] = {"o", "dq", "dk", "dv"};
  for (size_t i = 0; i < 4; ++i) {
    Check(errors[i] <= bound, Format("{}: {} is off by {:.2e}", t.name, names[i], errors[i]));
  }
  Check(sum_error <= 1e-3, Format("{}: log-sums are off by {:.2e}", t.name, sum_error));
  for (int turn = 0; turn < 3; ++turn) {
    device.Poison();
    device.Run(0, 2, scalars);
    Check(device.Output() == o, t.name + ": o of two runs");
    Check(device.Gradients() == gradients, t.name + ": gradients of two runs");
  }
  device.Run(0, 1, scalars);
  Check(device.Output() == o, t.name + ": o of a recomputed forward pass");
}

}  // namespace

bool HasCudnn() {
  static const bool has_cudnn = [] {
    auto device = CudaDevice::Open(0);
    HEADROOM_CHECK(device.ok(), device.error().message);
    const Graph nothing;
    const CudaExecutor cuda(**device, nothing, graph::PlanMemory(nothing), {});
    const std::string text = cuda.DescribeAttention();
    std::printf("cudnn  %s\n", text.c_str());
    return text.find("cuDNN") != std::string::npos && text.find('(') == std::string::npos;
  }();
  return has_cudnn;
}

void CheckServed(const std::string& name, const CudaExecutor& cuda) {
  const std::string text = cuda.DescribeAttention();
  std::printf("served %s: %s\n", name.c_str(), text.c_str());
  Check(text.find('\n') == std::string::npos, name + ": not all attention by cuDNN");
}

void CheckCudnnAttention() {
  for (const AttentionCase& test : Cases()) CheckCase(test);
}

}  // namespace headroom::engine
