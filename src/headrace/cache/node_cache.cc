#include "headrace/cache/node_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "headrace/base/fault_point.h"
#include "headrace/base/stage_timer.h"
#include "headrace/base/text.h"
#include "headrace/env/process.h"

namespace headrace::cache {
namespace {

constexpr size_t kDescribedRing = 256;
constexpr uint64_t kDefaultLimit = uint64_t{16} << 30, kDefaultFreeFloor = uint64_t{1} << 30;

bool IsOfTheCaller(Code code) {
  return code == Code::kCancelled || code == Code::kDeadlineExceeded;
}

Status Suspended(const std::string& directory) {
  return Error(Code::kUnavailable, "the cache {} does not work at the moment",
               EscapeText(directory));
}

}  // namespace

NodeCache::NodeCache(FileSystem* fs, NodeCacheOptions options)
    : fs_(fs),
      options_(std::move(options)),
      paths_(options_.directory),
      reads_(options_.suspension),
      writes_(options_.suspension),
      memory_limit_bytes_(MemoryLimitBytes()) {}

NodeCache::~NodeCache() {
  if (mounted_) (void)fs_->Remove(mounted_->presence_path);
}

Result<std::unique_ptr<NodeCache>> NodeCache::Open(FileSystem* fs, NodeCacheOptions options,
                                                   const Context& ctx) {
  if (options.directory.empty())
    return Status(Code::kInvalidArgument, "the cache needs a directory");
  std::unique_ptr<NodeCache> cache(new NodeCache(fs, std::move(options)));
  HR_ASSIGN_OR_RETURN(cache->reader_, BlockReader::Create(fs, &cache->paths_,
                                                          {.post = cache->options_.post,
                                                           .io = cache->options_.io}));
  Status mounted = cache->Mount(ctx);
  bool nothing_there = mounted.code() == Code::kNotFound && !cache->options_.create;
  if (mounted.code() == Code::kFailedPrecondition || nothing_there || IsOfTheCaller(mounted.code()))
    return mounted;
  if (!mounted.ok()) cache->Fail(Side::kRead, mounted);
  return cache;
}

uint64_t NodeCache::SteadyMs() const {
  if (options_.steady_ms) return options_.steady_ms();
  auto now = Context::Clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

void NodeCache::Warn(const std::string& line) const {
  if (options_.warn) options_.warn(line);
}

Suspension& NodeCache::SuspensionOf(Side side) { return side == Side::kRead ? reads_ : writes_; }

// What is not known by option or from the directory is chosen here: half of what is free.
Result<std::unique_ptr<MountedCache>> NodeCache::OpenDirectory(bool create, const Context& ctx) {
  MountOptions mount;
  mount.create = create;
  mount.limit_bytes = options_.limit_bytes;
  mount.free_floor_bytes = options_.free_floor_bytes;
  mount.steady_ms = [this] { return SteadyMs(); };
  HR_ASSIGN_OR_RETURN(auto mounted, MountCache(fs_, paths_, mount, ctx));
  CacheState& state = *mounted->state;
  uint64_t limit = state.limit_bytes(), floor = state.free_floor_bytes();
  if (limit == 0) {
    auto free = fs_->FreeBytes(paths_.root());
    limit = free.ok() ? std::max<uint64_t>(*free / 2, 1) : kDefaultLimit;
  }
  state.SetLimits(limit, floor ? floor : kDefaultFreeFloor);
  return mounted;
}

// Opens the directory, or looks whether the one that is open is still there.
Status NodeCache::Mount(const Context& ctx) {
  MutexLock mounting(&mount_mu_);
  std::shared_ptr<MountedCache> old;
  bool may_make;
  {
    MutexLock lock(&mu_);
    old = mounted_;
    may_make = !was_mounted_ && options_.create;
  }
  if (old && old->state->Check().ok()) {
    HR_ASSIGN_OR_RETURN(FileInfo marker, fs_->Stat(paths_.Marker()));
    if (marker.device == old->device && marker.inode == old->inode) return OkStatus();
  }
  // Once it was there it is never made anew: what is at its place may be another disk.
  HR_ASSIGN_OR_RETURN(std::shared_ptr<MountedCache> opened, OpenDirectory(may_make, ctx));
  MutexLock lock(&mu_);
  mounted_ = std::move(opened);
  was_mounted_ = true;
  described_.clear();
  return OkStatus();
}

NodeCache::Use NodeCache::Begin(Side side, const Context& ctx) {
  Use use;
  {
    MutexLock lock(&mu_);
    Suspension& suspension = SuspensionOf(side);
    if (!suspension.Allow(SteadyMs())) return use;
    use.probing = suspension.suspended();
    if (!use.probing) use.mounted = mounted_;
  }
  if (!use.probing) return UnlessLost(std::move(use));
  Status mounted = Mount(ctx);
  if (!mounted.ok()) {
    if (!IsOfTheCaller(mounted.code())) Fail(side, mounted);
    return use;
  }
  MutexLock lock(&mu_);
  use.mounted = mounted_;
  return use;
}

NodeCache::Use NodeCache::Peek() {
  Use use;
  {
    MutexLock lock(&mu_);
    if (!reads_.suspended()) use.mounted = mounted_;
  }
  return UnlessLost(std::move(use));
}

// Where the shared words have gone with their disk the cache is opened anew, once that is back.
NodeCache::Use NodeCache::UnlessLost(Use use) {
  Status there = use ? use.state()->Check() : OkStatus();
  if (there.ok()) return use;
  {
    MutexLock lock(&mu_);
    if (mounted_ != use.mounted) return Use();
    mounted_.reset();
  }
  Fail(Side::kRead, there);
  return Use();
}

void NodeCache::Fail(Side side, const Status& why) {
  (side == Side::kRead ? counts_.read_failures : counts_.write_failures) += 1;
  bool first, is_told = false;
  {
    MutexLock lock(&mu_);
    bool healthy = IsHealthy();
    first = writes_.Fail(SteadyMs()) && healthy;
    // What cannot be read is of no use to write.
    if (side == Side::kRead) (void)reads_.Fail(SteadyMs());
    // A full disk is told of once, whether its space or a write shows it.
    if (why.code() == Code::kResourceExhausted) {
      is_told = std::exchange(full_, true);
      refused_ms_ = SteadyMs();
    }
  }
  if (first && is_told)
    counts_.degraded += 1;
  else if (first)
    TellDegraded(side == Side::kRead ? "read" : "written", why);
}

void NodeCache::TellDegraded(std::string_view what, const Status& why) {
  counts_.degraded += 1;
  Warn(fmt::format(
      "the cache {} cannot be {} ({}); going on without it, and trying it again now and then",
      EscapeText(paths_.root()), what, why.message()));
}

void NodeCache::TellRecovered() const {
  Warn(fmt::format("the cache {} works again", EscapeText(paths_.root())));
}

void NodeCache::End(const Use& use, Side side) {
  if (!use.probing) return;
  bool recovered;
  {
    MutexLock lock(&mu_);
    recovered = SuspensionOf(side).Succeed() && IsHealthy();
  }
  if (recovered) TellRecovered();
}

bool NodeCache::IsHealthy() const {
  return !read_only_ && !reads_.suspended() && !writes_.suspended();
}

// Whoever asks for the space notices a disk that can only be read, also while nothing is written.
Result<uint64_t> NodeCache::FreeBytes() {
  auto free = fs_->FreeBytes(paths_.root());
  const bool read_only = free.status().code() == Code::kPermissionDenied;
  bool tell;
  {
    MutexLock lock(&mu_);
    if (read_only == read_only_) return free;
    const bool was_healthy = IsHealthy();
    read_only_ = read_only;
    tell = read_only ? was_healthy : IsHealthy();
  }
  if (tell && read_only) TellDegraded("written", free.status());
  if (tell && !read_only) TellRecovered();
  return free;
}

Status NodeCache::Read(const BlockId& id, uint32_t offset, MutableBytes out, const Context& ctx) {
  Mutex mu;
  CondVar ended;
  std::optional<Status> result;
  HR_RETURN_IF_ERROR(StartRead(id, offset, out, ctx, [&](Status status) {
    MutexLock lock(&mu);
    result = std::move(status);
    ended.NotifyOne();  // under the lock: the waiter owns it, and may end as soon as it is free
  }));
  MutexLock lock(&mu);
  while (!result) ended.Wait(&mu);
  return *std::move(result);
}

Status NodeCache::StartRead(const BlockId& id, uint32_t offset, MutableBytes out,
                            const Context& ctx, ReadDone done) {
  Use use = Begin(Side::kRead, ctx);
  if (!use) return Suspended(paths_.root());
  Status status = FaultPoint("cache.read");
  if (status.ok()) {
    constexpr uint64_t kShareKeptOpen = 64;  // of the limit: others' evictions free it later
    BlockReader::Wanted wanted{id, offset, out, ReadsDirectly(*use.state()),
                               use.state()->limit_bytes() / kShareKeptOpen};
    const uint64_t begun = NowNanos(), bytes = out.size();
    status = reader_->Start(wanted, ctx,
                            [this, use, id, begun, bytes, done = std::move(done)](Status read) {
                              if (read.ok()) CountRead(bytes, NowNanos() - begun);
                              done(FinishRead(use, id, std::move(read)));
                            });
  }
  return status.ok() ? status : FinishRead(use, id, std::move(status));
}

bool NodeCache::ReadsDirectly(const CacheState& state) const {
  if (options_.direct_reads != DirectReads::kAuto)
    return options_.direct_reads == DirectReads::kAlways;
  return memory_limit_bytes_ != 0 && state.used_bytes() > memory_limit_bytes_ / 2;
}

void NodeCache::CountRead(uint64_t bytes, uint64_t ns) {
  counts_.reads += 1;
  counts_.read_bytes += bytes;
  counts_.read_ns += ns;
}

// What becomes of the cache, and of what the caller is told.
Status NodeCache::FinishRead(const Use& use, const BlockId& id, Status status) {
  if (status.ok() || status.code() == Code::kNotFound || status.code() == Code::kDataLoss)
    End(use, Side::kRead);
  if (status.ok()) use.state()->Touch(id);
  if (status.ok() || status.code() == Code::kNotFound || IsOfTheCaller(status.code()))
    return status;
  reader_->Forget(id);
  if (status.code() == Code::kDataLoss) {
    if (DropFrom(use.state(), id)) counts_.dropped_blocks += 1;
    return status;
  }
  Fail(Side::kRead, status);
  return Suspended(paths_.root());
}

bool NodeCache::Contains(const BlockId& id) {
  return Peek() && fs_->Exists(paths_.Block(id, BlockFileKind::kBlock));
}

bool NodeCache::Drop(const BlockId& id) {
  Use use = Peek();
  return use && DropFrom(use.state(), id);
}

bool NodeCache::DropFrom(CacheState* state, const BlockId& id) {
  reader_->Forget(id);
  if (!fs_->Remove(paths_.Block(id, BlockFileKind::kBlock)).ok()) return false;
  state->AddUsed(-static_cast<int64_t>(BlockCost(id.length)));
  state->Forget(id);
  return true;
}

NodeCache::Claim::~Claim() {
  // While the lock is held, so that it is the own file that goes.
  (void)cache_->fs_->Remove(cache_->paths_.Block(id_, BlockFileKind::kLock));
}

Result<std::unique_ptr<NodeCache::Claim>> NodeCache::ClaimBlock(const BlockId& id) {
  const bool read_only = FreeBytes().status().code() == Code::kPermissionDenied;
  Use use = read_only ? Use() : Begin(Side::kWrite, Context());
  if (!use) {
    counts_.refused_blocks += 1;
    return Suspended(paths_.root());
  }
  uint64_t limit = use.state()->limit_bytes(), cost = BlockCost(id.length);
  if (cost > limit) {
    (void)Refuse(Error(Code::kResourceExhausted, "its limit of {} is less than a block of {}",
                       FormatSize(limit), FormatSize(cost)),
                 cost);
    return Suspended(paths_.root());
  }
  auto lock = LockBlock(id);
  if (!lock.ok() && lock.status().code() == Code::kFailedPrecondition) {
    // Admitted, perhaps, and not let go yet.
    if (fs_->Exists(paths_.Block(id, BlockFileKind::kBlock)))
      return Status(Code::kAlreadyExists, "the block is cached");
    return std::move(lock).status();
  }
  if (!lock.ok()) {
    Fail(Side::kWrite, lock.status());
    counts_.refused_blocks += 1;
    return Suspended(paths_.root());
  }
  std::unique_ptr<Claim> claim(new Claim(this, id, *std::move(lock), std::move(use)));
  if (fs_->Exists(paths_.Block(id, BlockFileKind::kBlock)))
    return Status(Code::kAlreadyExists, "the block is cached");
  // Left by a fetcher that was killed.
  if (fs_->Remove(paths_.Block(id, BlockFileKind::kTemporary)).ok())
    claim->use_.state()->AddUsed(-static_cast<int64_t>(BlockCost(id.length)));
  return claim;
}

Result<std::unique_ptr<FileLock>> NodeCache::LockBlock(const BlockId& id) {
  HR_RETURN_IF_ERROR(FaultPoint("cache.claim"));
  std::string path = paths_.Block(id, BlockFileKind::kLock);
  auto lock = fs_->Lock(path);
  if (lock.ok() || lock.status().code() != Code::kNotFound) return lock;
  // Folders are made anew only where the cache itself still is.
  HR_RETURN_IF_ERROR(fs_->Stat(paths_.Marker()).status());
  HR_RETURN_IF_ERROR(fs_->MakeDirectories(paths_.BlockFolder(FanOutOf(id))));
  return fs_->Lock(path);
}

Status NodeCache::Claim::Admit(const ObjectVersion& object, uint32_t block_bytes, Bytes data,
                               const ExpectedUse& use, Displace displace) {
  return cache_->Admit(use_, id_, object, block_bytes, data, {use, displace});
}

// 1. count the bytes, evicting for them, 2. write a temporary file, 3. rename it. No sync: a power
// cut may lose or tear the block, and its checksums tell. Killed after 1, the bytes stay counted
// until the next claim or count; killed after 2, the next claim of the block removes the temporary
// file.
Status NodeCache::Admit(const Use& use, const BlockId& id, const ObjectVersion& object,
                        uint32_t block_bytes, Bytes data, const Newcomer& newcomer) {
  CacheState* state = use.state();
  uint64_t cost = BlockCost(id.length);
  Status status = Reserve(state, cost, newcomer);
  if (!status.ok()) {
    // That a cache is full of what plans need is no news.
    const bool by_limit = state->used_bytes() + cost > state->limit_bytes();
    return Refuse(status, cost, newcomer.displace == Displace::kFarther || !by_limit);
  }
  // Before the block can be seen: it must not look like one that was never used.
  ExpectedUse now = newcomer.use;
  if (now.plan == kNoPlan) now.at = state->Now();
  state->SetUse(id, now);
  status = WriteBlock(id, data);
  // A quota shows only here. Giving up other blocks may help: but not where no file may be so
  // large, nor a disk that was full already.
  const bool may_help = BlockHeaderBytes(id.length) + id.length <= FileSizeLimit() && !use.probing;
  if (status.code() == Code::kResourceExhausted && may_help) {
    auto evicted = Evict(state, cost, newcomer);
    if (evicted.ok() && *evicted >= cost) status = WriteBlock(id, data);
  }
  if (!status.ok()) {
    // Others have filled the disk since its space was looked at?
    auto free = fs_->FreeBytes(paths_.root());
    const bool no_room =
        status.code() == Code::kResourceExhausted && free.ok() && *free < cost && may_help;
    (void)fs_->Remove(paths_.Block(id, BlockFileKind::kTemporary));
    state->AddUsed(-static_cast<int64_t>(cost));
    state->Forget(id);
    if (no_room) return Refuse(status, cost);
    counts_.refused_blocks += 1;
    Fail(Side::kWrite, status);
    return status;
  }
  End(use, Side::kWrite);
  counts_.admitted_blocks += 1;
  counts_.admitted_bytes += id.length;
  NoteAdmitted(cost);
  Describe(state, id, {object, block_bytes});
  return OkStatus();
}

Status NodeCache::Refuse(const Status& why, uint64_t cost, bool tell) {
  counts_.refused_blocks += 1;
  if (!tell) return why;
  bool first;
  {
    MutexLock lock(&mu_);
    first = !full_;
    full_ = true;
    refused_cost_ = std::max(refused_cost_, cost);
    refused_ms_ = SteadyMs();
  }
  if (first)
    Warn(fmt::format("the cache {} takes nothing more: {}", EscapeText(paths_.root()),
                     why.message()));
  return why;
}

// That a small block fits where large ones do not changes nothing, nor does one that takes the
// place of another.
void NodeCache::NoteAdmitted(uint64_t cost) {
  constexpr uint64_t kCalmMs = 60'000;
  MutexLock lock(&mu_);
  if (!full_ || cost < refused_cost_ || SteadyMs() < refused_ms_ + kCalmMs) return;
  full_ = false;
  refused_cost_ = 0;
}

Status NodeCache::WriteBlock(const BlockId& id, Bytes data) {
  std::string temporary = paths_.Block(id, BlockFileKind::kTemporary);
  if (data.size() != id.length)
    return Error(Code::kInternal, "a block of {} bytes, expected {}", data.size(), id.length);
  HR_RETURN_IF_ERROR(FaultPoint("cache.admit.before_write"));
  const std::string header = EncodeBlockHeader(id, data);
  const std::array<Bytes, 2> parts{AsBytes(header), data};
  HR_RETURN_IF_ERROR(fs_->WriteDirect(temporary, parts));
  HR_RETURN_IF_ERROR(FaultPoint("cache.admit.before_rename"));
  HR_RETURN_IF_ERROR(fs_->Rename(temporary, paths_.Block(id, BlockFileKind::kBlock)));
  return FaultPoint("cache.admit.after_rename");
}

bool NodeCache::WasDescribed(const ObjectId& id) {
  MutexLock lock(&mu_);
  if (std::find(described_.begin(), described_.end(), id) != described_.end()) return true;
  if (described_.size() < kDescribedRing) {
    described_.push_back(id);
  } else {
    described_[next_described_++ % kDescribedRing] = id;
  }
  return false;
}

// For people only: a failure here is nobody's trouble.
void NodeCache::Describe(CacheState* state, const BlockId& id, const ObjectDescriptor& object) {
  // Looked for now and then: when its last block went, it went too.
  constexpr uint64_t kLookEvery = 16;
  if (WasDescribed(id.object) && id.number % kLookEvery != 0) return;
  std::string path = paths_.Descriptor(id.object);
  if (fs_->Exists(path)) return;
  // Of this block alone, which the caller has a claim on.
  std::string temporary = fmt::format("{}.{:x}.tmp", path, id.number);
  auto write = [&]() -> Status {
    HR_RETURN_IF_ERROR(fs_->MakeDirectories(paths_.DescriptorFolder(FanOutOf(id.object))));
    HR_ASSIGN_OR_RETURN(auto file, fs_->Create(temporary));
    HR_RETURN_IF_ERROR(file->Append(AsBytes(EncodeDescriptor(object))));
    HR_RETURN_IF_ERROR(file->Close());
    return fs_->Rename(temporary, path);
  };
  if (write().ok()) {
    state->AddUsed(kDescriptorCost);
  } else {
    (void)fs_->Remove(temporary);
  }
}

void NodeCache::Touch(const BlockId& id) {
  if (Use use = Peek()) use.state()->Touch(id);
}

void NodeCache::SetUse(const BlockId& id, const ExpectedUse& expected) {
  if (Use use = Peek()) use.state()->SetUse(id, expected);
}

Tick NodeCache::Now() {
  Use use = Peek();
  return use ? use.state()->Now() : SteadyMs();
}

Result<NodeCache::PlanSlot> NodeCache::JoinPlans() {
  Use use = Peek();
  if (!use) return Suspended(paths_.root());
  std::vector<PlanProgress> progress = use.state()->AllProgress();
  std::vector<uint32_t> plans;
  for (uint32_t plan = 1; plan < kNumPlans; ++plan) plans.push_back(plan);
  // Those that have rested longest: blocks of other plans are least likely to name them.
  std::stable_sort(plans.begin(), plans.end(), [&](uint32_t a, uint32_t b) {
    return progress[a].advanced < progress[b].advanced;
  });
  for (uint32_t plan : plans) {
    auto slot = JoinPlansAs(plan);
    if (slot.ok() || slot.status().code() != Code::kAlreadyExists) return slot;
  }
  return Status(Code::kUnavailable, "too many plans at once for one cache");
}

Result<NodeCache::PlanSlot> NodeCache::JoinPlansAs(uint32_t plan) {
  Use use = Peek();
  if (!use) return Suspended(paths_.root());
  auto lock = fs_->Lock(paths_.State(fmt::format("plan-{}.lock", plan)));
  if (!lock.ok() && lock.status().code() == Code::kFailedPrecondition)
    return Error(Code::kAlreadyExists, "another plan has the number {}", plan);
  if (!lock.ok()) return Suspended(paths_.root());
  use.state()->SetProgress(plan, {0, use.state()->Now(), 0});
  PlanSlot slot;
  slot.plan = plan;
  slot.locks.push_back(*std::move(lock));
  return slot;
}

void NodeCache::SetProgress(const PlanSlot& slot, uint64_t position, uint64_t ns_per_position) {
  if (Use use = Peek())
    use.state()->SetProgress(slot.plan, {position, use.state()->Now(), ns_per_position});
}

uint64_t NodeCache::used_bytes() {
  Use use = Peek();
  return use ? use.state()->used_bytes() : 0;
}

uint64_t NodeCache::limit_bytes() {
  Use use = Peek();
  return use ? use.state()->limit_bytes() : 0;
}

bool NodeCache::healthy() {
  MutexLock lock(&mu_);
  return mounted_ && IsHealthy();
}

NodeCacheCounters& NodeCacheCounters::operator+=(const NodeCacheCounters& other) {
  admitted_blocks += other.admitted_blocks;
  admitted_bytes += other.admitted_bytes;
  refused_blocks += other.refused_blocks;
  dropped_blocks += other.dropped_blocks;
  evicted_blocks += other.evicted_blocks;
  evicted_bytes += other.evicted_bytes;
  reads += other.reads;
  read_bytes += other.read_bytes;
  read_ns += other.read_ns;
  read_failures += other.read_failures;
  write_failures += other.write_failures;
  degraded += other.degraded;
  return *this;
}

}  // namespace headrace::cache
