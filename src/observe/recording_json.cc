// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.h"
#include "observe/recording.h"
#include "observe/string_table.h"

namespace headroom::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<OwnMatch, std::string_view> kMatches[] = {
    {OwnMatch::kNone, "none"},
    {OwnMatch::kById, "pid"},
    {OwnMatch::kByAppearance, "appearance"},
    {OwnMatch::kByDifference, "difference"}};
constexpr size_t kMostDevices = 4096;

Json MaybeBytes(const std::optional<Bytes>& size) {
  return size ? Json(size->count()) : Json(nullptr);
}

double Milliseconds(double seconds) { return std::round(seconds * 1000) / 1000; }

Json SampleJson(const DeviceSample& sample) {
  return {{"seconds", Milliseconds(sample.seconds)},
          {"used", sample.used.count()},
          {"own", sample.own.count()}};
}

Json LadderJson(const DeviceRecording& device) {
  if (device.samples.empty()) return nullptr;
  const DeviceLadder ladder = LadderOf(device);
  return {{"idle", ladder.idle.count()},
          {"context", ladder.context ? SampleJson(*ladder.context) : Json(nullptr)},
          {"peak", SampleJson(ladder.peak)},
          {"end", SampleJson(ladder.end)},
          {"after", ladder.after.count()}};
}

Json DeviceJson(const DeviceRecording& device) {
  Json seconds = Json::array();
  Json used = Json::array();
  Json own = Json::array();
  for (const DeviceSample& sample : device.samples) {
    seconds.push_back(Milliseconds(sample.seconds));
    used.push_back(sample.used.count());
    own.push_back(sample.own.count());
  }
  Json processes = Json::array();
  for (const RecordedProcess& process : device.processes) {
    processes.push_back({{"pid", process.pid},
                         {"name", process.name},
                         {"own", process.own},
                         {"peak", MaybeBytes(process.peak)},
                         {"first", Milliseconds(process.first_seconds)},
                         {"last", Milliseconds(process.last_seconds)}});
  }
  const auto* match =
      std::ranges::find(kMatches, device.match, &std::pair<OwnMatch, std::string_view>::first);
  return {{"gpu", device.gpu},
          {"instance", device.instance ? Json(*device.instance) : Json(nullptr)},
          {"name", device.name},
          {"uuid", device.uuid},
          {"total", device.total.count()},
          {"reserved", MaybeBytes(device.reserved)},
          {"idle", device.idle.count()},
          {"after", device.after.count()},
          {"matched_by", match->second},
          {"ladder", LadderJson(device)},
          {"processes", processes},
          {"processes_missing", device.processes_missing},
          {"samples", {{"seconds", seconds}, {"used", used}, {"own", own}}}};
}

// ---- Reading ----

// Reads fields of one file; the first thing that is wrong is kept, and the rest reads as zero.
class Reader {
 public:
  explicit Reader(std::string_view origin) : origin_(origin) {}

  bool ok() const { return problem_.empty(); }
  Error error() const { return Error::BadInput(Format("{}: {}", origin_, problem_)); }
  void Refuse(std::string what) {
    if (ok()) problem_ = std::move(what);
  }

  const Json& At(const Json& object, const char* key) {
    static const Json kNothing;
    if (object.is_object()) {
      if (const auto found = object.find(key); found != object.end()) return *found;
    }
    Refuse(Format("a recording has \"{}\" here, and this file has not", key));
    return kNothing;
  }
  double Number(const Json& json, const char* what) {
    if (json.is_number()) {
      const double value = json.get<double>();
      if (std::isfinite(value) && std::abs(value) < 1e15) return value;
    }
    Refuse(Format("\"{}\" holds something that is no number", what));
    return 0;
  }
  Bytes Size(const Json& json, const char* what) {
    constexpr int64_t kMost = int64_t{1} << 62;
    if (json.is_number_integer()) {
      // Beyond int64 the text holds an unsigned number, which wraps to a negative one here.
      const auto count = json.get<int64_t>();
      if (count >= 0 && count <= kMost) return Bytes(count);
    }
    Refuse(Format("\"{}\" holds something that is no size in bytes", what));
    return {};
  }
  std::optional<Bytes> MaybeSize(const Json& json, const char* what) {
    if (json.is_null()) return std::nullopt;
    return Size(json, what);
  }
  int Int(const Json& json, const char* what) {
    const double value = Number(json, what);
    if (std::abs(value) <= 1e9) return static_cast<int>(value);
    Refuse(Format("\"{}\" is out of range", what));
    return 0;
  }
  std::string Text(const Json& json, const char* what) {
    if (json.is_string()) return MakePrintable(json.get<std::string>());
    Refuse(Format("\"{}\" is no text", what));
    return "";
  }
  const Json& Array(const Json& json, const char* what) {
    static const Json kEmpty = Json::array();
    if (json.is_array()) return json;
    Refuse(Format("\"{}\" is no list", what));
    return kEmpty;
  }

 private:
  std::string origin_;
  std::string problem_;
};

