#include "headrace/checkpoint/restore.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "headrace/base/crc32c.h"
#include "headrace/base/mutex.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/parallel.h"
#include "headrace/checkpoint/piece_queue.h"
#include "headrace/env/async_read.h"
#include "headrace/env/direct_memory.h"

namespace headrace::checkpoint {
namespace {

// Bytes of a file that go to one place.
struct Copy {
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  std::byte* to = nullptr;
  bool shared = false;  // other processes want it too
};

// Copies whose bytes are read together: [first, last) of the file's copies, and what of the file
// that takes, in whole chunks.
struct Piece {
  size_t file = 0;  // in the list of files that are read
  size_t first = 0, last = 0;
  uint64_t offset = 0, bytes = 0;
  bool shared = false;
};

struct FilePlan {
  uint32_t number = 0;  // in the manifest
  std::vector<Copy> copies;
};

// One file, opened at one place when it is first needed, and closed when all its pieces are there.
struct OpenFile {
  std::atomic<size_t> left{0};  // pieces
  Mutex mu;
  size_t place HR_GUARDED_BY(mu) = 0;
  Status refusal HR_GUARDED_BY(mu);  // of the last place that could not open it
  std::shared_ptr<DataFile> file HR_GUARDED_BY(mu);
  std::shared_ptr<const ChunkSums> sums HR_GUARDED_BY(mu);
};

struct Source {
  size_t place = 0;
  std::shared_ptr<DataFile> file;
  std::shared_ptr<const ChunkSums> sums;
};

Status CheckWanted(const Manifest& manifest, const WantedBox& wanted) {
  if (wanted.tensor >= manifest.tensors.size())
    return Error(Code::kInvalidArgument, "tensor {} of {} is wanted", wanted.tensor,
                 manifest.tensors.size());
  auto volume = Volume(wanted.box.length);
  auto bytes = volume ? BytesOf(manifest.tensors.dtype(wanted.tensor), *volume) : std::nullopt;
  if (!FitsInto(wanted.box, manifest.tensors.shape(wanted.tensor)) || !bytes ||
      *bytes != wanted.out.size())
    return Error(Code::kInvalidArgument, "{} bytes were given for the box {} of {}, {} {}",
                 wanted.out.size(), BoxText(wanted.box), manifest.tensors.path(wanted.tensor),
                 DTypeName(manifest.tensors.dtype(wanted.tensor)),
                 ShapeText(manifest.tensors.shape(wanted.tensor)));
  return OkStatus();
}

class Restoring {
 public:
  Restoring(std::span<DataFiles* const> places, const Manifest& manifest,
            const RestoreOptions& options, const Context& ctx, RestoreReport* report)
      : places_(places),
        manifest_(manifest),
        options_(options),
        ctx_(ctx),
        report_(report),
        silent_(places.size()) {}

  Status All(std::span<const WantedBox> wanted);

 private:
  Status Plan(std::span<const WantedBox> wanted);
  Status PlanBox(const WantedBox& wanted, std::map<uint32_t, FilePlan>* files);
  void CutIntoPieces();
  std::vector<Piece> GroupCopies(size_t file);
  void OrderPieces(std::vector<std::vector<Piece>> by_file);
  Status Work(PieceQueue* queue, std::vector<std::byte>* buffer);
  // Starts a read, or reads at once and returns true.
  Result<bool> ReadPiece(PieceQueue* queue, PieceQueue::Turn* turn, std::vector<std::byte>* buffer);
  Status StartRead(PieceQueue* queue, PieceQueue::Turn* turn, const Source& source);
  Status EndRead(const PieceQueue::Turn& turn, std::vector<std::byte>* buffer);
  Status ReadNow(const Piece& piece, std::vector<std::byte>* buffer);
  Status CheckAndCopy(const Piece& piece, Bytes data, const Source& source);
  uint32_t CopyChunk(Bytes chunk, uint64_t offset, std::span<const Copy> copies) const;
  Result<AsyncReader*> Reader();
  void Finish(const Piece& piece);
  Result<Source> OpenAt(size_t file, size_t place);
  Result<Source> SourceOf(size_t file);
  Result<Source> NextSource(size_t file, OpenFile* open, bool also_silent, bool* passed_over)
      HR_REQUIRES(open->mu);
  void Refused(size_t place, const Status& why);
  void GiveUp(size_t file, size_t place);
  const FileEntry& Entry(size_t file) const { return manifest_.files[plans_[file].number]; }

