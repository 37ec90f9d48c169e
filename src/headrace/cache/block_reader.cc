#include "headrace/cache/block_reader.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "headrace/base/crc32c.h"

namespace headrace::cache {

namespace {

// What is taken from the system's memory at once: it is checked while it is in the nearer caches.
constexpr uint32_t kStrideBytes = 4 * kPageBytes;
// Larger headers are not remembered.
constexpr size_t kMaxHeaderPages = 1024;

// Bytes that follow each other in a block, and where they are to be copied to; null: not at all.
struct Segment {
  Bytes bytes;
  std::byte* to = nullptr;
};

// Checks the pages from `page` on that the segments make up, copying what is to be copied.
Status CheckPages(const std::vector<uint32_t>& checksums, uint32_t page,
                  std::array<Segment, 3> segments) {
  uint32_t crc = 0;
  size_t left = kPageBytes;  // of the page
  auto end_page = [&] {
    if (crc != checksums[page])
      return Error(Code::kDataLoss, "page {} of a cached block has a wrong checksum", page);
    ++page;
    crc = 0;
    left = kPageBytes;
    return OkStatus();
  };
  for (Segment& segment : segments) {
    while (!segment.bytes.empty()) {
      Bytes some = segment.bytes.first(std::min(left, segment.bytes.size()));
      crc = segment.to ? CopyWithCrc32c(segment.to, some, crc) : Crc32c(some, crc);
      if (segment.to) segment.to += some.size();
      segment.bytes = segment.bytes.subspan(some.size());
      left -= some.size();
      if (left == 0) HR_RETURN_IF_ERROR(end_page());
    }
  }
  return left == kPageBytes ? OkStatus() : end_page();
}

bool IsSameFile(const FileInfo& a, const FileInfo& b) {
  return a.device == b.device && a.inode == b.inode && a.size_bytes == b.size_bytes &&
         a.mtime_ns == b.mtime_ns;
}

uint64_t RoundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

// For what of the first and last page is not wanted; once for each thread.
AlignedBuffer& Scratch() {
  thread_local AlignedBuffer scratch;
  return scratch;
}

}  // namespace

// Whole pages [begin, end) of a block: `head` and `tail` bytes are read and checked only, and `out`
// is where those between go.
struct BlockReader::Slice {
  uint32_t begin, end;
  size_t head, tail;
  MutableBytes out;

  uint32_t bytes() const { return end - begin; }
  uint32_t first_page() const { return begin / kPageBytes; }
  // Parts to read into, with room for what is not wanted.
  std::array<MutableBytes, 3> Parts(MutableBytes room) const {
    return {room.first(head), out, room.subspan(head, tail)};
  }
};

// A read that goes to the disk, at least in part.
struct BlockReader::Read {
  OpenBlockPtr block;
  std::unique_ptr<RandomAccessFile> direct;  // null: through the page cache
  Wanted wanted;
  Context ctx;
  Done done;
  std::atomic<uint32_t> pending{0};  // pieces
  Mutex mu;                          // order: none is taken under it
  Status status HR_GUARDED_BY(mu);   // the first failure
};

struct BlockReader::Piece {
  std::shared_ptr<Read> read;
  Slice slice;
  Memory memory = {};

