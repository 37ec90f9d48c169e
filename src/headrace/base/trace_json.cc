#include "headrace/base/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "headrace/base/stage_timer.h"

namespace headrace {

namespace {

constexpr uint64_t kVersion = 1;
constexpr std::array<std::string_view, kNumTraceKinds> kKinds = {
    "busy", "wait", "request", "batch", "python", "save_stall", "save", "save_level"};
constexpr std::array<std::string_view, kNumTracePools> kPools = {"thread", "loader", "consumer"};
constexpr std::array<std::string_view, 4> kLevels = {"memory", "local", "peer", "remote"};
constexpr size_t kEventMembers = 10;
// Of those events that are no thread's.
constexpr uint32_t kNoLane = 0;

template <size_t N>
std::string_view NameIn(const std::array<std::string_view, N>& names, size_t i) {
  return i < N ? names[i] : "unknown";
}

std::string_view StageText(uint8_t stage) {
  return stage < kNumStages ? StageName(static_cast<Stage>(stage)) : "unknown";
}

double Micros(uint64_t ns) { return static_cast<double>(ns) / 1000; }

std::string BatchText(uint64_t id) { return fmt::format("{}/{}", id >> 32, id & 0xffff'ffff); }

// The parts of an interval, as far as its borders are known.
std::array<std::string_view, 3> PartsOf(TraceKind kind) {
  if (kind == TraceKind::kBatch) return {"plan", "load", "ready"};
  if (kind == TraceKind::kSave) return {"queue", "write", "publish"};
  return {};
}

struct Title {
  std::string_view category;
  std::string name, arguments;
};

Title TitleOf(const TraceEvent& event) {
  const std::string bytes = fmt::format("\"bytes\":{}", event.amount);
  switch (event.kind) {
    case TraceKind::kRequest:
      return {"request", std::string(StageText(event.detail)), bytes};
    case TraceKind::kBatch:
      return {"batch", "batch " + BatchText(event.id), fmt::format("\"samples\":{}", event.amount)};
    case TraceKind::kPython:
      return {"python", "transforms", ""};
    case TraceKind::kSaveStall:
      return {"save stall", "save", ""};
    case TraceKind::kSave:
      return {"checkpoint", fmt::format("step {}", event.id), bytes};
    default:
      return {"checkpoint level",
              fmt::format("step {}: {}", event.id, NameIn(kLevels, event.detail)), ""};
  }
}

}  // namespace

size_t TraceFile::AddProcess(const ProcessSnapshot& process, uint64_t begin_ns) {
  processes_.push_back({process.pid, begin_ns, {}});
  const Process& added = processes_.back();
  const std::string job = process.job.empty() ? "" : process.job + " ";
  Name(added, "process_name", kNoLane,
       fmt::format("{}rank {} ({})", job, process.rank, process.host));
  Name(added, "thread_name", kNoLane, "batches, requests, saves");
  return processes_.size() - 1;
}

void TraceFile::Name(const Process& process, std::string_view what, uint32_t lane,
                     const std::string& name) {
  fmt::format_to(std::back_inserter(text_),
                 "{}{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},"
                 "\"args\":{{\"name\":{}}}}}",
                 text_.empty() ? "" : ",\n", what, process.pid, lane, Json(name).Dump());
}

void TraceFile::NameLane(Process* process, uint32_t lane, TracePool pool) {
  if (!process->lanes.insert(lane).second) return;
  Name(*process, "thread_name", lane,
       fmt::format("{} {}", NameIn(kPools, static_cast<size_t>(pool)), lane));
}

void TraceFile::Add(size_t process, const TraceEvent& event) {
  Process& of = processes_[process];
  if (event.times[3] < of.begin_ns) return;
  ++num_events_;
  if (event.kind == TraceKind::kBusy || event.kind == TraceKind::kWait)
    AddWork(&of, event);
  else
    AddInterval(of, event);
}

void TraceFile::AddWork(Process* process, const TraceEvent& event) {
  NameLane(process, event.lane, event.pool);
  const uint64_t begin = std::max(event.times[0], process->begin_ns);
  const bool waits = event.kind == TraceKind::kWait;
  std::string arguments = fmt::format("\"bytes\":{}", event.amount);
  if (event.id != kNoTraceId) arguments += fmt::format(",\"batch\":\"{}\"", BatchText(event.id));
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":\"{}{}\",\"pid\":{},\"tid\":{},"
                 "\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{{}}}}}",
                 waits ? "wait" : "stage", waits ? "wait: " : "", StageText(event.detail),
                 process->pid, event.lane, Micros(begin - process->begin_ns),
                 Micros(event.times[3] - begin), arguments);
}

// Of the interval with the present id.
void TraceFile::Mark(const Process& process, char phase, std::string_view category,
                     std::string_view name, uint64_t when, std::string_view arguments) {
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"{}\",\"cat\":\"{}\",\"name\":\"{}\",\"id\":\"{:#x}\",\"pid\":{},"
                 "\"tid\":{},\"ts\":{:.3f},\"args\":{{{}}}}}",
                 phase, category, name, next_id_, process.pid, kNoLane,
                 Micros(when - process.begin_ns), arguments);
}

void TraceFile::AddInterval(const Process& process, const TraceEvent& event) {
  const Title title = TitleOf(event);
  // Where a border is not known, neither of the parts beside it is.
  std::array<uint64_t, 4> times = event.times;
  for (uint64_t& time : times)
    if (time != 0) time = std::clamp(time, process.begin_ns, event.times[3]);
  times[0] = std::max(times[0], process.begin_ns);
  Mark(process, 'b', title.category, title.name, times[0], title.arguments);
  const std::array<std::string_view, 3> parts = PartsOf(event.kind);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty() || times[i] == 0 || times[i + 1] < times[i]) continue;
    Mark(process, 'b', title.category, parts[i], times[i]);
    Mark(process, 'e', title.category, parts[i], times[i + 1]);
  }
  Mark(process, 'e', title.category, title.name, times[3]);
  ++next_id_;
}

