#include "headrace/env/posix_durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/env/direct_memory.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/process.h"

namespace headrace {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kReserveFrom = uint64_t{1} << 20;  // smaller files show a full disk soon enough

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

// Bytes of the file that lie in memory in one piece.
struct Run {
  uint64_t offset = 0;  // in the file
  Bytes bytes;
  uint64_t end() const { return offset + bytes.size(); }
};

// Parts that follow each other in memory too become one.
std::vector<Run> RunsOf(std::span<const Bytes> parts) {
  std::vector<Run> runs;
  uint64_t offset = 0;
  for (Bytes part : parts) {
    if (part.empty()) continue;
    if (!runs.empty() && runs.back().bytes.data() + runs.back().bytes.size() == part.data()) {
      Bytes& before = runs.back().bytes;
      before = Bytes(before.data(), before.size() + part.size());
    } else {
      runs.push_back({offset, part});
    }
    offset += part.size();
  }
  return runs;
}

// The file is cut into blocks; each thread takes the next one. A block that lies in memory as it
// does in the file is written from there, any other is first put together in the thread's own.
class DurableWrite {
 public:
  DurableWrite(const Descriptor& file, const std::string& path, std::span<const Bytes> parts,
               const DurableWriteOptions& options, const Context& ctx)
      : file_(file), path_(path), runs_(RunsOf(parts)), options_(options), ctx_(ctx) {}

  Status All();

 private:
  Status Reserve() const;
  Status WriteRange(uint64_t begin, uint64_t end, const WriteShape& shape);
  Status WriteBlock(uint64_t begin, uint64_t end, uint64_t block_bytes, DirectMemory* memory) const;
  void Gather(std::vector<Run>::const_iterator run, uint64_t begin, uint64_t end,
              std::byte* to) const;
  Status WriteAt(Bytes data, uint64_t offset) const;
  int64_t WriteSome(Bytes data, uint64_t offset) const;
  Status Fault(int error, std::string_view verb, uint64_t offset) const {
    return PathError(error, verb, path_).At({path_, offset, {}, {}});
  }
  uint64_t size() const { return runs_.empty() ? 0 : runs_.back().end(); }

