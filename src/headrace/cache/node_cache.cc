#include "headrace/cache/node_cache.h"

#include <fmt/core.h>

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/fault_point.h"
#include "headrace/base/text.h"

namespace headrace::cache {
namespace {

constexpr size_t kDescribedRing = 256;
constexpr uint64_t kDefaultLimit = uint64_t{16} << 30, kDefaultFreeFloor = uint64_t{1} << 30;

// Room for a header and for one page, once for each thread.
AlignedBuffer& Scratch() {
  thread_local AlignedBuffer scratch;
  return scratch;
}

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
      writes_(options_.suspension) {}

NodeCache::~NodeCache() {
  if (mounted_) (void)fs_->Remove(mounted_->presence_path);
}

Result<std::unique_ptr<NodeCache>> NodeCache::Open(FileSystem* fs, NodeCacheOptions options,
                                                   const Context& ctx) {
  if (options.directory.empty())
    return Status(Code::kInvalidArgument, "the cache needs a directory");
  std::unique_ptr<NodeCache> cache(new NodeCache(fs, std::move(options)));
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
  {
    MutexLock lock(&mu_);
    old = mounted_;
  }
  if (old) {
    HR_ASSIGN_OR_RETURN(FileInfo marker, fs_->Stat(paths_.Marker()));
    if (marker.device == old->device && marker.inode == old->inode) return OkStatus();
  }
  // Once it was there it is never made anew: what is at its place may be another disk.
  HR_ASSIGN_OR_RETURN(std::shared_ptr<MountedCache> opened,
                      OpenDirectory(!old && options_.create, ctx));
  MutexLock lock(&mu_);
  mounted_ = std::move(opened);
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
    if (!use.probing) {
      use.mounted = mounted_;
      return use;
    }
  }
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
  MutexLock lock(&mu_);
  if (!reads_.suspended()) use.mounted = mounted_;
  return use;
}

void NodeCache::Fail(Side side, const Status& why) {
  (side == Side::kRead ? counts_.read_failures : counts_.write_failures) += 1;
  bool first;
  {
    MutexLock lock(&mu_);
    bool healthy = !reads_.suspended() && !writes_.suspended();
    first = writes_.Fail(SteadyMs()) && healthy;
    // What cannot be read is of no use to write.
    if (side == Side::kRead) (void)reads_.Fail(SteadyMs());
  }
  if (!first) return;
  counts_.degraded += 1;
  Warn(fmt::format(
      "the cache {} cannot be {} ({}); going on without it, and trying it again now "
      "and then",
      EscapeText(paths_.root()), side == Side::kRead ? "read" : "written", why.message()));
}

void NodeCache::End(const Use& use, Side side) {
  if (!use.probing) return;
  bool recovered;
  {
    MutexLock lock(&mu_);
    recovered = SuspensionOf(side).Succeed() && !reads_.suspended() && !writes_.suspended();
  }
  if (recovered) Warn(fmt::format("the cache {} works again", EscapeText(paths_.root())));
}

Status NodeCache::Read(const BlockId& id, uint32_t offset, MutableBytes out, const Context& ctx) {
  Use use = Begin(Side::kRead, ctx);
  if (!use) return Suspended(paths_.root());
  Status status = ReadBlock(id, offset, out, ctx);
  if (status.ok() || status.code() == Code::kNotFound || status.code() == Code::kDataLoss)
    End(use, Side::kRead);
  if (status.ok()) use.state()->Touch(id);
  if (status.ok() || status.code() == Code::kNotFound || IsOfTheCaller(status.code()))
    return status;
  if (status.code() == Code::kDataLoss) {
    if (DropFrom(use.state(), id)) counts_.dropped_blocks += 1;
    return status;
  }
  Fail(Side::kRead, status);
  return Suspended(paths_.root());
}

Status NodeCache::ReadBlock(const BlockId& id, uint32_t offset, MutableBytes out,
                            const Context& ctx) {
  HR_RETURN_IF_ERROR(FaultPoint("cache.read"));
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(paths_.Block(id, BlockFileKind::kBlock)));
  return ReadPages(*file, id, offset, out, ctx);
}