  const std::span<DataFiles* const> places_;
  const Manifest& manifest_;
  const RestoreOptions& options_;
  const Context& ctx_;
  RestoreReport* const report_;
  std::vector<std::atomic<uint32_t>> silent_;  // by place: how often it could not be asked
  std::vector<FilePlan> plans_;
  std::vector<std::unique_ptr<OpenFile>> open_;
  std::vector<Piece> pieces_;
  bool direct_ = false;  // enough is to be read
  Mutex mu_;             // of the report; the reader is made under it
  std::unique_ptr<AsyncReader> reader_ HR_GUARDED_BY(mu_);
};

// What a wanted box takes from each stored one.
Status Restoring::PlanBox(const WantedBox& wanted, std::map<uint32_t, FilePlan>* files) {
  HR_RETURN_IF_ERROR(CheckWanted(manifest_, wanted));
  report_->wanted_bytes += wanted.out.size();
  const uint64_t bits = BitsOf(manifest_.tensors.dtype(wanted.tensor));
  const bool shared =
      options_.shared_whole && IsWhole(wanted.box, manifest_.tensors.shape(wanted.tensor));
  for (uint64_t i = manifest_.first_box[wanted.tensor]; i < manifest_.first_box[wanted.tensor + 1];
       ++i) {
    const BoxEntry& entry = manifest_.boxes.entry(i);
    if (!Overlap(manifest_.boxes.box(i), wanted.box)) continue;
    FilePlan& plan = (*files)[entry.file];
    plan.number = entry.file;
    for (Runs runs(manifest_.boxes.box(i), wanted.box); !runs.done(); runs.Next()) {
      const Run& run = runs.now();
      if (run.stored * bits % 8 != 0 || run.wanted * bits % 8 != 0 || run.elements * bits % 8 != 0)
        return Error(Code::kInvalidArgument, "{}: elements of {} bits cannot be cut within a byte",
                     manifest_.tensors.path(wanted.tensor), bits);
      plan.copies.push_back({entry.offset + run.stored * bits / 8, run.elements * bits / 8,
                             wanted.out.data() + run.wanted * bits / 8, shared});
    }
  }
  return OkStatus();
}

Status Restoring::Plan(std::span<const WantedBox> wanted) {
  std::map<uint32_t, FilePlan> files;
  for (const WantedBox& one : wanted) HR_RETURN_IF_ERROR(PlanBox(one, &files));
  for (auto& [number, plan] : files) {
    std::sort(plan.copies.begin(), plan.copies.end(),
              [](const Copy& a, const Copy& b) { return a.offset < b.offset; });
    plans_.push_back(std::move(plan));
    open_.push_back(std::make_unique<OpenFile>());
  }
  CutIntoPieces();
  return OkStatus();
}

// Copies are cut at multiples of read_bytes. What lies between two of them and near each other is
// read together; so no chunk is read twice.
void Restoring::CutIntoPieces() {
  std::vector<std::vector<Piece>> by_file;
  for (size_t f = 0; f < plans_.size(); ++f) {
    std::vector<Copy> cut;
    for (Copy copy : plans_[f].copies) {
      while (copy.bytes > 0) {
        uint64_t room = options_.read_bytes - copy.offset % options_.read_bytes;
        uint64_t bytes = std::min(copy.bytes, room);
        cut.push_back({copy.offset, bytes, copy.to, copy.shared});
        copy = {copy.offset + bytes, copy.bytes - bytes, copy.to + bytes, copy.shared};
      }
    }
    plans_[f].copies = std::move(cut);
    by_file.push_back(GroupCopies(f));
    open_[f]->left = by_file.back().size();
  }
  OrderPieces(std::move(by_file));
  uint64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.bytes;
  direct_ = bytes >= options_.direct_from_bytes;
}

// A few files at a time take turns: they may lie on several disks.
void Restoring::OrderPieces(std::vector<std::vector<Piece>> by_file) {
  constexpr size_t kFilesAtOnce = 8;
  for (size_t first = 0; first < by_file.size(); first += kFilesAtOnce) {
    const size_t last = std::min(by_file.size(), first + kFilesAtOnce);
    bool more = true;
    for (size_t i = 0; more; ++i) {
      more = false;
      for (size_t f = first; f < last; ++f) {
        if (i >= by_file[f].size()) continue;
        pieces_.push_back(by_file[f][i]);
        more = true;
      }
    }
  }
}

std::vector<Piece> Restoring::GroupCopies(size_t file) {
  std::vector<Piece> pieces;
  const uint64_t chunk = kSumChunkBytes;
  const std::vector<Copy>& copies = plans_[file].copies;
  const uint64_t file_bytes = Entry(file).bytes;
  for (size_t i = 0; i < copies.size();) {
    const uint64_t cell = copies[i].offset / options_.read_bytes;
    Piece piece{.file = file, .first = i, .last = i, .offset = copies[i].offset / chunk * chunk};
    uint64_t end = piece.offset;
    for (; piece.last < copies.size(); ++piece.last) {
      const Copy& next = copies[piece.last];
      bool far = next.offset / chunk * chunk > end;
      if (piece.last > i && (far || next.offset / options_.read_bytes != cell)) break;
      end = std::max(end, (next.offset + next.bytes + chunk - 1) / chunk * chunk);
      piece.shared = piece.shared || next.shared;
    }
    piece.bytes = std::min(end, file_bytes) - piece.offset;
    i = piece.last;
    pieces.push_back(piece);
  }
  return pieces;
}

Result<Source> Restoring::OpenAt(size_t file, size_t place) {
  const FileEntry& entry = Entry(file);
  DataFiles* files = places_[place];
  HR_ASSIGN_OR_RETURN(auto data, files->Open(entry.DataKey(), entry.bytes, ctx_));
  HR_ASSIGN_OR_RETURN(auto sums, ReadSums(files, entry, ctx_));
  return Source{place, std::move(data), std::make_shared<const ChunkSums>(std::move(sums))};
}

void Restoring::Refused(size_t place, const Status& why) {
  if (why.code() == Code::kUnavailable) ++silent_[place];
  MutexLock lock(&mu_);
  ++report_->places[place].refused;
}

// From the file's place on. One that could not be asked again and again is passed over, so that its
// time-outs do not add up over all files.
Result<Source> Restoring::NextSource(size_t file, OpenFile* open, bool also_silent,
                                     bool* passed_over) {
  constexpr uint32_t kPatience = 2;
  for (; open->place < places_.size(); ++open->place) {
    if (open->file == nullptr) {
      if (!also_silent && silent_[open->place] >= kPatience) {
        *passed_over = true;
        continue;
      }
      auto source = OpenAt(file, open->place);
      if (!source.ok()) {
        open->refusal = source.status();
        Refused(open->place, open->refusal);
        continue;
      }
      open->file = source->file;
      open->sums = source->sums;
    }
    return Source{open->place, open->file, open->sums};
  }
  if (!open->refusal.ok()) return open->refusal;
  return Error(Code::kDataLoss, "no place has the right bytes of {}", Entry(file).DataKey());
}

// The file at the nearest place that has it.
Result<Source> Restoring::SourceOf(size_t file) {
  OpenFile& open = *open_[file];
  MutexLock lock(&open.mu);
  bool passed_over = false;
  auto source = NextSource(file, &open, false, &passed_over);
  if (source.ok() || !passed_over) return source;
  open.place = 0;  // nobody else has it
  return NextSource(file, &open, true, &passed_over);
}

void Restoring::GiveUp(size_t file, size_t place) {
  OpenFile& open = *open_[file];
  MutexLock lock(&open.mu);
  if (open.place != place) return;  // another thread did
  open.refusal = OkStatus();
  ++open.place;
  open.file.reset();
  open.sums.reset();
  MutexLock report_lock(&mu_);
  ++report_->places[place].refused;
}

// Copies what is wanted of a chunk, whatever else it holds, and returns the CRC32C of all of it:
// one pass over bytes that are wanted once. `copies` are by offset, and may reach beyond the chunk.
uint32_t Restoring::CopyChunk(Bytes chunk, uint64_t offset, std::span<const Copy> copies) const {
  const uint64_t end = offset + chunk.size();
  uint64_t at = offset;  // up to which bytes are in the checksum
  uint32_t crc = 0;
  for (const Copy& copy : copies) {
    uint64_t begin = std::max(copy.offset, offset);
    const uint64_t copy_end = std::min(copy.offset + copy.bytes, end);
    if (begin >= copy_end) continue;
    std::byte* to = copy.to + (begin - copy.offset);
    if (begin > at) crc = Crc32c(chunk.subspan(at - offset, begin - at), crc);
    at = std::max(at, begin);
    const uint64_t again = std::min(copy_end, at) - begin;  // wanted before
    std::memcpy(to, chunk.data() + (begin - offset), again);
    if (begin += again; begin == copy_end) continue;
    crc = CopyWithCrc32c(to + again, chunk.subspan(begin - offset, copy_end - begin), crc);
    at = copy_end;
  }
  return Crc32c(chunk.subspan(at - offset), crc);
}

// What is wrong may be in the destinations then; it is overwritten by what another place has.
Status Restoring::CheckAndCopy(const Piece& piece, Bytes data, const Source& source) {
  const std::span<const Copy> copies(plans_[piece.file].copies);
  size_t first = piece.first;
  for (uint64_t at = piece.offset; at < piece.offset + piece.bytes;) {
    const size_t chunk = at / kSumChunkBytes;
    const Bytes bytes = data.subspan(at - piece.offset, source.sums->ChunkBytes(chunk));
    size_t last = first;
    while (last < piece.last && copies[last].offset < at + bytes.size()) ++last;
    const uint32_t crc = CopyChunk(bytes, at, copies.subspan(first, last - first));
    if (crc != source.sums->sum(chunk))
      return source.sums->Wrong(chunk, crc,
                                places_[source.place]->name() + "/" + Entry(piece.file).DataKey());
    at += bytes.size();
    while (first < last && copies[first].offset + copies[first].bytes <= at) ++first;
  }
  MutexLock lock(&mu_);
  report_->read_bytes += piece.bytes;
  report_->places[source.place].bytes += piece.bytes;
  return OkStatus();
}

Status Restoring::ReadNow(const Piece& piece, std::vector<std::byte>* buffer) {
  Status last;
  for (;;) {
    auto source = SourceOf(piece.file);
    if (!source.ok()) return last.ok() ? source.status() : last;
    buffer->resize(std::max<size_t>(buffer->size(), piece.bytes));
    MutableBytes data(buffer->data(), piece.bytes);
    last = source->file->Read(piece.offset, data, ctx_);
    if (last.ok()) last = CheckAndCopy(piece, data, *source);
    if (last.ok()) return last;
    HR_RETURN_IF_ERROR(ctx_.Check());
    GiveUp(piece.file, source->place);
  }
}

Result<AsyncReader*> Restoring::Reader() {
  MutexLock lock(&mu_);
  if (reader_ == nullptr) {
    AsyncReader::Options options;
    options.depth = static_cast<uint32_t>(options_.depth);
    HR_ASSIGN_OR_RETURN(reader_, AsyncReader::Create(options));
  }
  return reader_.get();
}

Status Restoring::StartRead(PieceQueue* queue, PieceQueue::Turn* turn, const Source& source) {
  const Piece& piece = pieces_[turn->piece];
  HR_ASSIGN_OR_RETURN(AsyncReader * reader, Reader());
  const size_t room = (piece.bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  std::vector<AsyncRead> reads(1);
  AsyncRead& read = reads.front();
  read.file = source.file->direct();
  read.offset = piece.offset;
  read.parts[0] = MutableBytes(turn->memory.get(), room);
  read.needed_bytes = piece.bytes;
  // A function object must be copyable, and memory is not.
  auto memory = std::make_shared<DirectMemory>(std::move(turn->memory));
  read.done = [queue, number = turn->piece, memory, file = source.file](Status status) {
    queue->Read(number, std::move(*memory), std::move(status));
  };
  reader->Submit(std::move(reads));
  return OkStatus();
}

Result<bool> Restoring::ReadPiece(PieceQueue* queue, PieceQueue::Turn* turn,
                                  std::vector<std::byte>* buffer) {
  const Piece& piece = pieces_[turn->piece];
  auto source = SourceOf(piece.file);
  const bool direct = direct_ && !piece.shared && source.ok() &&
                      source->file->direct() != nullptr &&
                      !source->file->IsResident(piece.offset, piece.bytes);
  if (direct && !turn->memory) turn->memory = AllocateDirectMemory(options_.read_bytes);
  if (direct && turn->memory) {
    HR_RETURN_IF_ERROR(StartRead(queue, turn, *source));
    return false;
  }
  HR_RETURN_IF_ERROR(ReadNow(piece, buffer));
  return true;
}

// What came in a read, or what another place has.
Status Restoring::EndRead(const PieceQueue::Turn& turn, std::vector<std::byte>* buffer) {
  const Piece& piece = pieces_[turn.piece];
  auto source = SourceOf(piece.file);
  if (turn.read.ok() && source.ok() &&
      CheckAndCopy(piece, Bytes(turn.memory.get(), piece.bytes), *source).ok())
    return OkStatus();
  return ReadNow(piece, buffer);
}

void Restoring::Finish(const Piece& piece) {
  OpenFile& open = *open_[piece.file];
  if (--open.left > 0) return;
  MutexLock lock(&open.mu);
  open.file.reset();
  open.sums.reset();
}

Status Restoring::Work(PieceQueue* queue, std::vector<std::byte>* buffer) {
  for (;;) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_ASSIGN_OR_RETURN(PieceQueue::Turn turn, queue->Take(ctx_));
    if (turn.kind == PieceQueue::Turn::Kind::kEnd) return OkStatus();
    const Piece& piece = pieces_[turn.piece];
    if (turn.kind == PieceQueue::Turn::Kind::kRead) {
      HR_ASSIGN_OR_RETURN(const bool done, ReadPiece(queue, &turn, buffer));
      if (!done) continue;
    } else {
      HR_RETURN_IF_ERROR(EndRead(turn, buffer));
    }
    Finish(piece);
    queue->Done(std::move(turn.memory));
  }
}

Status Restoring::All(std::span<const WantedBox> wanted) {
  report_->places.resize(places_.size());
  for (size_t i = 0; i < places_.size(); ++i) report_->places[i].files = places_[i];
  HR_RETURN_IF_ERROR(Plan(wanted));
  PieceQueue queue(pieces_.size(), options_.depth);
  const auto threads = std::min<size_t>(static_cast<size_t>(options_.threads), pieces_.size());
  Status status = ForEach(threads, options_.threads, [&](size_t) -> Status {
    std::vector<std::byte> buffer;
    Status done = Work(&queue, &buffer);
    if (!done.ok()) queue.Stop();
    return done;
  });
  // Reads under way after a failure tell the queue of their end.
  MutexLock lock(&mu_);
  reader_.reset();
  return status;
}

}  // namespace

Status Restore(std::span<DataFiles* const> places, const Manifest& manifest,
               std::span<const WantedBox> wanted, const RestoreOptions& options, const Context& ctx,
               RestoreReport* report) {
  if (options.threads < 1 || options.depth < 1 || options.read_bytes == 0 ||
      options.read_bytes % kSumChunkBytes != 0)
    return Error(Code::kInvalidArgument, "{} reads of {} bytes by {} threads make no sense",
                 options.depth, options.read_bytes, options.threads);
  return Restoring(places, manifest, options, ctx, report).All(wanted);
}

}  // namespace headrace::checkpoint
