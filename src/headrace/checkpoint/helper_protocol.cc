#include "headrace/checkpoint/helper_protocol.h"

#include "headrace/base/text.h"

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kMostThreads = 1024;

}  // namespace

std::string HelperFolder(const std::string& home) { return JoinPath(home, "helper"); }
std::string HelperSocket(const std::string& home, uint32_t rank) {
  return JoinPath(HelperFolder(home), "rank" + std::to_string(rank));
}
std::string DrainLock(const std::string& home) { return JoinPath(home, "drain.lock"); }

Json HelperSettings::ToJson() const {
  Json folders = Json::MakeArray(), options = Json::MakeObject();
  for (const std::string& folder : tiers.folders) folders.Append(folder);
  for (const auto& [name, value] : storage) options.Set(name, value);
  return Json::MakeObject()
      .Set("folders", std::move(folders))
      .Set("dest", tiers.dest)
      .Set("dest_level", LevelName(tiers.dest_level))
      .Set("peer", tiers.peer)
      .Set("storage", std::move(options))
      .Set("rank", rank)
      .Set("epoch", epoch)
      .Set("arena_bytes", arena_bytes)
      .Set("threads", threads)
      .Set("reuse", reuse)
      .Set("keep_last", keep_last)
      .Set("keep_every", keep_every)
      .Set("drain_limit", drain_limit)
      .Set("publish_timeout_ms", publish_timeout_ms)
      .Set("linger_ms", linger_ms);
}

Result<HelperSettings> HelperSettings::FromJson(const Json& json) {
  HelperSettings read;
  const Json* folders = json.Find("folders");
  const Json* storage = json.Find("storage");
  const Json* reuse = json.Find("reuse");
  if (folders == nullptr || storage == nullptr || reuse == nullptr)
    return Status(Code::kInvalidArgument, "settings of a helper are missing");
  for (const Json& folder : folders->items()) read.tiers.folders.emplace_back(folder.AsString());
  for (const auto& [name, value] : storage->members()) read.storage[name] = value.AsString();
  read.reuse = reuse->AsBool();
  HR_ASSIGN_OR_RETURN(read.tiers.dest, json.GetString("dest"));
  HR_ASSIGN_OR_RETURN(read.tiers.peer, json.GetString("peer"));
  HR_ASSIGN_OR_RETURN(const std::string level, json.GetString("dest_level"));
  const auto named = LevelNamed(level);
  if (!named) return Error(Code::kInvalidArgument, "no level is called {}", EscapeText(level));
  read.tiers.dest_level = *named;
  HR_ASSIGN_OR_RETURN(const uint64_t rank, json.GetUint("rank"));
  HR_ASSIGN_OR_RETURN(const uint64_t threads, json.GetUint("threads"));
  if (rank > UINT32_MAX || threads < 1 || threads > kMostThreads)
    return Error(Code::kInvalidArgument, "rank {} with {} threads makes no sense", rank, threads);
  read.rank = static_cast<uint32_t>(rank);
  read.threads = static_cast<int>(threads);
  HR_ASSIGN_OR_RETURN(read.epoch, json.GetUint("epoch"));
  HR_ASSIGN_OR_RETURN(read.arena_bytes, json.GetUint("arena_bytes"));
  HR_ASSIGN_OR_RETURN(read.keep_last, json.GetUint("keep_last"));
  HR_ASSIGN_OR_RETURN(read.keep_every, json.GetUint("keep_every"));
  HR_ASSIGN_OR_RETURN(read.drain_limit, json.GetUint("drain_limit"));
  HR_ASSIGN_OR_RETURN(read.publish_timeout_ms, json.GetUint("publish_timeout_ms"));
  HR_ASSIGN_OR_RETURN(read.linger_ms, json.GetUint("linger_ms"));
  return read;
}

Json ErrorJson(const Status& status) {
  return Json::MakeObject()
      .Set("code", static_cast<uint64_t>(status.code()))
      .Set("message", EscapeText(status.message()));
}

