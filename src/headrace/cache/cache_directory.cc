#include "headrace/cache/cache_directory.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "headrace/base/json.h"
#include "headrace/base/mutex.h"
#include "headrace/base/text.h"

namespace headrace::cache {
namespace {

constexpr uint64_t kMarkerVersion = 1;
constexpr uint64_t kMaxMarkerBytes = 4096;
constexpr uint64_t kMinUseWords = uint64_t{1} << 16, kMaxUseWords = uint64_t{1} << 24;
constexpr std::string_view kPresencePrefix = "present-";

// Four places for each block of the default size.
uint64_t UseWordsFor(uint64_t limit_bytes) {
  return std::clamp(std::bit_ceil(limit_bytes / kDefaultBlockBytes * 4), kMinUseWords,
                    kMaxUseWords);
}

void Sleep(std::chrono::nanoseconds time) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  never.WaitFor(&mu, time);
}

// Waits for the lock for as long as counting a large cache takes, on a busy machine too.
Result<std::unique_ptr<FileLock>> LockForOpening(FileSystem* fs, const CachePaths& paths,
                                                 const Context& ctx) {
  constexpr auto kPatience = std::chrono::seconds(60);
  auto give_up = Context::Clock::now() + kPatience;
  while (true) {
    auto lock = fs->Lock(paths.State("open.lock"));
    if (lock.ok() || lock.status().code() != Code::kFailedPrecondition) return lock;
    HR_RETURN_IF_ERROR(ctx.Check());
    if (Context::Clock::now() > give_up)
      return Error(Code::kUnavailable, "another process has been opening the cache {} for long",
                   EscapeText(paths.root()));
    Sleep(std::chrono::milliseconds(2));
  }
}

// Reads how many words the table of uses has.
Result<uint64_t> ReadMarker(FileSystem* fs, const CachePaths& paths) {
  HR_ASSIGN_OR_RETURN(std::string text, fs->ReadWhole(paths.Marker(), kMaxMarkerBytes));
  auto refuse = [&](std::string_view why) {
    return Error(Code::kFailedPrecondition, "{} is no cache that this version can use: {}",
                 EscapeText(paths.root()), why);
  };
  auto json = Json::Parse(text);
  if (!json.ok()) return refuse(json.status().message());
  auto version = json->GetUint("headrace_cache");
  if (!version.ok()) return refuse(version.status().message());
  if (*version != kMarkerVersion) return refuse(fmt::format("version {}, expected 1", *version));
  auto words = json->GetUint("use_words");
  if (!words.ok()) return refuse(words.status().message());
  if (!std::has_single_bit(*words) || *words < 8 || *words > kMaxUseWords)
    return refuse("its number of words cannot be");
  return *words;
}

// A fault of the disk is not taken for an answer.
Result<bool> HasMarker(FileSystem* fs, const CachePaths& paths) {
  auto marker = fs->Stat(paths.Marker());
  if (!marker.ok() && marker.status().code() != Code::kNotFound) return std::move(marker).status();
  return marker.ok();
}

// Makes the folders and, last, the marker.
Status MakeCache(FileSystem* fs, const CachePaths& paths, uint64_t limit_bytes) {
  for (uint32_t i = 0; i < kFanOut; ++i) {
    HR_RETURN_IF_ERROR(fs->MakeDirectories(paths.BlockFolder(FanOutName(i))));
    HR_RETURN_IF_ERROR(fs->MakeDirectories(paths.DescriptorFolder(FanOutName(i))));
  }
  HR_RETURN_IF_ERROR(fs->MakeDirectories(JoinPath(paths.root(), "pins")));
  std::string marker = Json::MakeObject()
                           .Set("headrace_cache", kMarkerVersion)
                           .Set("use_words", UseWordsFor(limit_bytes))
                           .Dump();
  return fs->WriteAtomically(paths.Marker(), AsBytes(marker + "\n"));
}

// Our own folders may be there without the marker: a process was killed while making them.
Status CheckNothingElseIsThere(FileSystem* fs, const CachePaths& paths) {
  auto entries = fs->List(paths.root());
  if (!entries.ok() && entries.status().code() == Code::kNotFound) return OkStatus();
  HR_RETURN_IF_ERROR(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    std::string_view name = entry.name;
    if (name == "blocks" || name == "objects" || name == "pins" || name == "side" ||
        name == "state" || name == "lost+found" || name.starts_with(kTemporaryPrefix))
      continue;
    return Error(Code::kFailedPrecondition,
                 "{} is no cache and is not empty (it holds '{}'): name an empty directory for "
                 "the cache",
                 EscapeText(paths.root()), EscapeText(name));
  }
  return OkStatus();
}

// True when no other process has the cache open; then what dead ones left is removed.
bool IsAlone(FileSystem* fs, const CachePaths& paths) {
  auto entries = fs->List(paths.State(""));
  if (!entries.ok()) return false;
  bool alone = true;
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.starts_with(kPresencePrefix)) continue;
    auto lock = fs->Lock(paths.State(entry.name));
    if (lock.ok()) (void)fs->Remove(paths.State(entry.name));
    alone &= lock.ok();
  }
  return alone;
}