  MutableBytes room() const { return {memory.get(), kPieceBytes}; }
};

void BlockReader::FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

BlockReader::BlockReader(FileSystem* fs, const CachePaths* paths, const Options& options)
    : fs_(fs),
      paths_(paths),
      options_(options),
      open_(options.max_open_files),
      headers_(options.max_headers) {}

Result<std::unique_ptr<BlockReader>> BlockReader::Create(FileSystem* fs, const CachePaths* paths,
                                                         const Options& options) {
  std::unique_ptr<BlockReader> reader(new BlockReader(fs, paths, options));
  HR_ASSIGN_OR_RETURN(reader->io_, AsyncReader::Create(options.io));
  return reader;
}

BlockReader::~BlockReader() {
  MutexLock lock(&mu_);
  while (num_pieces_ > 0) idle_cv_.Wait(&mu_);
}

void BlockReader::Forget(const BlockId& id) {
  MutexLock lock(&mu_);
  open_.Erase(id);
  headers_.Erase(id);
}

// ---------------------------------------------------------------- files

Result<BlockReader::OpenBlockPtr> BlockReader::Open(const Wanted& wanted, const Context& ctx) {
  const BlockId& id = wanted.id;
  OpenBlockPtr kept;
  Header header;
  {
    MutexLock lock(&mu_);
    if (const OpenBlockPtr* found = open_.Find(id)) kept = *found;
    if (const Header* found = headers_.Find(id)) header = *found;
  }
  std::string path = paths_->Block(id, BlockFileKind::kBlock);
  if (kept) {
    auto there = fs_->Stat(path);
    if (there.ok() && IsSameFile(*there, kept->file->info())) return kept;
    Forget(id);
    HR_RETURN_IF_ERROR(there.status());
  }
  auto block = std::make_shared<OpenBlock>();
  HR_ASSIGN_OR_RETURN(block->file, fs_->OpenForRead(path));
  uint64_t expected = uint64_t{BlockHeaderBytes(id.length)} + id.length;
  if (block->file->size() != expected)
    return Error(Code::kDataLoss, "a cached block has {} bytes, expected {}", block->file->size(),
                 expected);
  FileInfo info = block->file->info();
  bool known = header.pages && IsSameFile(header.file, info);
  block->pages = std::move(header.pages);
  if (!known) {
    HR_ASSIGN_OR_RETURN(block->pages, ReadHeader(*block->file, id, ctx));
  }
  MutexLock lock(&mu_);
  if (!known && block->pages->size() <= kMaxHeaderPages)
    headers_.Insert(id, {info, block->pages}, 0);
  if (id.length <= wanted.max_open_bytes) {
    open_.Insert(id, block, id.length);
    open_.Shrink(wanted.max_open_bytes);
  }
  return OpenBlockPtr(std::move(block));
}

Result<BlockReader::Checksums> BlockReader::ReadHeader(const RandomAccessFile& file,
                                                       const BlockId& id,
                                                       const Context& ctx) const {
  AlignedBuffer bytes;
  uint32_t size = BlockHeaderBytes(id.length);
  if (!bytes.Reserve(size, true))
    return Status(Code::kResourceExhausted, "no memory to read a block");
  MutableBytes out(bytes.data(), size);
  HR_RETURN_IF_ERROR(file.ReadAt(0, out, ctx));
  HR_ASSIGN_OR_RETURN(BlockHeader header, ParseBlockHeader(out));
  if (header.id != id) return Status(Code::kDataLoss, "a cached block is another one");
  return std::make_shared<const std::vector<uint32_t>>(std::move(header.page_checksums));
}

// ---------------------------------------------------------------- reads

BlockReader::Slice BlockReader::Cut(const Wanted& wanted, uint32_t begin, uint32_t end) {
  uint32_t first = std::max(wanted.offset, begin);
  auto wanted_end = static_cast<uint32_t>(wanted.offset + wanted.out.size());
  uint32_t last = std::min(wanted_end, end);
  return {begin, end, first - begin, end - last,
          wanted.out.subspan(first - wanted.offset, last - first)};
}

Status BlockReader::Start(const Wanted& wanted, const Context& ctx, Done done) {
  const BlockId& id = wanted.id;
  if (wanted.offset > id.length || wanted.out.size() > id.length - wanted.offset)
    return Error(Code::kInternal, "bytes {} to {} of a block of {}", wanted.offset,
                 wanted.offset + wanted.out.size(), id.length);
  HR_ASSIGN_OR_RETURN(OpenBlockPtr block, Open(wanted, ctx));
  uint32_t begin = wanted.offset / kPageBytes * kPageBytes;
  auto end = static_cast<uint32_t>(
      std::min<uint64_t>(RoundUp(wanted.offset + wanted.out.size(), kPageBytes), id.length));
  if (wanted.out.empty()) end = begin;
  HR_ASSIGN_OR_RETURN(begin, TakeResident(*block, wanted, begin, end, ctx));
  if (begin >= end) {
    done(OkStatus());
    return OkStatus();
  }
  auto read = std::make_shared<Read>();
  read->block = std::move(block);
  read->wanted = wanted;
  read->ctx = ctx;
  read->done = std::move(done);
  if (wanted.direct) {
    HR_ASSIGN_OR_RETURN(read->direct, fs_->OpenDirect(read->block->file->path()));
  }
  {
    MutexLock lock(&mu_);
    for (; begin < end; begin += kPieceBytes) {
      Slice slice = Cut(wanted, begin, std::min(end, begin + kPieceBytes));
      waiting_.push_back(std::make_shared<Piece>(Piece{read, slice}));
      read->pending += 1;
      ++num_pieces_;
    }
  }
  Pump();
  return OkStatus();
}

// Takes pages from the system's memory as far as they are there without a gap. Returns the first
// that is not.
Result<uint32_t> BlockReader::TakeResident(const OpenBlock& block, const Wanted& wanted,
                                           uint32_t begin, uint32_t end, const Context& ctx) {
  if (!Scratch().Reserve(2 * kPageBytes))
    return Status(Code::kResourceExhausted, "no memory to read a block");
  MutableBytes room(Scratch().data(), 2 * kPageBytes);
  uint64_t data_at = BlockHeaderBytes(wanted.id.length);
  if (wanted.direct) {
    // A try would let the system read it into the page cache.
    uint64_t there = block.file->ResidentBytes(data_at + begin, end - begin);
    if (there < end - begin) end = begin + static_cast<uint32_t>(there / kPageBytes * kPageBytes);
  }
  while (begin < end) {
    HR_RETURN_IF_ERROR(ctx.Check());
    Slice slice = Cut(wanted, begin, std::min(end, begin + kStrideBytes));
    auto parts = slice.Parts(room);
    HR_ASSIGN_OR_RETURN(size_t got, block.file->ReadResident(data_at + begin, parts));
    if (got < slice.bytes()) break;
    HR_RETURN_IF_ERROR(CheckPages(*block.pages, slice.first_page(),
                                  {Segment{parts[0]}, Segment{parts[1]}, Segment{parts[2]}}));
    begin = slice.end;
  }
  return begin;
}

BlockReader::Memory BlockReader::TakeMemory() {
  if (!idle_.empty()) {
    Memory memory = std::move(idle_.back());
    idle_.pop_back();
    return memory;
  }
  if (num_memories_ == kMaxPieces) return nullptr;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, kPieceBytes)));
  if (memory) ++num_memories_;
  return memory;
}