  const Descriptor& file_;
  const std::string& path_;
  const std::vector<Run> runs_;
  const DurableWriteOptions& options_;
  const Context& ctx_;
};

// A file system that cannot reserve room shows a full disk when it is written.
Status DurableWrite::Reserve() const {
  if (size() < kReserveFrom) return OkStatus();
  int result;
  do {
    result = ::fallocate(file_.get(), 0, 0, static_cast<off_t>(RoundUp(size())));
  } while (result != 0 && errno == EINTR);
  const bool tells = errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO;
  return result != 0 && tells ? Fault(errno, "write", 0) : OkStatus();
}

int64_t DurableWrite::WriteSome(Bytes data, uint64_t offset) const {
  int64_t answer = ::pwrite(file_.get(), data.data(), data.size(), static_cast<off_t>(offset));
  if (answer < 0) answer = -errno;
  return options_.alter_answer ? options_.alter_answer(answer) : answer;
}

Status DurableWrite::WriteAt(Bytes data, uint64_t offset) const {
  bool refused = false;
  while (!data.empty()) {
    const int64_t answer = WriteSome(data, offset);
    if (answer == -EINVAL && !refused) {
      // This file system wants another alignment, or has no direct I/O after all. Several threads
      // may find that out at once.
      refused = true;
      (void)LeaveDirect(file_.get());
    } else if (answer > 0) {
      auto done = static_cast<uint64_t>(answer);
      // A direct write goes on where it is aligned.
      if (done % kDirectAlignment != 0 && IsDirect(file_.get())) {
        done = done / kDirectAlignment * kDirectAlignment;
        if (done == 0) (void)LeaveDirect(file_.get());
      }
      offset += done;
      data = data.subspan(done);
    } else if (answer != -EINTR) {
      return Fault(answer == 0 ? EIO : static_cast<int>(-answer), "write", offset);
    }
  }
  return OkStatus();
}

void DurableWrite::Gather(std::vector<Run>::const_iterator run, uint64_t begin, uint64_t end,
                          std::byte* to) const {
  for (; begin < end; ++run) {
    const uint64_t until = std::min(end, run->end());
    std::memcpy(to, run->bytes.data() + (begin - run->offset), until - begin);
    to += until - begin;
    begin = until;
  }
}

// The last block is padded with zeros, which are cut off later.
Status DurableWrite::WriteBlock(uint64_t begin, uint64_t end, uint64_t block_bytes,
                                DirectMemory* memory) const {
  auto behind = std::upper_bound(runs_.begin(), runs_.end(), begin,
                                 [](uint64_t at, const Run& run) { return at < run.offset; });
  const auto run = std::prev(behind);
  const std::byte* there = run->bytes.data() + (begin - run->offset);
  const bool is_aligned = reinterpret_cast<uintptr_t>(there) % kDirectAlignment == 0;
  if (is_aligned && end <= run->end() && end % kDirectAlignment == 0)
    return WriteAt(Bytes(there, end - begin), begin);
  if (!*memory) *memory = AllocateDirectMemory(block_bytes);
  if (!*memory) return Error(Code::kResourceExhausted, "no memory to write {}", EscapeText(path_));
  Gather(run, begin, end, memory->get());
  const uint64_t padded = RoundUp(end - begin);
  std::memset(memory->get() + (end - begin), 0, padded - (end - begin));
  return WriteAt(Bytes(memory->get(), padded), begin);
}

// After a fault no more blocks are begun; the first one is told.
Status DurableWrite::WriteRange(uint64_t begin, uint64_t end, const WriteShape& shape) {
  std::atomic<uint64_t> next{begin};
  std::atomic<bool> failed{false};
  Mutex mu;
  Status first;
  auto work = [&] {
    DirectMemory memory;
    while (!failed) {
      const uint64_t at = next.fetch_add(shape.block_bytes);
      if (at >= end) return;
      Status status = ctx_.Check();
      if (status.ok())
        status = WriteBlock(at, std::min(end, at + shape.block_bytes), shape.block_bytes, &memory);
      if (status.ok()) continue;
      MutexLock lock(&mu);
      if (first.ok()) first = std::move(status);
      failed = true;
    }
  };
  {
    const uint64_t blocks = (end - begin + shape.block_bytes - 1) / shape.block_bytes;
    std::vector<std::unique_ptr<Thread>> others;
    for (uint64_t i = 1; i < std::min<uint64_t>(shape.depth, blocks); ++i) {
      auto thread = Thread::Start("hr-write", work);
      if (!thread.ok()) break;  // fewer threads take longer, that is all
      others.push_back(std::move(*thread));
    }
    work();
  }
  return first;
}

Status DurableWrite::All() {
  WriteShapes& shapes = WriteShapes::OfThisProcess();
  std::optional<WriteShape> forced = options_.shape;
  if (!forced) {
    HR_ASSIGN_OR_RETURN(forced, ForcedWriteShape());
  }
  struct stat info;
  if (::fstat(file_.get(), &info) != 0) return Fault(errno, "write", 0);
  HR_RETURN_IF_ERROR(Reserve());
  for (uint64_t at = 0; at < size();) {
    const WriteShapes::Choice choice =
        forced ? WriteShapes::Choice{*forced, {}} : shapes.Next(info.st_dev, size() - at);
    const uint64_t end = choice.trial ? at + WriteShapes::kTrialBytes : size();
    const Clock::time_point start = Clock::now();
    HR_RETURN_IF_ERROR(WriteRange(at, end, choice.shape));
    if (choice.trial) shapes.Tell(info.st_dev, *choice.trial, Clock::now() - start);
    at = end;
  }
  if (size() % kDirectAlignment != 0 && ::ftruncate(file_.get(), static_cast<off_t>(size())) != 0)
    return Fault(errno, "write", size());
  int result;
  do {
    result = ::fdatasync(file_.get());
  } while (result != 0 && errno == EINTR);
  return result == 0 ? OkStatus() : Fault(errno, "sync", size());
}

}  // namespace

Status WritePosixDurably(const std::string& path, std::span<const Bytes> parts,
                         const DurableWriteOptions& options, const Context& ctx) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
  auto opened = OpenDescriptor(path, kFlags | O_DIRECT, "write");
  // EINVAL: the file system has only the usual way.
  if (!opened.ok() && opened.status().code() == Code::kInvalidArgument)
    opened = OpenDescriptor(path, kFlags, "write");
  HR_RETURN_IF_ERROR(opened.status());
  Descriptor file = *std::move(opened);
  HR_RETURN_IF_ERROR(DurableWrite(file, path, parts, options, ctx).All());
  const int error = file.Close();
  return error == 0 ? OkStatus() : PathError(error, "close", path);
}

}  // namespace headrace