Status TakePresence(FileSystem* fs, const CachePaths& paths, MountedCache* mounted) {
  constexpr int kMaxProcesses = 65536;
  for (int i = 0; i < kMaxProcesses; ++i) {
    std::string path = paths.State(fmt::format("{}{}", kPresencePrefix, i));
    auto lock = fs->Lock(path);
    if (!lock.ok() && lock.status().code() == Code::kFailedPrecondition) continue;
    HR_RETURN_IF_ERROR(lock.status());
    mounted->presence = *std::move(lock);
    mounted->presence_path = std::move(path);
    return OkStatus();
  }
  return Status(Code::kResourceExhausted, "too many processes use the cache");
}

// Files of a wrong size, as a power cut may leave them, are made anew when nobody uses them.
Result<std::unique_ptr<CacheState>> OpenState(FileSystem* fs, const CachePaths& paths,
                                              uint64_t use_words, bool alone,
                                              const MountOptions& options) {
  std::string counters = paths.State("counters"), uses = paths.State("uses");
  auto state = CacheState::Open(fs, counters, uses, use_words, options.steady_ms);
  if (state.ok() || state.status().code() != Code::kFailedPrecondition) return state;
  if (!alone)
    return Error(Code::kUnavailable, "{} is used by another version: {}", EscapeText(paths.root()),
                 state.status().message());
  (void)fs->Remove(counters);
  (void)fs->Remove(uses);
  return CacheState::Open(fs, counters, uses, use_words, options.steady_ms);
}

Status CountAnew(FileSystem* fs, const CachePaths& paths, CacheState* state) {
  state->StartClock();
  HR_ASSIGN_OR_RETURN(CacheContents contents, ListCache(fs, paths));
  for (const BlockId& id : contents.unfinished) (void)RemoveUnfinished(fs, paths, id);
  for (const std::string& path : contents.strays) (void)fs->Remove(path);
  for (const SideFileEntry& side : contents.side_files)
    if (!side.sound && RemoveSideFile(fs, paths, side.id)) contents.bytes -= side.cost;
  state->SetUsed(contents.bytes);
  return OkStatus();
}

void SortUnique(std::vector<BlockId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

// Names of objects in a folder; with `strays` also the paths of temporary files.
Status ListObjects(FileSystem* fs, const std::string& folder, std::string_view suffix,
                   std::vector<ObjectId>* objects, std::vector<std::string>* strays) {
  auto entries = fs->List(folder);
  if (!entries.ok() && entries.status().code() == Code::kNotFound) return OkStatus();
  HR_RETURN_IF_ERROR(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    std::string_view name = entry.name;
    if (strays && name.ends_with(".tmp")) strays->push_back(JoinPath(folder, name));
    if (!name.ends_with(suffix)) continue;
    auto id = ObjectId::FromHex(name.substr(0, name.size() - suffix.size()));
    if (id.ok()) objects->push_back(*id);
  }
  return OkStatus();
}

}  // namespace

std::string CachePaths::BlockFolder(const std::string& fan_out) const {
  return fmt::format("{}/blocks/{}", root_, fan_out);
}
std::string CachePaths::Block(const BlockId& id, BlockFileKind kind) const {
  return fmt::format("{}/blocks/{}/{}", root_, FanOutOf(id), BlockFileName(id, kind));
}
std::string CachePaths::DescriptorFolder(const std::string& fan_out) const {
  return fmt::format("{}/objects/{}", root_, fan_out);
}
std::string CachePaths::Descriptor(const ObjectId& id) const {
  return fmt::format("{}/objects/{}/{}.json", root_, FanOutOf(id), id.Hex());
}
std::string CachePaths::Pin(const ObjectId& id) const {
  return fmt::format("{}/pins/{}", root_, id.Hex());
}
std::string CachePaths::State(std::string_view name) const {
  return JoinPath(JoinPath(root_, "state"), name);
}

