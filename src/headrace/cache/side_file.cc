#include "headrace/cache/side_file.h"

#include <algorithm>
#include <cstring>

#include "headrace/base/crc32c.h"
#include "headrace/base/fault_point.h"
#include "headrace/base/mutex.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"

namespace headrace::cache {
namespace {

constexpr size_t kEntryHead = 24;
// The offset of an entry has 40 bits, in units of 8.
constexpr uint64_t kMaxRecordsBytes = uint64_t{1} << 43;

constexpr uint64_t RoundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// Of the cache's limit a table may take a sixteenth, the records a quarter.
uint64_t MostTableBytes(NodeCache* node) { return node->limit_bytes() / 16; }
uint64_t MostRecordsBytes(NodeCache* node) {
  return std::min(node->limit_bytes() / 4, kMaxRecordsBytes);
}

// Opening takes less than a millisecond, unless room must be made, or the machine is so busy that a
// process comes to a halt in the middle of it.
Result<std::unique_ptr<FileLock>> LockSide(FileSystem* fs, const std::string& path) {
  constexpr auto kPatience = std::chrono::seconds(30);
  const auto give_up = Context::Clock::now() + kPatience;
  Mutex mu;
  CondVar never;
  while (true) {
    auto lock = fs->Lock(path);
    if (lock.ok() || lock.status().code() != Code::kFailedPrecondition) return lock;
    if (Context::Clock::now() > give_up)
      return Error(Code::kUnavailable, "another process has been opening {} for long",
                   EscapeText(path));
    MutexLock waiting(&mu);
    never.WaitFor(&mu, std::chrono::milliseconds(1));
  }
}

}  // namespace

ObjectId IdentifySideFile(std::initializer_list<std::string_view> texts) {
  Sha256 sha;
  auto add = [&sha](std::string_view text) {
    std::byte length[8];
    StoreLittle<uint64_t>(length, text.size());
    sha.Update(Bytes(length));
    sha.Update(text);
  };
  add("headrace side file 1");
  for (std::string_view text : texts) add(text);
  return ObjectId::FromHex(sha.Finish().substr(0, 32)).value();
}

uint64_t SideEntryBytes(uint64_t record_bytes) { return RoundUp(kEntryHead + record_bytes, 8); }

void EncodeSideEntry(uint64_t owner, uint64_t slot, Bytes record, std::byte* out) {
  const size_t used = kEntryHead + record.size();
  std::memset(out + used, 0, SideEntryBytes(record.size()) - used);
  StoreLittle<uint32_t>(out + 4, static_cast<uint32_t>(record.size()));
  StoreLittle<uint64_t>(out + 8, owner);
  StoreLittle<uint64_t>(out + 16, slot);
  if (!record.empty()) std::memcpy(out + kEntryHead, record.data(), record.size());
  StoreLittle<uint32_t>(out, Crc32c(Bytes(out + 4, used - 4)));
}

std::optional<Bytes> ParseSideEntry(Bytes entry, uint64_t owner, uint64_t slot) {
  if (entry.size() < kEntryHead) return std::nullopt;
  const uint32_t length = LoadLittle<uint32_t>(entry.data() + 4);
  if (length > kMaxSideRecordBytes || SideEntryBytes(length) != entry.size() ||
      LoadLittle<uint64_t>(entry.data() + 8) != owner ||
      LoadLittle<uint64_t>(entry.data() + 16) != slot ||
      LoadLittle<uint32_t>(entry.data()) != Crc32c(entry.subspan(4, kEntryHead - 4 + length)))
    return std::nullopt;
  return entry.subspan(kEntryHead, length);
}

uint64_t SideTable::OwnerOf(const ObjectId& id, uint64_t num_slots) {
  return HashKey(id.high, id.low, num_slots) | uint64_t{1} << 63;
}

SideFile::SideFile(SidePlace place, const ObjectId& id, uint64_t num_slots)
    : place_(std::move(place)),
      id_(id),
      num_slots_(num_slots),
      owner_(SideTable::OwnerOf(id, num_slots)) {}

Result<std::unique_ptr<SideFile>> SideFile::Open(SidePlace place, const ObjectId& id,
                                                 uint64_t num_slots) {
  NodeCache* cache = place ? place(id) : nullptr;
  if (cache == nullptr || !cache->healthy())
    return Status(Code::kUnavailable, "there is no cache that works at the moment");
  std::unique_ptr<SideFile> file(new SideFile(std::move(place), id, num_slots));
  HR_RETURN_IF_ERROR(file->OpenFiles(cache));
  cache->TouchSide(id);
  return file;
}

// 1. lock, 2. the table: an old one as it is, a new one with its bytes counted first, 3. the
// records. A kill at any point leaves what the next one can go on with.
Status SideFile::OpenFiles(NodeCache* node) {
  FileSystem* fs = node->files();
  const CachePaths& paths = node->paths();
  // Nothing is made where the cache itself is not any more.
  HR_RETURN_IF_ERROR(fs->Stat(paths.Marker()).status());
  HR_RETURN_IF_ERROR(fs->MakeDirectories(paths.SideFolder()));
  HR_ASSIGN_OR_RETURN(auto lock, LockSide(fs, paths.Side(id_, "lock")));
  HR_RETURN_IF_ERROR(OpenTable(node));
  HR_ASSIGN_OR_RETURN(records_, fs->OpenShared(paths.Side(id_, "records")));
  return OkStatus();
}

Status SideFile::OpenTable(NodeCache* node) {
  FileSystem* fs = node->files();
  const std::string path = node->paths().Side(id_, "table");
  const uint64_t words = SideTable::kFirstSlot + num_slots_;
  auto info = fs->Stat(path);
  if (info.ok() && info->size_bytes == words * sizeof(uint64_t)) {
    HR_ASSIGN_OR_RETURN(table_, fs->OpenSharedWords(path, words));
    if (table_->Load(SideTable::kOwner) == owner_) return OkStatus();
    table_.reset();
  }
  if (!info.ok() && info.status().code() != Code::kNotFound) return std::move(info).status();
  if (info.ok()) {
    // Given up by one that was killed, or torn by a power cut.
    HR_RETURN_IF_ERROR(fs->Remove(path));
    node->UncountSide(SideTableCost(info->size_bytes));
  }
  return MakeTable(node);
}

Status SideFile::MakeTable(NodeCache* node) {
  FileSystem* fs = node->files();
  const uint64_t words = SideTable::kFirstSlot + num_slots_, bytes = words * sizeof(uint64_t);
  const std::string path = node->paths().Side(id_, "table");
  const std::string records = node->paths().Side(id_, "records");
  if (bytes > MostTableBytes(node))
    return Error(Code::kResourceExhausted,
                 "a table of {} slots takes more than a sixteenth of the cache {}", num_slots_,
                 EscapeText(node->paths().root()));
  if (auto left = fs->Stat(records); left.ok()) {  // without their table of no use
    HR_RETURN_IF_ERROR(fs->Remove(records));
    node->UncountSide(RoundUp(left->size_bytes, SideTable::kStepBytes));
  }
  HR_RETURN_IF_ERROR(node->CountSide(SideTableCost(bytes)));
  HR_RETURN_IF_ERROR(FaultPoint("cache.side.before_table"));
  auto table = fs->OpenSharedWords(path, words);
  if (!table.ok()) {
    (void)fs->Remove(path);
    node->UncountSide(SideTableCost(bytes));
    return std::move(table).status();
  }
  table_ = *std::move(table);
  HR_RETURN_IF_ERROR(FaultPoint("cache.side.before_owner"));
  table_->Store(SideTable::kOwner, owner_);
  return OkStatus();
}

bool SideFile::usable() const { return !failed_ && table_->Load(SideTable::kOwner) == owner_; }

void SideFile::Fail(NodeCache* node, bool reading, const Status& why) {
  failed_ = true;
  if (node) node->FailSide(reading, why);
}

std::optional<Bytes> SideFile::Find(uint64_t slot) {
  constexpr uint32_t kTouchEvery = 64;
  if (!usable()) return std::nullopt;
  const uint64_t place = table_->Load(SideTable::kFirstSlot + slot);
  if (place == 0) return std::nullopt;
  const uint64_t bytes = SideTable::BytesOf(place);
  std::optional<Bytes> record;
  if (bytes <= SideEntryBytes(kMaxSideRecordBytes) && buffer_.Reserve(bytes)) {
    MutableBytes entry(buffer_.data(), bytes);
    auto read = records_->ReadSome(SideTable::OffsetOf(place), entry);
    if (!read.ok()) {
      Fail(place_(id_), /*reading=*/true, read.status());
      return std::nullopt;
    }
    if (*read == bytes) record = ParseSideEntry(entry, owner_, slot);
  }
  if (!record) {
    table_->Store(SideTable::kFirstSlot + slot, 0);
  } else if (finds_++ % kTouchEvery == 0) {
    if (NodeCache* node = place_(id_)) node->TouchSide(id_);
  }
  return record;
}

// Bytes are counted against the cache's limit before the file may grow into them: so much that all
// of its users together never write more.
bool SideFile::TakeSpace(NodeCache* node, uint64_t bytes, uint64_t* offset) {
  constexpr int kAttempts = 4;
  const uint64_t most = MostRecordsBytes(node);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint64_t end = table_->Load(SideTable::kEnd);
    const uint64_t counted = table_->Load(SideTable::kCounted);
    if (end > most || bytes > most - end || end % 8 != 0) return false;
    if (end + bytes > counted) {
      const uint64_t more = RoundUp(end + bytes - counted, SideTable::kStepBytes);
      if (counted + more > most || !node->CountSide(more).ok()) return false;
      if (!usable()) {  // it was this file that had to make room
        node->UncountSide(more);
        return false;
      }
      table_->Add(SideTable::kCounted, more);
    }
    const uint64_t taken = table_->Add(SideTable::kEnd, bytes);
    *offset = taken - bytes;
    // Others may have been faster: then the bytes stay unused.
    if (taken <= table_->Load(SideTable::kCounted)) return true;
  }
  return false;
}

// 1. take a place, 2. write the entry, 3. say where it is. Killed before 3, its bytes are lost.
bool SideFile::Add(uint64_t slot, Bytes record) {
  NodeCache* node = place_(id_);
  if (!usable() || node == nullptr || record.size() > kMaxSideRecordBytes) return false;
  const uint64_t bytes = SideEntryBytes(record.size());
  uint64_t offset = 0;
  if (!buffer_.Reserve(bytes) || !TakeSpace(node, bytes, &offset)) return false;
  EncodeSideEntry(owner_, slot, record, buffer_.data());
  Status written = FaultPoint("cache.side.before_write");
  if (written.ok()) written = records_->WriteAt(offset, Bytes(buffer_.data(), bytes));
  if (written.ok()) written = FaultPoint("cache.side.after_write");
  if (!written.ok()) {
    Fail(node, /*reading=*/false, written);
    return false;
  }
  table_->Store(SideTable::kFirstSlot + slot, SideTable::EncodePlace(offset, bytes));
  return true;
}

}  // namespace headrace::cache