// Whole pages are read and checked: those that `out` covers whole where they go, the others in a
// buffer of the thread.
Status NodeCache::ReadPages(const RandomAccessFile& file, const BlockId& id, uint32_t offset,
                            MutableBytes out, const Context& ctx) {
  uint32_t header_bytes = BlockHeaderBytes(id.length);
  if (offset > id.length || out.size() > id.length - offset)
    return Error(Code::kInternal, "bytes {} to {} of a block of {}", offset, offset + out.size(),
                 id.length);
  if (file.size() != uint64_t{header_bytes} + id.length)
    return Error(Code::kDataLoss, "a cached block has {} bytes, expected {}", file.size(),
                 uint64_t{header_bytes} + id.length);
  if (!Scratch().Reserve(std::max(header_bytes, kPageBytes)))
    return Status(Code::kResourceExhausted, "no memory to read a block");
  MutableBytes scratch(Scratch().data(), Scratch().capacity());
  HR_RETURN_IF_ERROR(file.ReadAt(0, scratch.first(header_bytes), ctx));
  HR_ASSIGN_OR_RETURN(BlockHeader header, ParseBlockHeader(scratch.first(header_bytes)));
  if (header.id != id) return Status(Code::kDataLoss, "a cached block is another one");
  auto check = [&](uint32_t page, Bytes bytes) {
    return Crc32c(bytes) == header.page_checksums[page]
               ? OkStatus()
               : Error(Code::kDataLoss, "page {} of a cached block has a wrong checksum", page);
  };
  while (!out.empty()) {
    uint32_t page = offset / kPageBytes, in_page = offset % kPageBytes;
    uint32_t page_begin = page * kPageBytes;
    uint32_t page_length = std::min(kPageBytes, id.length - page_begin);
    if (in_page == 0 && out.size() >= page_length) {
      // As many whole pages as there are, in one read.
      size_t whole = std::min<size_t>(out.size(), id.length - offset);
      if (offset + whole != id.length) whole -= whole % kPageBytes;
      HR_RETURN_IF_ERROR(file.ReadAt(header_bytes + offset, out.first(whole), ctx));
      for (size_t at = 0; at < whole; at += kPageBytes, ++page)
        HR_RETURN_IF_ERROR(check(page, out.subspan(at, std::min<size_t>(kPageBytes, whole - at))));
      offset += static_cast<uint32_t>(whole);
      out = out.subspan(whole);
      continue;
    }
    MutableBytes bytes = scratch.first(page_length);
    HR_RETURN_IF_ERROR(file.ReadAt(header_bytes + page_begin, bytes, ctx));
    HR_RETURN_IF_ERROR(check(page, bytes));
    size_t wanted = std::min<size_t>(out.size(), page_length - in_page);
    std::copy_n(bytes.begin() + in_page, wanted, out.begin());
    offset += static_cast<uint32_t>(wanted);
    out = out.subspan(wanted);
  }
  return OkStatus();
}

bool NodeCache::Contains(const BlockId& id) {
  return Peek() && fs_->Exists(paths_.Block(id, BlockFileKind::kBlock));
}

bool NodeCache::Drop(const BlockId& id) {
  Use use = Peek();
  return use && DropFrom(use.state(), id);
}