void ReadSamples(Reader& reader, const Json& columns, DeviceRecording& device) {
  const Json& seconds = reader.Array(reader.At(columns, "seconds"), "seconds");
  const Json& used = reader.Array(reader.At(columns, "used"), "used");
  const Json& own = reader.Array(reader.At(columns, "own"), "own");
  if (seconds.size() != used.size() || seconds.size() != own.size()) {
    reader.Refuse(Format("columns of unequal length in \"samples\" ({}, {}, {})", seconds.size(),
                         used.size(), own.size()));
    return;
  }
  for (size_t i = 0; i < seconds.size() && reader.ok(); ++i) {
    const DeviceSample sample = {reader.Number(seconds[i], "seconds"), reader.Size(used[i], "used"),
                                 reader.Size(own[i], "own")};
    if (!device.samples.empty() && sample.seconds < device.samples.back().seconds) {
      reader.Refuse(Format("samples go back in time at position {}", i));
    }
    device.samples.push_back(sample);
  }
}

RecordedProcess ReadProcess(Reader& reader, const Json& json) {
  RecordedProcess process;
  process.pid = static_cast<uint32_t>(std::max(0, reader.Int(reader.At(json, "pid"), "pid")));
  process.name = reader.Text(reader.At(json, "name"), "name");
  const Json& own = reader.At(json, "own");
  if (!own.is_boolean()) reader.Refuse("\"own\" of a process is neither true nor false");
  process.own = own.is_boolean() && own.get<bool>();
  process.peak = reader.MaybeSize(reader.At(json, "peak"), "peak");
  process.first_seconds = reader.Number(reader.At(json, "first"), "first");
  process.last_seconds = reader.Number(reader.At(json, "last"), "last");
  return process;
}

DeviceRecording ReadDevice(Reader& reader, const Json& json) {
  DeviceRecording device;
  device.gpu = reader.Int(reader.At(json, "gpu"), "gpu");
  const Json& instance = reader.At(json, "instance");
  if (!instance.is_null()) device.instance = reader.Int(instance, "instance");
  device.name = reader.Text(reader.At(json, "name"), "name");
  device.uuid = reader.Text(reader.At(json, "uuid"), "uuid");
  device.total = reader.Size(reader.At(json, "total"), "total");
  device.reserved = reader.MaybeSize(reader.At(json, "reserved"), "reserved");
  device.idle = reader.Size(reader.At(json, "idle"), "idle");
  device.after = reader.Size(reader.At(json, "after"), "after");
  const std::string match = reader.Text(reader.At(json, "matched_by"), "matched_by");
  const auto* found =
      std::ranges::find(kMatches, match, &std::pair<OwnMatch, std::string_view>::second);
  if (found == std::end(kMatches)) {
    reader.Refuse(Format("\"matched_by\" is \"{}\": not known", match));
  } else {
    device.match = found->first;
  }
  device.processes_missing = reader.Text(reader.At(json, "processes_missing"), "processes_missing");
  for (const Json& process : reader.Array(reader.At(json, "processes"), "processes")) {
    if (!reader.ok()) break;
    device.processes.push_back(ReadProcess(reader, process));
  }
  ReadSamples(reader, reader.At(json, "samples"), device);
  return device;
}

Recording ReadRecording(Reader& reader, const Json& json) {
  Recording recording;
  for (const Json& word : reader.Array(reader.At(json, "command"), "command")) {
    recording.command.push_back(reader.Text(word, "command"));
  }
  const Json& code = reader.At(json, "exit_code");
  if (!code.is_null()) recording.exit_code = reader.Int(code, "exit_code");
  recording.driver = reader.Text(reader.At(json, "driver"), "driver");
  recording.started = reader.Number(reader.At(json, "started"), "started");
  recording.seconds = reader.Number(reader.At(json, "seconds"), "seconds");
  const Json& devices = reader.Array(reader.At(json, "devices"), "devices");
  if (devices.size() > kMostDevices) reader.Refuse("more devices than any machine has");
  for (const Json& device : devices) {
    if (!reader.ok()) break;
    recording.devices.push_back(ReadDevice(reader, device));
  }
  return recording;
}

}  // namespace

std::string ToJson(const Recording& recording) {
  Json devices = Json::array();
  for (const DeviceRecording& device : recording.devices) devices.push_back(DeviceJson(device));
  const Json json = {
      {"format", "headroom.watch"},
      {"schema", kRecordingSchema},
      {"command", recording.command},
      {"exit_code", recording.exit_code ? Json(*recording.exit_code) : Json(nullptr)},
      {"driver", recording.driver},
      {"started", Milliseconds(recording.started)},
      {"seconds", Milliseconds(recording.seconds)},
      {"devices", devices}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Result<Recording> RecordingFromJson(std::string_view text, std::string_view origin) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Reader reader(origin);
  if (json.is_discarded()) {
    return Error::BadInput(Format("{}: not JSON: headroom watch --json writes it", origin));
  }
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end() || *format != "headroom.watch") {
    return Error::BadInput(
        Format("{}: not a recording of headroom watch (its \"format\" is not \"headroom.watch\")",
               origin));
  }
  if (const Json& schema = reader.At(json, "schema"); schema != kRecordingSchema) {
    return Error::BadInput(Format("{}: schema {}: this headroom reads schema {}", origin,
                                  schema.dump(), kRecordingSchema));
  }
  Recording recording = ReadRecording(reader, json);
  if (!reader.ok()) return reader.error();
  return recording;
}

}  // namespace headroom::observe