std::string CachePaths::Side(const ObjectId& id, std::string_view part) const {
  return fmt::format("{}/side/{}.{}", root_, id.Hex(), part);
}

Result<CacheContents> ListCache(FileSystem* fs, const CachePaths& paths) {
  CacheContents contents;
  // Descriptors first: one is written after its first block, so a descriptor that is found here
  // without a block below has none.
  for (uint32_t i = 0; i < kFanOut; ++i)
    HR_RETURN_IF_ERROR(ListObjects(fs, paths.DescriptorFolder(FanOutName(i)), ".json",
                                   &contents.descriptors, &contents.strays));
  for (uint32_t i = 0; i < kFanOut; ++i) {
    auto entries = fs->List(paths.BlockFolder(FanOutName(i)));
    if (!entries.ok() && entries.status().code() == Code::kNotFound) continue;
    HR_RETURN_IF_ERROR(entries.status());
    for (const DirectoryEntry& entry : *entries) {
      auto name = ParseBlockFileName(entry.name);
      if (!name.ok() || FanOutOf(name->id) != FanOutName(i)) continue;
      (name->kind == BlockFileKind::kBlock ? contents.blocks : contents.unfinished)
          .push_back(name->id);
    }
  }
  HR_RETURN_IF_ERROR(
      ListObjects(fs, JoinPath(paths.root(), "pins"), "", &contents.pinned, nullptr));
  std::sort(contents.pinned.begin(), contents.pinned.end());
  // A rename while a folder is listed can show a file under both names.
  SortUnique(&contents.blocks);
  SortUnique(&contents.unfinished);
  HR_ASSIGN_OR_RETURN(contents.side_files, ListSideFiles(fs, paths));
  contents.bytes = kDescriptorCost * contents.descriptors.size();
  for (const SideFileEntry& side : contents.side_files) contents.bytes += side.cost;
  for (const BlockId& id : contents.blocks) contents.bytes += BlockCost(id.length);
  return contents;
}

// 1. lock, 2. make the folders and last of all the marker, 3. map the words, 4. when alone: count
// and clean, 5. show presence, 6. unlock. A kill at any point leaves what the next one can go on
// with.
Result<std::unique_ptr<MountedCache>> MountCache(FileSystem* fs, const CachePaths& paths,
                                                 const MountOptions& options, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(bool is_cache, HasMarker(fs, paths));
  if (!is_cache && !options.create)
    return Error(Code::kNotFound, "{} is no cache", EscapeText(paths.root()));
  if (!is_cache) HR_RETURN_IF_ERROR(CheckNothingElseIsThere(fs, paths));
  HR_RETURN_IF_ERROR(fs->MakeDirectories(paths.State("")));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> opening, LockForOpening(fs, paths, ctx));
  HR_ASSIGN_OR_RETURN(is_cache, HasMarker(fs, paths));
  if (!is_cache) HR_RETURN_IF_ERROR(MakeCache(fs, paths, options.limit_bytes));
  HR_ASSIGN_OR_RETURN(uint64_t use_words, ReadMarker(fs, paths));
  auto mounted = std::make_unique<MountedCache>();
  HR_ASSIGN_OR_RETURN(FileInfo marker, fs->Stat(paths.Marker()));
  mounted->device = marker.device;
  mounted->inode = marker.inode;
  bool alone = IsAlone(fs, paths);
  HR_ASSIGN_OR_RETURN(mounted->state, OpenState(fs, paths, use_words, alone, options));
  if (alone) HR_RETURN_IF_ERROR(CountAnew(fs, paths, mounted->state.get()));
  HR_RETURN_IF_ERROR(TakePresence(fs, paths, mounted.get()));
  CacheState& state = *mounted->state;
  uint64_t limit = options.limit_bytes ? options.limit_bytes : state.limit_bytes();
  uint64_t floor = options.free_floor_bytes ? options.free_floor_bytes : state.free_floor_bytes();
  state.SetLimits(limit, floor);
  return mounted;
}

bool RemoveUnfinished(FileSystem* fs, const CachePaths& paths, const BlockId& id) {
  std::string lock_path = paths.Block(id, BlockFileKind::kLock);
  auto lock = fs->Lock(lock_path);
  if (!lock.ok()) return false;
  // Only its holder makes or removes the temporary file.
  bool removed = fs->Remove(paths.Block(id, BlockFileKind::kTemporary)).ok();
  (void)fs->Remove(lock_path);
  return removed;
}

}  // namespace headrace::cache