std::string TraceFile::Finish() {
  return fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"lost_events\":{}}},\"traceEvents\":[\n{}\n]}}"
      "\n",
      lost_, text_);
}

std::string TraceChunkText(const TraceChunk& chunk) {
  std::string text = fmt::format("{{\"version\":{},\"next\":{},\"lost\":{},\"events\":[", kVersion,
                                 chunk.next, chunk.lost);
  for (const TraceEvent& event : chunk.events)
    fmt::format_to(std::back_inserter(text), "{}[\"{}\",{},{},{},{},{},{},{},{},{}]",
                   &event == chunk.events.data() ? "" : ",",
                   NameIn(kKinds, static_cast<size_t>(event.kind)), event.detail,
                   static_cast<unsigned>(event.pool), event.lane, event.id, event.amount,
                   event.times[0], event.times[1], event.times[2], event.times[3]);
  return text + "]}\n";
}

namespace {

// Nothing for a kind that this program does not know.
Result<std::optional<TraceEvent>> EventFrom(const Json& json) {
  const Json::Array& members = json.items();
  if (members.size() != kEventMembers)
    return Error(Code::kDataLoss, "an event has {} members, not {}", kEventMembers, members.size());
  const auto kind = std::find(kKinds.begin(), kKinds.end(), members[0].AsString());
  if (kind == kKinds.end()) return std::optional<TraceEvent>();
  TraceEvent event;
  event.kind = static_cast<TraceKind>(kind - kKinds.begin());
  event.detail = static_cast<uint8_t>(std::min<uint64_t>(members[1].AsUint(), UINT8_MAX));
  event.pool = members[2].AsUint() < kNumTracePools ? static_cast<TracePool>(members[2].AsUint())
                                                    : TracePool::kOther;
  event.lane = static_cast<uint32_t>(std::min<uint64_t>(members[3].AsUint(), UINT32_MAX));
  event.id = members[4].AsUint();
  event.amount = members[5].AsUint();
  for (size_t i = 0; i < event.times.size(); ++i) event.times[i] = members[6 + i].AsUint();
  if (event.times[3] < event.times[0])
    return Status(Code::kDataLoss, "an event ends before it begins");
  return std::optional<TraceEvent>(event);
}

}  // namespace

Result<TraceChunk> TraceChunkFrom(std::string_view text) {
  auto json = Json::Parse(text);
  const Json* events = json.ok() ? json->Find("events") : nullptr;
  if (events == nullptr || !events->is_array())
    return Status(Code::kDataLoss, "this is no part of a trace");
  TraceChunk chunk;
  HR_ASSIGN_OR_RETURN(chunk.next, json->GetUint("next"));
  HR_ASSIGN_OR_RETURN(chunk.lost, json->GetUint("lost"));
  for (const Json& one : events->items()) {
    HR_ASSIGN_OR_RETURN(std::optional<TraceEvent> event, EventFrom(one));
    if (event) chunk.events.push_back(*event);
  }
  return chunk;
}

}  // namespace headrace
