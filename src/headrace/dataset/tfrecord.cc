#include "headrace/dataset/tfrecord.h"

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"

namespace headrace::dataset {
namespace {

constexpr uint32_t kMaskDelta = 0xa282ead8;
constexpr uint64_t kFrameBytes = kTfHeaderBytes + kTfFooterBytes;
// A resync reads at most this many times the rest of the file for records that turn out wrong.
constexpr uint64_t kMaxResyncReads = 4;

// The length that a header states; empty when it does not match its checksum.
std::optional<uint64_t> LengthOf(Bytes header) {
  uint32_t crc = Crc32c(header.first(8));
  if (MaskCrc32c(crc) != LoadLittle<uint32_t>(header.data() + 8)) return std::nullopt;
  return LoadLittle<uint64_t>(header.data());
}

bool TakeDigits(std::string_view* name) {
  size_t before = name->size();
  while (!name->empty() && name->back() >= '0' && name->back() <= '9') name->remove_suffix(1);
  return name->size() < before;
}

bool TakeEnd(std::string_view* name, std::string_view end) {
  if (!name->ends_with(end)) return false;
  name->remove_suffix(end.size());
  return true;
}

// Takes "-00000-of-00010" from the end of `name`.
bool TakeShardNumber(std::string_view* name) {
  std::string_view rest = *name;
  if (!TakeDigits(&rest) || !TakeEnd(&rest, "-of-") || !TakeDigits(&rest) || !TakeEnd(&rest, "-"))
    return false;
  *name = rest;
  return true;
}

bool HasZlibHeader(Bytes head) {
  if (head.size() < 2) return false;
  unsigned first = std::to_integer<unsigned>(head[0]), second = std::to_integer<unsigned>(head[1]);
  return (first & 0x8f) == 8 && (first * 256 + second) % 31 == 0;
}

Location At(const RandomAccessFile& file, uint64_t offset) {
  return {.file = file.path(), .offset = offset, .key = {}, .field = {}};
}

}  // namespace

uint32_t MaskCrc32c(uint32_t crc32c) { return (crc32c >> 15 | crc32c << 17) + kMaskDelta; }

uint32_t UnmaskCrc32c(uint32_t masked) {
  uint32_t rotated = masked - kMaskDelta;
  return rotated >> 17 | rotated << 15;
}

bool IsTfRecordName(std::string_view name) {
  TakeEnd(&name, ".gz");
  TakeShardNumber(&name);
  return TakeEnd(&name, ".tfrecord") || TakeEnd(&name, ".tfrecords") || TakeEnd(&name, ".tfrec");
}

bool IsShardOfManyName(std::string_view name) { return TakeShardNumber(&name) && !name.empty(); }

bool LooksLikeTfRecord(const RandomAccessFile& file, const Context& ctx) {
  std::byte header[kTfHeaderBytes];
  return file.size() >= kFrameBytes && file.ReadAt(0, header, ctx).ok() &&
         LengthOf(header).has_value();
}

Status TfRecordScanner::CheckStart() {
  const RandomAccessFile& file = window_.file();
  HR_ASSIGN_OR_RETURN(Bytes head, window_.Get(0, kTfHeaderBytes));
  if (head.empty() || (head.size() == kTfHeaderBytes && LengthOf(head))) return OkStatus();
  const bool gzip = AsText(head).starts_with("\x1f\x8b");
  if (gzip || HasZlibHeader(head))
    return Error(Code::kUnimplemented,
                 "{} seems to be compressed with {} as a whole: records in it cannot be read by "
                 "offset. "
                 "Unpack it first ({}), and write new ones without compression",
                 file.path(), gzip ? "gzip" : "zlib",
                 gzip ? "`gunzip`, which wants the name to end in .gz" : "`pigz -d -z`")
        .At(At(file, 0));
  return Error(Code::kDataLoss,
               "{} is not a TFRecord file: it does not begin with a length and its checksum, or "
               "its first bytes are damaged",
               file.path())
      .At(At(file, 0));
}

Result<bool> TfRecordScanner::Next(TfRecord* record, std::optional<TarDamage>* damage) {
  damage->reset();
  const uint64_t left = window_.file().size() - at_;
  if (left == 0) return false;
  auto damaged = [&](std::string reason) {
    *damage = TarDamage{at_, window_.file().size(), std::move(reason)};
    return false;
  };
  HR_ASSIGN_OR_RETURN(Bytes header, window_.Get(at_, kTfHeaderBytes));
  if (left < kFrameBytes || header.size() < kTfHeaderBytes)
    return damaged(fmt::format("the file ends {} bytes into a record", left));
  std::optional<uint64_t> length = LengthOf(header);
  if (!length)
    return damaged(fmt::format("the length there does not match its checksum {:08x}",
                               LoadLittle<uint32_t>(header.data() + 8)));
  if (*length > left - kFrameBytes)
    return damaged(
        fmt::format("the file ends inside a record of {} bytes, {} are missing: it was "
                    "cut short",
                    *length, *length - (left - kFrameBytes)));
  *record = {.number = number_++, .offset = at_ + kTfHeaderBytes, .length = *length, .crc32c = 0};
  at_ = record->offset + *length + kTfFooterBytes;
  return true;
}

Status TfRecordScanner::ReadChecksum(TfRecord* record) {
  const uint64_t end = record->offset + record->length;
  HR_ASSIGN_OR_RETURN(Bytes footer, window_.Get(end, kTfFooterBytes));
  if (footer.size() < kTfFooterBytes)
    return Error(Code::kDataLoss, "{} became shorter while it was read", window_.file().path())
        .At(At(window_.file(), end));
  record->crc32c = UnmaskCrc32c(LoadLittle<uint32_t>(footer.data()));
  return OkStatus();
}

Result<uint32_t> TfRecordScanner::ChecksumOf(uint64_t offset, uint64_t length) {
  uint32_t crc = 0;
  for (uint64_t done = 0; done < length;) {
    HR_ASSIGN_OR_RETURN(Bytes part,
                        window_.Get(offset + done, std::min(length - done, FileWindow::kMaxBytes)));
    if (part.empty())
      return Error(Code::kDataLoss, "{} became shorter while it was read", window_.file().path())
          .At(At(window_.file(), offset + done));
    crc = Crc32c(part, crc);
    done += part.size();
  }
  return crc;
}

Status TfRecordScanner::CheckData(const TfRecord& record) {
  HR_ASSIGN_OR_RETURN(uint32_t found, ChecksumOf(record.offset, record.length));
  if (found == record.crc32c) return OkStatus();
  return Error(Code::kDataLoss,
               "wrong checksum: the record of {} bytes at offset {} has masked CRC32C {:08x}, "
               "expected {:08x}. It is damaged: get a good copy of the file",
               record.length, record.offset - kTfHeaderBytes, MaskCrc32c(found),
               MaskCrc32c(record.crc32c))
      .At(At(window_.file(), record.offset - kTfHeaderBytes));
}

Status TfRecordScanner::Resync(TarDamage* damage) {
  const uint64_t size = window_.file().size();
  uint64_t may_read = kMaxResyncReads * (size - damage->offset);
  for (uint64_t at = damage->offset + 1; at + kFrameBytes <= size;) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_ASSIGN_OR_RETURN(Bytes part, window_.Get(at, FileWindow::kMaxBytes));
    if (part.size() < kTfHeaderBytes) break;
    std::optional<uint64_t> length;
    size_t i = 0;
    for (; i + kTfHeaderBytes <= part.size() && !length; ++i)
      length = LengthOf(part.subspan(i, kTfHeaderBytes));
    at += i;
    if (!length) continue;
    const uint64_t begin = at - 1;  // of the header that was found
    if (size - begin < kFrameBytes || *length > std::min(size - begin - kFrameBytes, may_read))
      continue;
    may_read -= *length;
    const uint64_t data = begin + kTfHeaderBytes;
    HR_ASSIGN_OR_RETURN(uint32_t crc, ChecksumOf(data, *length));
    HR_ASSIGN_OR_RETURN(Bytes footer, window_.Get(data + *length, kTfFooterBytes));
    if (footer.size() < kTfFooterBytes || MaskCrc32c(crc) != LoadLittle<uint32_t>(footer.data()))
      continue;
    at_ = damage->resumed_at = begin;
    return OkStatus();
  }
  at_ = damage->resumed_at = size;
  return OkStatus();
}

}  // namespace headrace::dataset
