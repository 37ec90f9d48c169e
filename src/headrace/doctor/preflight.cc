#include "headrace/doctor/preflight.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "headrace/base/text.h"

namespace headrace::doctor {
namespace {

using FoundAt = std::vector<Finding>*;

Finding Warn(std::string check, std::string symptom, std::vector<Evidence> evidence) {
  // A count or a setting is as it is; what it will cost depends on the job.
  constexpr double kConfidence = 0.8;
  Finding finding;
  finding.check = std::move(check);
  finding.severity = Severity::kWarning;
  finding.symptom = std::move(symptom);
  finding.evidence = std::move(evidence);
  finding.confidence = kConfidence;
  return finding;
}

void CheckCores(const Preflight& p, FoundAt findings) {
  const auto& machine = p.machine;
  if (machine.quota_cpus && machine.affinity_cpus && *machine.quota_cpus < *machine.affinity_cpus &&
      p.plan.threads == 0) {
    Finding finding =
        Warn("cpu-quota", "the control group allows fewer processors than the process sees",
             {{"quota", *machine.quota_cpus, "processors", machine.affinity_cpus}});
    finding.cause =
        "the loader takes a thread for each processor that it sees; above the quota the "
        "kernel stops all of them for the rest of each period";
    finding.cure = "give the loader as many threads as the quota is worth, or raise the quota";
    finding.command = fmt::format("threads={:.0f}", std::max(1.0, std::floor(*machine.quota_cpus)));
    finding.disproof = "no throttled time in /sys/fs/cgroup/cpu.stat while the job runs";
    findings->push_back(std::move(finding));
  }
  // One processor for the training loop's own Python and one to decode is the least.
  constexpr double kEach = 2;
  const double each = machine.facts.cpus / std::max(1u, p.plan.node_ranks);
  if (machine.facts.cpus > 0 && each < kEach) {
    Finding finding = Warn("few-cores", "a rank has less than two processors",
                           {{"processors of a rank", each, "", kEach}});
    finding.cause = "the training loop's Python and the loader share one processor";
    finding.cure = "fewer ranks on the node, or a node with more processors";
    finding.disproof = "an input stall below 5 % in a short run";
    findings->push_back(std::move(finding));
  }
}

void CheckMemory(const Preflight& p, FoundAt findings) {
  // Half: the rest is for the trainer, the page cache and batches in use.
  constexpr double kPart = 0.5;
  const uint64_t memory = p.machine.facts.memory_bytes;
  const double wanted = static_cast<double>(p.plan.memory_bytes) * std::max(1u, p.plan.node_ranks);
  if (memory > 0 && wanted > kPart * static_cast<double>(memory)) {
    Finding finding = Warn("memory", "the loaders may take more than half of the memory",
                           {{"of the memory", wanted / static_cast<double>(memory), "%", kPart}});
    finding.severity = Severity::kProblem;
    finding.cause = "memory_bytes is for each rank";
    finding.cure = "lower it";
    finding.command = fmt::format("memory_bytes={}", memory / 8 / std::max(1u, p.plan.node_ranks));
    finding.disproof = "a run whose resident memory stays below the limit";
    findings->push_back(std::move(finding));
  }
  // What containers get by default is 64 MiB.
  constexpr uint64_t kShm = 256 << 20;
  if (p.machine.shm_bytes && *p.machine.shm_bytes < kShm) {
    Finding finding = Warn("shm", "/dev/shm has little room",
                           {{"free in /dev/shm", static_cast<double>(*p.machine.shm_bytes), "B",
                             static_cast<double>(kShm)}});
    finding.cause =
        "NCCL and PyTorch's DataLoader workers hand data over there and end with a bus "
        "error when it is full; Headrace's own loader does not need it";
    finding.cure = "give the container more";
    finding.command = "docker run --shm-size=8g";
    finding.disproof = "neither is used";
    findings->push_back(std::move(finding));
  }
}

void CheckKernel(const Preflight& p, FoundAt findings) {
  auto warn = [&](const char* what, std::optional<uint64_t> value, uint64_t least, const char* unit,
                  const char* symptom, const char* cause, const char* command) {
    if (!value || *value >= least) return;
    Finding finding = Warn(what, symptom,
                           {{what, static_cast<double>(*value), unit, static_cast<double>(least)}});
    finding.cause = cause;
    finding.cure = "raise it";
    finding.command = command;
    finding.disproof = "a run that meets no such limit";
    findings->push_back(std::move(finding));
  };
  warn("descriptors", p.machine.open_files, 1024, "", "few files may be open at once",
       "the loader keeps a quarter of the limit for shards and opens the others again and again",
       "ulimit -n 65536");
  const uint64_t shards = p.dataset ? p.dataset->facts.num_shards : 0;
  warn("max_map_count", p.machine.map_count, 2 * shards + 4096, "",
       "a process may map fewer files than the data set has shards",
       "the index of each shard is mapped", "sysctl -w vm.max_map_count=1048576");
  // 100 ms of a 1 Gb/s connection are 12 MB; with less a far bucket is read slowly.
  if (p.dataset && p.dataset->by_url)
    warn("tcp_rmem", p.machine.receive_buffer_bytes, 4 << 20, "B", "connections may buffer little",
         "a far server waits for each buffer to be confirmed",
         "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'");
  if (p.machine.io_uring_disabled.value_or(0) > 0) {
    Finding finding = Warn(
        "io_uring", "io_uring may not be used here",
        {{"kernel.io_uring_disabled", static_cast<double>(*p.machine.io_uring_disabled), "", 1}});
    finding.cause = "the kernel's setting; the cache reads with threads instead, at more CPU cost";
    finding.cure = "allow it, if the site's rules do";
    finding.command = "sysctl -w kernel.io_uring_disabled=0";
    finding.disproof = "no cache directory is read";
    findings->push_back(std::move(finding));
  }
}

void CheckClockAndFrequency(const Preflight& p, FoundAt findings) {
  const std::string& source = p.machine.facts.clock_source;
  if (source == "hpet" || source == "acpi_pm" || source == "jiffies") {
    Finding finding = Warn("clock", "reading the clock is slow: " + source, {});
    finding.cause = "the kernel reads it over a bus, at about a microsecond each";
    finding.cure = "use the processor's own counter where it is stable";
    finding.command = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource";
    finding.disproof = "the kernel found the counter unstable, and says so in dmesg";
    findings->push_back(std::move(finding));
  }
  if (p.machine.governor == "powersave" && p.machine.facts.max_mhz > 0 &&
      p.machine.facts.mhz < 0.5 * p.machine.facts.max_mhz) {
    Finding finding =
        Warn("frequency", "the processors may be kept at a low frequency (governor powersave)",
             {{"frequency now", p.machine.facts.mhz, "MHz", 0.5 * p.machine.facts.max_mhz}});
    finding.confidence = 0.4;  // some drivers of that name raise it at need
    finding.cause = "with some drivers this governor never raises the frequency";
    finding.cure = "choose performance for training nodes";
    finding.command = "cpupower frequency-set -g performance";
    finding.disproof = "the frequency rises under load: grep MHz /proc/cpuinfo";
    findings->push_back(std::move(finding));
  }
}

bool OfShards(const DatasetFacts& data) {
  return data.kind == "tar" || data.kind == "tfrecord" || data.kind == "mds";
}

void CheckShards(const Preflight& p, FoundAt findings) {
  const DatasetFacts& data = p.dataset->facts;
  const uint32_t ranks = std::max(1u, p.plan.world_size);
  if (OfShards(data) && data.num_shards > 0 && data.num_shards < ranks) {
    Finding finding =
        Warn("few-shards", fmt::format("{} ranks share {} shards", ranks, data.num_shards),
             {{"shards for each rank",
               static_cast<double>(data.num_shards) / static_cast<double>(ranks), "", 1}});
    finding.cause = "a shard is then read by several ranks, and each node's cache holds it";
    finding.cure = "pack into at least four shards for each rank";
    finding.command = fmt::format("headrace pack {} PACKED --shard-size {}MiB", data.name,
                                  std::max<uint64_t>(data.bytes / (4 * uint64_t{ranks}) >> 20, 1));
    finding.disproof = "bytes from the origin in an epoch that are no more than the data set's";
    findings->push_back(std::move(finding));
  }
  // One request for each shard's head and tail should be a small part of reading it.
  constexpr uint64_t kSmallShard = 4 << 20;
  const uint64_t mean = data.num_shards > 0 ? data.bytes / data.num_shards : 0;
  if (OfShards(data) && data.num_shards > uint64_t{4} * ranks && mean > 0 && mean < kSmallShard) {
    Finding finding =
        Warn("small-shards", "the shards are small",
             {{"mean shard", static_cast<double>(mean), "B", static_cast<double>(kSmallShard)}});
    finding.cause = "each is opened, looked up and mapped by itself";
    finding.cure = "pack them together";
    finding.command = fmt::format("headrace pack {} PACKED --shard-size 256MiB", data.name);
    finding.disproof = "a short run with an input stall below 5 %";
    findings->push_back(std::move(finding));
  }
}

void CheckFiles(const Preflight& p, FoundAt findings) {
  const DatasetFacts& data = p.dataset->facts;
  const uint64_t mean = data.num_samples > 0 ? data.bytes / data.num_samples : 0;
  // 10,000 opens of 2 ms are 20 s; of fewer nobody notices.
  constexpr uint64_t kMany = 10'000, kSmall = 1 << 20;
  if ((data.kind == "folder" || data.kind == "list") && data.num_samples >= kMany &&
      mean < kSmall) {
    Finding finding =
        Warn("small-files", "many small files",
             {{"files", static_cast<double>(data.num_samples), "", static_cast<double>(kMany)},
              {"mean file", static_cast<double>(mean), "B", static_cast<double>(kSmall)}});
    finding.cause =
        "each costs an open and a look-up: about 2 ms on a shared file system, a "
        "request in a bucket";
    finding.cure = "pack them into shards";
    finding.command = fmt::format("headrace pack {} PACKED", data.name);
    finding.disproof = "the files lie on a local disk with all their metadata in memory";
    findings->push_back(std::move(finding));
  }
  if (!p.dataset->has_index) {
    Finding finding = Warn("no-index", "the data set has no stored index", {});
    finding.cause = "each process reads all headers again at its start";
    finding.cure = "make one; the data stays as it is";
    finding.command = fmt::format("headrace index {}", data.name);
    finding.disproof = "it opens within a second";
    findings->push_back(std::move(finding));
  }
  // As the check "sliver" of a run.
  constexpr double kSliver = 0.1;
  constexpr uint64_t kPresent = 20;
  if (data.present_files >= kPresent && data.num_shards > 0 &&
      static_cast<double>(data.num_shards) < kSliver * static_cast<double>(data.present_files)) {
    Finding finding = Warn(
        "sliver", "the data set has a small part of the files of its kind that lie there",
        {{"part", static_cast<double>(data.num_shards) / static_cast<double>(data.present_files),
          "%", kSliver}});
    finding.cause = "a pattern that matched few names, or a list or manifest of an earlier state";
    finding.cure = "look at what was matched";
    finding.command = fmt::format("headrace ls {}", data.name);
    finding.disproof = "the part was chosen on purpose";
    findings->push_back(std::move(finding));
  }
}

void CheckCache(const Preflight& p, FoundAt findings) {
  if (!p.dataset->by_url) return;
  const DatasetFacts& data = p.dataset->facts;
  if (p.plan.cache_directory.empty()) {
    Finding finding = Warn("no-cache", "the data comes over the network in every epoch", {});
    finding.cause = "no cache is set";
    finding.cure = "keep what was read on a local NVMe disk";
    finding.command = "export HEADRACE_CACHE_DIR=/nvme/cache HEADRACE_CACHE_BYTES=1TiB";
    finding.disproof = "one epoch only, or a network that is quicker than the job needs";
    findings->push_back(std::move(finding));
    return;
  }
  // Each node keeps what its own ranks read.
  const double nodes =
      std::max(1.0, static_cast<double>(p.plan.world_size) / std::max(1u, p.plan.node_ranks));
  const double wanted = static_cast<double>(data.bytes) / nodes;
  double room = static_cast<double>(p.plan.cache_limit_bytes);
  if (p.plan.cache_free_bytes)
    room = room == 0 ? static_cast<double>(*p.plan.cache_free_bytes) / 2
                     : std::min(room, static_cast<double>(*p.plan.cache_free_bytes));
  if (room == 0 || room >= wanted) return;
  Finding finding = Warn("small-cache", "the cache has no room for what this node reads",
                         {{"room beside what is read", room / wanted, "%", 1}});
  finding.cause = "the rest comes from the origin in every epoch";
  finding.cure = "raise the limit, name several disks, or use more nodes";
  finding.command = fmt::format("export HEADRACE_CACHE_BYTES={:.0f}", std::ceil(wanted * 1.05));
  finding.disproof = "an input stall below 5 % in the second epoch";
  findings->push_back(std::move(finding));
}

Json OptionalJson(const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(); }

// Files in the folder of a shard that are called like it; 0 where it may not be listed.
uint64_t CountBeside(FileSystem* fs, const std::string& shard) {
  const std::string_view name = BaseName(shard);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return 0;
  auto entries = fs->List(std::string(DirectoryName(shard)));
  if (!entries.ok()) return 0;
  return static_cast<uint64_t>(std::count_if(
      entries->begin(), entries->end(),
      [&](const DirectoryEntry& entry) { return entry.name.ends_with(name.substr(dot)); }));
}

// A tar that was named by itself. Its samples are not counted: that would read all its headers.
std::optional<DatasetFacts> OneShard(FileSystem* fs, const std::string& path,
                                     const std::string& name) {
  auto info = fs->Stat(path);
  if (!info.ok() || info->kind == FileKind::kDirectory) return std::nullopt;
  DatasetFacts facts;
  facts.name = name;
  facts.kind = "tar";
  facts.num_shards = 1;
  facts.bytes = info->size_bytes;
  facts.present_files = CountBeside(fs, path);
  return facts;
}

}  // namespace

DatasetState LookAtDataset(const dataset::Dataset& data, const std::string& path) {
  DatasetState state;
  state.facts.name = path;
  state.facts.kind = data.kind();
  state.facts.num_shards = data.shards().size();
  state.facts.num_samples = data.num_samples();
  state.by_url = IsUrl(path);
  for (const dataset::ShardInfo& shard : data.shards()) {
    state.facts.bytes += shard.size_bytes;
    state.largest_shard_bytes = std::max(state.largest_shard_bytes, shard.size_bytes);
  }
  for (const dataset::ManifestShard& shard : data.manifest().shards)
    state.has_index = state.has_index && !shard.index.empty();
  if (data.shards().empty() || !OfShards(state.facts)) return state;
  auto file = data.FileOfShard(0);
  if (file.ok()) state.facts.present_files = CountBeside(file->fs, file->path);
  return state;
}

std::optional<DatasetFacts> LookUpDataset(FileSystem* fs, const std::string& path,
                                          const std::string& name) {
  bool has_manifest = path.ends_with(".json");
  for (const std::string& folder : {path, JoinPath(path, dataset::kInPlaceFolder)})
    has_manifest = has_manifest || fs->Exists(JoinPath(folder, dataset::kManifestName));
  if (!has_manifest) return path.ends_with(".tar") ? OneShard(fs, path, name) : std::nullopt;
  auto data = dataset::Dataset::Open(fs, path, {});
  if (!data.ok()) return std::nullopt;
  return LookAtDataset(**data, name).facts;
}

std::vector<Finding> CheckPreflight(const Preflight& preflight) {
  std::vector<Finding> findings;
  CheckCores(preflight, &findings);
  CheckMemory(preflight, &findings);
  if (preflight.dataset) {
    CheckShards(preflight, &findings);
    CheckFiles(preflight, &findings);
    CheckCache(preflight, &findings);
  }
  CheckKernel(preflight, &findings);
  CheckClockAndFrequency(preflight, &findings);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return findings;
}

Json PreflightJson(const Preflight& p) {
  const MachineFacts& facts = p.machine.facts;
  Json machine = Json::MakeObject()
                     .Set("cpus", facts.cpus)
                     .Set("cpu_quota", p.machine.quota_cpus ? Json(*p.machine.quota_cpus) : Json())
                     .Set("memory_bytes", facts.memory_bytes)
                     .Set("shm_free_bytes", OptionalJson(p.machine.shm_bytes))
                     .Set("open_files", OptionalJson(p.machine.open_files))
                     .Set("max_map_count", OptionalJson(p.machine.map_count))
                     .Set("network_bytes_per_second", facts.network_bytes_per_s)
                     .Set("clock_source", facts.clock_source);
  if (p.disk)
    machine.Set("disk_bytes_per_second", p.disk->bytes_per_s)
        .Set("disk_small_read_seconds", p.disk->small_read_s);
  Json json = Json::MakeObject().Set("machine", std::move(machine));
  if (p.dataset) {
    const DatasetFacts& data = p.dataset->facts;
    json.Set("dataset", Json::MakeObject()
                            .Set("name", data.name)
                            .Set("kind", data.kind)
                            .Set("samples", data.num_samples)
                            .Set("shards", data.num_shards)
                            .Set("bytes", data.bytes)
                            .Set("largest_shard_bytes", p.dataset->largest_shard_bytes)
                            .Set("has_index", p.dataset->has_index));
  }
  return json;
}

std::string PreflightText(const Preflight& p) {
  const MachineFacts& facts = p.machine.facts;
  std::string text = fmt::format("processors  {:.3g}", facts.cpus);
  if (p.machine.quota_cpus)
    text += fmt::format(" (quota of the control group: {:.3g})", *p.machine.quota_cpus);
  text += fmt::format("\nmemory      {}", FormatSize(facts.memory_bytes));
  if (p.machine.shm_bytes) text += fmt::format(", /dev/shm {}", FormatSize(*p.machine.shm_bytes));
  if (p.machine.open_files)
    text += fmt::format("\nopen files  {}", FormatCount(*p.machine.open_files));
  if (facts.network_bytes_per_s > 0)
    text += fmt::format("\nnetwork     {}/s by its link",
                        FormatSize(static_cast<uint64_t>(facts.network_bytes_per_s)));
  if (p.disk)
    text += fmt::format("\ndisk        {}/s in large reads, {:.0f} us for a small one",
                        FormatSize(static_cast<uint64_t>(p.disk->bytes_per_s)),
                        p.disk->small_read_s * 1e6);
  if (!facts.clock_source.empty())
    text += fmt::format("\nclock       {}", EscapeText(facts.clock_source));
  if (p.dataset) {
    const DatasetFacts& data = p.dataset->facts;
    text += fmt::format("\ndata set    {}: {} samples in {} {}, {}", data.kind,
                        FormatCount(data.num_samples), FormatCount(data.num_shards),
                        OfShards(data) ? "shards" : "parts", FormatSize(data.bytes));
  }
  return text + "\n";
}

}  // namespace headrace::doctor