bool NodeCache::DropFrom(CacheState* state, const BlockId& id) {
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
  Use use = Begin(Side::kWrite, Context());
  if (!use) {
    counts_.refused_blocks += 1;
    return Suspended(paths_.root());
  }
  uint64_t limit = use.state()->limit_bytes();
  if (BlockCost(id.length) > limit) {
    (void)Refuse(Error(Code::kResourceExhausted, "its limit of {} is less than a block of {}",
                       FormatSize(limit), FormatSize(BlockCost(id.length))));
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
                               const ExpectedUse& use) {
  return cache_->Admit(use_, id_, object, block_bytes, data, use);
}

// 1. count the bytes, evicting for them, 2. write a temporary file, 3. rename it. No sync: a power
// cut may lose or tear the block, and its checksums tell. Killed after 1, the bytes stay counted
// until the next claim or count; killed after 2, the next claim of the block removes the temporary
// file.
Status NodeCache::Admit(const Use& use, const BlockId& id, const ObjectVersion& object,
                        uint32_t block_bytes, Bytes data, const ExpectedUse& expected) {
  CacheState* state = use.state();
  uint64_t cost = BlockCost(id.length);
  Status status = Reserve(state, cost);
  if (!status.ok()) return Refuse(status);
  // Before the block can be seen: it must not look like one that was never used.
  ExpectedUse now = expected;
  if (now.plan == kNoPlan) now.at = state->Now();
  state->SetUse(id, now);
  status = WriteBlock(id, data);
  if (status.code() == Code::kResourceExhausted) {
    // A quota shows only here. Giving up other blocks may help.
    auto evicted = Evict(state, cost);
    if (evicted.ok() && *evicted >= cost) status = WriteBlock(id, data);
  }
  if (!status.ok()) {
    (void)fs_->Remove(paths_.Block(id, BlockFileKind::kTemporary));
    state->AddUsed(-static_cast<int64_t>(cost));
    state->Forget(id);
    counts_.refused_blocks += 1;
    Fail(Side::kWrite, status);
    return status;
  }
  End(use, Side::kWrite);
  counts_.admitted_blocks += 1;
  counts_.admitted_bytes += id.length;
  {
    MutexLock lock(&mu_);
    full_ = false;
  }
  Describe(state, id, {object, block_bytes});
  return OkStatus();
}

Status NodeCache::Refuse(const Status& why) {
  counts_.refused_blocks += 1;
  bool first;
  {
    MutexLock lock(&mu_);
    first = !full_;
    full_ = true;
  }
  if (first)
    Warn(fmt::format("the cache {} takes nothing more: {}", EscapeText(paths_.root()),
                     why.message()));
  return why;
}

Status NodeCache::WriteBlock(const BlockId& id, Bytes data) {
  std::string temporary = paths_.Block(id, BlockFileKind::kTemporary);
  if (data.size() != id.length)
    return Error(Code::kInternal, "a block of {} bytes, expected {}", data.size(), id.length);
  HR_RETURN_IF_ERROR(FaultPoint("cache.admit.before_write"));
  HR_ASSIGN_OR_RETURN(auto file, fs_->Create(temporary));
  HR_RETURN_IF_ERROR(file->Append(AsBytes(EncodeBlockHeader(id, data))));
  HR_RETURN_IF_ERROR(file->Append(data));
  HR_RETURN_IF_ERROR(file->Close());
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
    auto lock = fs_->Lock(paths_.State(fmt::format("plan-{}.lock", plan)));
    if (!lock.ok() && lock.status().code() == Code::kFailedPrecondition) continue;
    if (!lock.ok()) return Suspended(paths_.root());
    use.state()->SetProgress(plan, {0, use.state()->Now(), 0});
    return PlanSlot{plan, *std::move(lock)};
  }
  return Status(Code::kUnavailable, "too many plans at once for one cache");
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
  return mounted_ && !reads_.suspended() && !writes_.suspended();
}

NodeCacheCounters NodeCache::counters() const {
  NodeCacheCounters now;
  now.admitted_blocks = counts_.admitted_blocks;
  now.admitted_bytes = counts_.admitted_bytes;
  now.refused_blocks = counts_.refused_blocks;
  now.dropped_blocks = counts_.dropped_blocks;
  now.evicted_blocks = counts_.evicted_blocks;
  now.evicted_bytes = counts_.evicted_bytes;
  now.read_failures = counts_.read_failures;
  now.write_failures = counts_.write_failures;
  now.degraded = counts_.degraded;
  return now;
}

}  // namespace headrace::cache
