#include <fmt/core.h>

#include "headrace/base/text.h"
#include "headrace/cache/cache_admin.h"
#include "headrace/cache/cache_settings.h"
#include "headrace/cli/cache_warm.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/cli/progress_line.h"

namespace headrace::cli {
namespace {

using cache::CacheAdmin;
using cache::CachedObjectSummary;

class CacheCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  static void NoteWhatDoesNotWork(Session* session, CacheAdmin* admin);
  static Json Describe(Session* session, cache::NodeCache* disk);
  Result<ExitCode> Stat(Session* session, CacheAdmin* admin);
  Result<ExitCode> Ls(Session* session, CacheAdmin* admin);
  Result<ExitCode> Verify(Session* session, CacheAdmin* admin);
  Result<ExitCode> Change(Session* session, CacheAdmin* admin);
  Result<ExitCode> Clear(Session* session, CacheAdmin* admin);

  Result<ExitCode> Warm(Session* session);

  std::string action_, object_;
  CacheArguments cache_;
  CacheWarm warm_;
};

void CacheCommand::Declare(Arguments* arguments) {
  arguments->Text("action", &action_,
                  "What to do: stat, ls, warm, verify, pin, unpin, evict or clear");
  arguments->OptionalText("object", &object_,
                          "For pin, unpin and evict (ls: optional): an object as `ls` names it, or "
                          "the beginning of names with a '*' behind. For warm: a data set, by URL");
  arguments->Text("--cache-dir", &cache_.directory,
                  "The cache's directory, or several with ':' between; else HEADRACE_CACHE_DIR");
  arguments->Text("--cache-bytes", &cache_.bytes,
                  "warm: most bytes of the cache; else HEADRACE_CACHE_BYTES, else what it was last "
                  "given");
  warm_.Declare(arguments);
  arguments->Note(
      "stat    space, limit and health of each directory\n"
      "ls      the objects that are cached, and how much of each\n"
      "warm    bring a data set into the cache, or what some ranks read of it in an epoch; stopped "
      "and\n        run again, it goes on where it was\n"
      "verify  read everything and remove what is damaged; it is fetched again when needed\n"
      "pin     keep an object's blocks whatever else needs room; unpin lets them go\n"
      "evict   remove an object's blocks\n"
      "clear   remove all blocks, what was learned about data sets, and pins\n\n"
      "Jobs may use the cache meanwhile: what is missing they read from its origin.");
  arguments->Example("headrace cache ls --cache-dir /nvme/cache", "What is there?");
  arguments->Example("headrace cache pin 's3://bucket/train/*' --cache-dir /nvme/cache",
                     "Keep a data set for the next weeks");
  arguments->Example(
      "headrace cache warm s3://bucket/train --cache-dir /nvme/cache --ranks 0,1 --world-size 16 "
      "--seed 7 -b 4096",
      "Have there what the ranks 0 and 1 of 16 will read");
}

Result<ExitCode> CacheCommand::Warm(Session* session) {
  session->cache = cache_;
  HR_RETURN_IF_ERROR(UseCache(session));
  session->fs = object::UrlFileSystem(session->storage);
  return warm_.Run(session, object_);
}

Result<ExitCode> CacheCommand::Run(Session* session) {
  HR_ASSIGN_OR_RETURN(cache::BlockCacheOptions options, ReadCacheArguments(cache_));
  cache_.directory = options.node.directory;
  if (cache_.directory.empty())
    return Status(Code::kInvalidArgument,
                  "which cache? name it with --cache-dir or HEADRACE_CACHE_DIR");
  bool changes = action_ == "pin" || action_ == "unpin" || action_ == "evict";
  bool warms = action_ == "warm";
  if (!changes && !warms && action_ != "stat" && action_ != "ls" && action_ != "verify" &&
      action_ != "clear")
    return Error(
        Code::kInvalidArgument,
        "there is no action '{}': expected stat, ls, warm, verify, pin, unpin, evict or clear",
        EscapeText(action_));
  if (warms && object_.empty())
    return Status(Code::kInvalidArgument, "warm what? Name a data set by its URL");
  if (warms) return Warm(session);
  if (changes && object_.empty())
    return Error(Code::kInvalidArgument, "{} what? Name an object as `headrace cache ls` does",
                 action_);
  HR_ASSIGN_OR_RETURN(auto admin, CacheAdmin::Open(session->fs, cache_.directory));
  NoteWhatDoesNotWork(session, admin.get());
  if (changes) return Change(session, admin.get());
  if (action_ == "stat") return Stat(session, admin.get());
  if (action_ == "ls") return Ls(session, admin.get());
  return action_ == "verify" ? Verify(session, admin.get()) : Clear(session, admin.get());
}

void CacheCommand::NoteWhatDoesNotWork(Session* session, CacheAdmin* admin) {
  for (const auto& disk : admin->cache()->disks())
    if (!disk->healthy())
      Note(*session, fmt::format("{} cannot be used now, and is left out: is its disk there and "
                                 "writable?",
                                 EscapeText(disk->paths().root())));
}

Json CacheCommand::Describe(Session* session, cache::NodeCache* disk) {
  const std::string& directory = disk->paths().root();
  Json json = Json::MakeObject()
                  .Set("directory", EscapeText(directory))
                  .Set("works", disk->healthy())
                  .Set("limit_bytes", disk->limit_bytes())
                  .Set("used_bytes", disk->used_bytes());
  auto free = session->fs->FreeBytes(directory);
  if (free.ok()) json.Set("disk_free_bytes", *free);
  return json;
}

Result<ExitCode> CacheCommand::Stat(Session* session, CacheAdmin* admin) {
  HR_ASSIGN_OR_RETURN(auto objects, admin->List(session->ctx));
  uint64_t blocks = 0, bytes = 0, pinned_bytes = 0;
  for (const CachedObjectSummary& object : objects) {
    blocks += object.blocks;
    bytes += object.bytes;
    if (object.pinned) pinned_bytes += object.bytes;
  }
  HR_ASSIGN_OR_RETURN(auto side_files, admin->SideFiles());
  uint64_t side_bytes = 0;
  for (const cache::SideFileEntry& side : side_files) side_bytes += side.cost;
  uint64_t limit = admin->cache()->limit_bytes(), used = admin->cache()->used_bytes();
  const auto& disks = admin->cache()->disks();
  if (session->json) {
    Json directories = Json::MakeArray();
    for (const auto& disk : disks) directories.Append(Describe(session, disk.get()));
    Json json = Json::MakeObject()
                    .Set("directory", EscapeText(cache_.directory))
                    .Set("directories", std::move(directories))
                    .Set("limit_bytes", limit)
                    .Set("used_bytes", used)
                    .Set("objects", objects.size())
                    .Set("blocks", blocks)
                    .Set("bytes", bytes)
                    .Set("pinned_bytes", pinned_bytes)
                    .Set("side_files", side_files.size())
                    .Set("side_bytes", side_bytes);
    session->out->Print(json);
    return ExitCode::kOk;
  }
  session->out->Print("{} of {} in use: {} blocks of {} objects; {} pinned\n", FormatSize(used),
                      FormatSize(limit), FormatCount(blocks), FormatCount(objects.size()),
                      FormatSize(pinned_bytes));
  if (!side_files.empty())
    session->out->Print("{} learned about {} fields of data sets (seek points)\n",
                        FormatSize(side_bytes), FormatCount(side_files.size()));
  for (const auto& disk : disks) {
    const std::string& directory = disk->paths().root();
    auto free = session->fs->FreeBytes(directory);
    session->out->Print("{}: {} of {} in use{}{}\n", EscapeText(directory),
                        FormatSize(disk->used_bytes()), FormatSize(disk->limit_bytes()),
                        free.ok() ? fmt::format(", {} free on its disk", FormatSize(*free)) : "",
                        disk->healthy() ? "" : "; does not work now");
  }
  return ExitCode::kOk;
}

Result<ExitCode> CacheCommand::Ls(Session* session, CacheAdmin* admin) {
  HR_ASSIGN_OR_RETURN(auto objects, object_.empty() ? admin->List(session->ctx)
                                                    : admin->Find(object_, session->ctx));
  Json list = Json::MakeArray();
  if (!session->json)
    session->out->Print("{:>12} {:>12} {:>6}  {}\n", "cached", "size", "pinned", "object");
  for (const CachedObjectSummary& object : objects) {
    if (session->out->closed()) break;
    uint64_t size = object.descriptor ? object.descriptor->version.size_bytes : 0;
    if (!session->json) {
      session->out->Print("{:>12} {:>12} {:>6}  {}\n", FormatSize(object.bytes),
                          object.descriptor ? FormatSize(size) : "?", object.pinned ? "yes" : "",
                          object.Name());
      continue;
    }
    Json one = Json::MakeObject()
                   .Set("id", object.id.Hex())
                   .Set("name", object.Name())
                   .Set("blocks", object.blocks)
                   .Set("bytes", object.bytes)
                   .Set("pinned", object.pinned);
    if (object.descriptor)
      one.Set("size_bytes", size).Set("etag", EscapeText(object.descriptor->version.etag));
    list.Append(std::move(one));
  }
  if (session->json) session->out->Print(list);
  return ExitCode::kOk;
}

Result<ExitCode> CacheCommand::Verify(Session* session, CacheAdmin* admin) {
  cache::CacheVerifyReport report;
  Status verified = [&] {
    ProgressLine line("verifying", *session, [&report] {
      return ProgressFigures{0, 0, report.bytes, report.total_bytes};
    });
    return admin->Verify(&report, session->ctx);
  }();
  HR_RETURN_IF_ERROR(verified);
  if (session->json) {
    session->out->Print(Json::MakeObject()
                            .Set("blocks", report.blocks.load())
                            .Set("bytes", report.bytes.load())
                            .Set("damaged", report.damaged.load()));
  } else {
    session->out->Print("{} blocks read, {}; {} damaged and removed\n", FormatCount(report.blocks),
                        FormatSize(report.bytes), FormatCount(report.damaged));
  }
  return report.damaged == 0 ? ExitCode::kOk : ExitCode::kBadData;
}

Result<ExitCode> CacheCommand::Change(Session* session, CacheAdmin* admin) {
  HR_ASSIGN_OR_RETURN(auto objects, admin->Find(object_, session->ctx));
  uint64_t bytes = 0;
  for (const CachedObjectSummary& object : objects) {
    if (action_ == "pin") HR_RETURN_IF_ERROR(admin->Pin(object.id));
    if (action_ == "unpin") HR_RETURN_IF_ERROR(admin->Unpin(object.id));
    if (action_ != "evict") {
      bytes += object.bytes;
      continue;
    }
    HR_ASSIGN_OR_RETURN(uint64_t removed, admin->Remove(object.id, session->ctx));
    bytes += removed;
  }
  if (session->json) {
    session->out->Print(Json::MakeObject().Set("objects", objects.size()).Set("bytes", bytes));
  } else {
    session->out->Print("{}: {} objects, {}\n", action_, FormatCount(objects.size()),
                        FormatSize(bytes));
  }
  return ExitCode::kOk;
}

Result<ExitCode> CacheCommand::Clear(Session* session, CacheAdmin* admin) {
  HR_ASSIGN_OR_RETURN(uint64_t bytes, admin->Clear(session->ctx));
  if (session->json) {
    session->out->Print(Json::MakeObject().Set("bytes", bytes));
  } else {
    session->out->Print("clear: {}\n", FormatSize(bytes));
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeCacheCommand() { return std::make_unique<CacheCommand>(); }

}  // namespace headrace::cli