Status ErrorOf(const Json& answer) {
  const Json* error = answer.Find("error");
  if (error == nullptr) return OkStatus();
  const Json* code = error->Find("code");
  const Json* message = error->Find("message");
  const uint64_t number = code == nullptr ? 0 : code->AsUint();
  const bool known = number > 0 && number <= static_cast<uint64_t>(Code::kIoError);
  return {known ? static_cast<Code>(number) : Code::kInternal,
          std::string(message == nullptr ? "" : message->AsString())};
}

Json SaveIdJson(const SaveId& id) {
  return Json::MakeObject().Set("step", id.step).Set("epoch", id.epoch).Set("attempt", id.attempt);
}

Result<SaveId> SaveIdFromJson(const Json& json) {
  SaveId id;
  HR_ASSIGN_OR_RETURN(id.step, json.GetUint("step"));
  HR_ASSIGN_OR_RETURN(id.epoch, json.GetUint("epoch"));
  HR_ASSIGN_OR_RETURN(id.attempt, json.GetUint("attempt"));
  return id;
}

Json KeptStatusJson(const KeptStatus& status) {
  Json json = SaveIdJson(status.id);
  json.Set("level", LevelName(status.level));
  if (!status.failed.ok())
    json.Set("failed", Json::MakeObject().Set("error", ErrorJson(status.failed)));
  const WriteReport& report = status.report;
  return json.Set("bytes", report.bytes)
      .Set("reused_bytes", report.reused_bytes)
      .Set("written_bytes", report.written_bytes)
      .Set("files", report.files)
      .Set("hash_ns", report.hash_ns)
      .Set("write_ns", report.write_ns)
      .Set("sync_ns", report.sync_ns)
      .Set("queued_ns", status.queued_ns)
      .Set("publish_ns", status.publish_ns);
}

Result<KeptStatus> KeptStatusFromJson(const Json& json) {
  KeptStatus status;
  HR_ASSIGN_OR_RETURN(status.id, SaveIdFromJson(json));
  HR_ASSIGN_OR_RETURN(const std::string level, json.GetString("level"));
  const auto named = LevelNamed(level);
  if (!named) return Error(Code::kInvalidArgument, "no level is called {}", EscapeText(level));
  status.level = *named;
  if (const Json* failed = json.Find("failed")) status.failed = ErrorOf(*failed);
  WriteReport& report = status.report;
  HR_ASSIGN_OR_RETURN(report.bytes, json.GetUint("bytes"));
  HR_ASSIGN_OR_RETURN(report.reused_bytes, json.GetUint("reused_bytes"));
  HR_ASSIGN_OR_RETURN(report.written_bytes, json.GetUint("written_bytes"));
  HR_ASSIGN_OR_RETURN(report.files, json.GetUint("files"));
  HR_ASSIGN_OR_RETURN(report.hash_ns, json.GetUint("hash_ns"));
  HR_ASSIGN_OR_RETURN(report.write_ns, json.GetUint("write_ns"));
  HR_ASSIGN_OR_RETURN(report.sync_ns, json.GetUint("sync_ns"));
  HR_ASSIGN_OR_RETURN(status.queued_ns, json.GetUint("queued_ns"));
  HR_ASSIGN_OR_RETURN(status.publish_ns, json.GetUint("publish_ns"));
  return status;
}

Json ProgressJson(const DrainProgress& progress) {
  Json json = Json::MakeObject();
  json.Set("now", progress.now ? SaveIdJson(*progress.now) : Json())
      .Set("files", progress.files)
      .Set("total_files", progress.total_files)
      .Set("bytes", progress.bytes)
      .Set("total_bytes", progress.total_bytes)
      .Set("sent_bytes", progress.sent_bytes)
      .Set("drained", progress.drained)
      .Set("waiting", progress.waiting)
      .Set("rate", progress.rate)
      .Set("input_stall", progress.input_stall ? Json(*progress.input_stall) : Json())
      .Set("last_error", progress.last.ok() ? Json() : Json(EscapeText(progress.last.ToString())));
  return json;
}

}  // namespace headrace::checkpoint