// Lets pieces be read for which there is memory. When there is none at all, the first one fails.
void BlockReader::Pump() {
  std::vector<AsyncRead> reads;
  std::vector<std::pair<PiecePtr, Status>> ended;
  {
    MutexLock lock(&mu_);
    while (!waiting_.empty()) {
      PiecePtr piece = waiting_.front();
      Status status = piece->read->ctx.Check();
      if (status.ok()) piece->memory = TakeMemory();
      if (status.ok() && !piece->memory) {
        if (num_memories_ > 0) break;
        status = Status(Code::kResourceExhausted, "no memory to read a block");
      }
      waiting_.pop_front();
      if (status.ok()) {
        reads.push_back(Ask(piece));
      } else {
        ended.emplace_back(std::move(piece), std::move(status));
      }
    }
  }
  if (!reads.empty()) io_->Submit(std::move(reads));
  for (auto& [piece, status] : ended) EndPiece(piece, std::move(status));
}

AsyncRead BlockReader::Ask(const PiecePtr& piece) {
  const Read& read = *piece->read;
  const Slice& slice = piece->slice;
  AsyncRead ask;
  ask.file = read.direct ? read.direct.get() : read.block->file.get();
  ask.offset = uint64_t{BlockHeaderBytes(read.wanted.id.length)} + slice.begin;
  ask.needed_bytes = slice.bytes();
  if (read.direct) {
    ask.parts = {piece->room().first(RoundUp(slice.bytes(), kDirectAlignment))};
  } else {
    ask.parts = slice.Parts(piece->room());
  }
  ask.done = [this, piece](Status status) {
    if (!options_.post) return EndPiece(piece, std::move(status));
    options_.post([this, piece, status = std::move(status)] { EndPiece(piece, status); });
  };
  return ask;
}

void BlockReader::EndPiece(const PiecePtr& piece, Status status) {
  std::shared_ptr<Read> read = std::move(piece->read);
  const Slice& slice = piece->slice;
  if (status.ok() && read->direct) {
    Bytes bytes = piece->room().first(slice.bytes());
    status = CheckPages(*read->block->pages, slice.first_page(),
                        {Segment{bytes.first(slice.head)},
                         Segment{bytes.subspan(slice.head, slice.out.size()), slice.out.data()},
                         Segment{bytes.last(slice.tail)}});
  } else if (status.ok()) {
    auto parts = slice.Parts(piece->room());
    status = CheckPages(*read->block->pages, slice.first_page(),
                        {Segment{parts[0]}, Segment{parts[1]}, Segment{parts[2]}});
  }
  if (piece->memory) {
    MutexLock lock(&mu_);
    idle_.push_back(std::move(piece->memory));
  }
  Pump();
  if (!status.ok()) {
    MutexLock lock(&read->mu);
    if (read->status.ok()) read->status = std::move(status);
  }
  if (read->pending.fetch_sub(1) == 1) {
    Status result;
    {
      MutexLock lock(&read->mu);
      result = std::move(read->status);
    }
    Done done = std::move(read->done);
    read.reset();  // its files are closed before anybody hears of it
    done(std::move(result));
  }
  MutexLock lock(&mu_);
  if (--num_pieces_ == 0) idle_cv_.NotifyAll();
}

}  // namespace headrace::cache
