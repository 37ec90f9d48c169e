// The walk over the headers of a tar. TarScanner holds what one walk knows; its steps are: read the
// block at `at_`; zero block: look for the end; valid header: take it as an extension of the next
// member or as a member; anything else: damage, look for the next valid header.
#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/base/text.h"
#include "headrace/dataset/pax.h"
#include "headrace/dataset/tar.h"
#include "headrace/dataset/tar_block.h"

namespace headrace::dataset {
namespace {

constexpr uint64_t kLongReadBytes = 256 << 10;
constexpr uint64_t kShortReadBytes = 4096;
constexpr uint64_t kSmallMemberBytes = 64 << 10;
constexpr uint64_t kFirstHeaderWithinBytes = 64 << 20;
constexpr size_t kMaxDamageKept = 1000;

// Serves blocks out of a window of the file, so that many small members cost one read.
class BlockWindow {
 public:
  BlockWindow(const RandomAccessFile& file, const Context& ctx)
      : file_(file), ctx_(ctx), buffer_(std::min(file.size(), kLongReadBytes)) {}

  // The bytes [at, at + length), length <= kLongReadBytes; fewer only at the end of the file. Valid
  // until the next call. `long_read`: more headers are expected nearby.
  Result<Bytes> Get(uint64_t at, uint64_t length, bool long_read) {
    if (at >= file_.size()) return Bytes();
    length = std::min(length, file_.size() - at);
    if (at < begin_ || at + length > begin_ + held_) {
      HR_RETURN_IF_ERROR(ctx_.Check());
      uint64_t wanted = std::max(length, long_read ? kLongReadBytes : kShortReadBytes);
      wanted = std::min<uint64_t>(wanted, buffer_.size());
      held_ = 0;
      HR_ASSIGN_OR_RETURN(held_, file_.ReadSome(at, MutableBytes(buffer_).first(wanted), ctx_));
      begin_ = at;
    }
    return Bytes(buffer_).subspan(at - begin_, std::min<uint64_t>(length, begin_ + held_ - at));
  }

 private:
  const RandomAccessFile& file_;
  const Context& ctx_;
  std::vector<std::byte> buffer_;
  uint64_t begin_ = 0, held_ = 0;
};

std::string_view FieldText(Bytes block, size_t at, size_t width) {
  std::string_view text = AsText(block.subspan(at, width));
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

class TarScanner {
 public:
  TarScanner(const RandomAccessFile& file, const Context& ctx,
             const std::function<Status(const TarMember&)>& visit)
      : file_(file), window_(file, ctx), visit_(visit) {}

  Result<TarScanResult> Run() {
    HR_RETURN_IF_ERROR(RefuseCompressed());
    while (!done_) HR_RETURN_IF_ERROR(Step());
    return std::move(result_);
  }

 private:
  // What extension headers said about the member that follows them.
  struct Pending {
    bool any = false;
    bool lost = false;  // an extension header could not be read: the member's name is unknown
    uint64_t first_offset = 0;
    std::optional<std::string> long_name;
    PaxRecords pax;
  };

  Status RefuseCompressed();
  Status Step();
  Status AtZeroBlock();
  Status TakeHeader(const std::array<std::byte, kTarBlockBytes>& block);
  Status TakeExtension(char type, uint64_t size);
  Status TakeMember(Bytes block, char type, uint64_t size);
  Result<uint64_t> DataBytes(Bytes block, char type, uint64_t size);
  Result<uint64_t> SparseExtensionBytes(Bytes block);
  Status Resync(uint64_t from, std::string reason);
  Status NotTar();
  void AddDamage(uint64_t offset, uint64_t resumed_at, std::string reason);
  void SetPath(Bytes block);
  bool IsSparsePax() const { return pending_.pax.sparse || global_.sparse; }

  const RandomAccessFile& file_;
  BlockWindow window_;
  const std::function<Status(const TarMember&)>& visit_;
  TarScanResult result_;
  TarMember member_;
  Pending pending_;
  PaxRecords global_;
  uint64_t at_ = 0;
  bool done_ = false;
  bool long_reads_ = true;
  bool any_header_ = false;
  bool all_have_magic_ = true;  // so far: then a resync asks for it too
  bool last_member_had_extension_ = false;
  bool after_damage_ = false;  // the next header is the first one found after damage
  bool after_zero_blocks_ = false;
};

Status TarScanner::RefuseCompressed() {
  struct Magic {
    std::string_view bytes, name, cure;
  };
  static constexpr Magic kMagics[] = {
      {"\x1f\x8b", "gzip", "gunzip"},
      {"\x28\xb5\x2f\xfd", "zstd", "unzstd"},
      {"BZh", "bzip2", "bunzip2"},
      {std::string_view("\xfd"
                        "7zXZ\0",
                        6),
       "xz", "unxz"},
      {"\x04\x22\x4d\x18", "lz4", "unlz4"},
      {"PK\x03\x04", "zip", "unzip"},
  };
  HR_ASSIGN_OR_RETURN(Bytes head, window_.Get(0, kTarBlockBytes, true));
  if (head.size() == kTarBlockBytes && TarChecksumMatches(head)) return OkStatus();
  for (const Magic& magic : kMagics) {
    if (!AsText(head).starts_with(magic.bytes)) continue;
    return Error(
               Code::kUnimplemented,
               "{} is compressed with {}: samples in it cannot be read by offset. Unpack it first "
               "(`{}`)",
               file_.path(), magic.name, magic.cure)
        .At({.file = file_.path(), .offset = 0, .key = {}, .field = {}});
  }
  return OkStatus();
}

Status TarScanner::NotTar() {
  return Error(Code::kDataLoss, "{} is not a tar file: {}", file_.path(),
               file_.size() == 0 ? "it is empty (0 bytes)"
                                 : "no tar header was found in it; expected one at offset 0")
      .At({.file = file_.path(), .offset = 0, .key = {}, .field = {}});
}

void TarScanner::AddDamage(uint64_t offset, uint64_t resumed_at, std::string reason) {
  ++result_.num_damaged;
  if (result_.damage.size() < kMaxDamageKept)
    result_.damage.push_back({offset, std::min(resumed_at, file_.size()), std::move(reason)});
}

Status TarScanner::Step() {
  HR_ASSIGN_OR_RETURN(Bytes found, window_.Get(at_, kTarBlockBytes, long_reads_));
  if (found.empty()) {
    if (!any_header_) return NotTar();
    if (pending_.any)
      AddDamage(pending_.first_offset, at_, "the file ends after an extension header");
    result_.has_end_blocks = after_zero_blocks_;
    done_ = true;
    return OkStatus();
  }
  if (found.size() < kTarBlockBytes)
    return Resync(at_, fmt::format("the file ends inside a block: {} bytes", found.size()));
  if (IsZeroBlock(found)) return AtZeroBlock();
  if (!TarChecksumMatches(found)) return Resync(at_, "no valid tar header: its checksum is wrong");
  std::array<std::byte, kTarBlockBytes> block;  // a copy: reading on may move the window
  std::memcpy(block.data(), found.data(), kTarBlockBytes);
  return TakeHeader(block);
}

// Zero blocks end the archive when nothing but zeros follows. Otherwise archives were joined, or
// zeros took the place of members: said as damage, since readers that stop here lose the rest.
Status TarScanner::AtZeroBlock() {
  uint64_t zeros_at = at_;
  if (pending_.any) AddDamage(pending_.first_offset, at_, "zero blocks after an extension header");
  pending_ = {};
  after_zero_blocks_ = true;
  any_header_ = true;  // an archive without members is an archive
  while (true) {
    HR_ASSIGN_OR_RETURN(Bytes some, window_.Get(at_, kLongReadBytes, true));
    auto other =
        std::find_if(some.begin(), some.end(), [](std::byte b) { return b != std::byte{}; });
    if (some.empty() || other != some.end()) {
      at_ += static_cast<uint64_t>(other - some.begin()) / kTarBlockBytes * kTarBlockBytes;
      break;
    }
    at_ += some.size();
  }
  if (at_ >= file_.size()) {
    done_ = true;
    return OkStatus();
  }
  return Resync(zeros_at,
                "zero blocks, which end an archive, with more data after them (archives "
                "that were joined, or a lost stretch)");
}

// Looks for the next valid header at or after `from` + one block, or at at_ when that is further.
Status TarScanner::Resync(uint64_t from, std::string reason) {
  uint64_t damage_at = pending_.any ? pending_.first_offset : from;
  bool pending_was_there = pending_.any;
  pending_ = {};
  uint64_t next = std::max(at_, from == at_ ? from + kTarBlockBytes : at_);
  while (true) {
    if (!any_header_ && next > kFirstHeaderWithinBytes) return NotTar();
    HR_ASSIGN_OR_RETURN(Bytes block, window_.Get(next, kTarBlockBytes, true));
    if (block.size() < kTarBlockBytes) {
      if (!any_header_) return NotTar();
      AddDamage(damage_at, file_.size(), std::move(reason));
      result_.has_end_blocks = after_zero_blocks_;
      done_ = true;
      return OkStatus();
    }
    bool magic_fits = !all_have_magic_ || AsText(block).substr(257, 5) == "ustar";
    if (magic_fits && !IsZeroBlock(block) && TarChecksumMatches(block)) break;
    next += kTarBlockBytes;
  }
  AddDamage(damage_at, next, std::move(reason));
  after_damage_ = !pending_was_there;
  after_zero_blocks_ = false;
  at_ = next;
  return OkStatus();
}

Status TarScanner::TakeHeader(const std::array<std::byte, kTarBlockBytes>& block) {
  const Bytes header(block);
  const char type = static_cast<char>(header[156]);
  if (AsText(header).substr(257, 5) != "ustar") all_have_magic_ = false;
  std::optional<uint64_t> size = ParseTarNumber(header.subspan(124, 12));
  if (!size) return Resync(at_, "the size field of the header is no number");
  any_header_ = true;
  after_zero_blocks_ = false;
  bool extension = type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
  return extension ? TakeExtension(type, *size) : TakeMember(header, type, *size);
}

Status TarScanner::TakeExtension(char type, uint64_t size) {
  if (type != 'g') {  // which belongs to all members that follow
    if (!pending_.any) pending_.first_offset = at_;
    pending_.any = true;
    after_damage_ = false;
  }
  const uint64_t data_at = at_ + kTarBlockBytes;
  if (size > file_.size() - std::min(file_.size(), data_at))
    return Resync(
        at_, fmt::format("an extension header of {} bytes runs past the end of the file", size));
  at_ = data_at + TarPaddedBytes(size);
  const bool is_pax = type == 'x' || type == 'X' || type == 'g';
  if (type == 'K') return OkStatus();  // the name that a link points to
  if (size > (is_pax ? kMaxPaxBytes : kMaxTarPathBytes + 1)) {
    pending_.lost = true;
    return OkStatus();
  }
  std::string data(size, '\0');
  for (uint64_t done = 0; done < size;) {
    uint64_t part = std::min(size - done, kLongReadBytes);
    HR_ASSIGN_OR_RETURN(Bytes bytes, window_.Get(data_at + done, part, long_reads_));
    if (bytes.size() < part) return Resync(data_at, "the file ends inside an extension header");
    std::memcpy(data.data() + done, bytes.data(), part);
    done += part;
  }
  if (!is_pax) {
    data.resize(std::min(data.find('\0'), data.size()));
    pending_.long_name = std::move(data);
  } else if (!ParsePax(data, type == 'g' ? &global_ : &pending_.pax)) {
    pending_.lost = true;
  }
  return OkStatus();
}

// Bytes of data that follow the header, holes' maps of old GNU sparse files included.
Result<uint64_t> TarScanner::DataBytes(Bytes block, char type, uint64_t size) {
  if (pending_.pax.size)
    size = *pending_.pax.size;
  else if (global_.size)
    size = *global_.size;
  if (type >= '1' && type <= '6') return uint64_t{0};  // links, devices, directories
  if (type != 'S') return size;
  HR_ASSIGN_OR_RETURN(uint64_t maps, SparseExtensionBytes(block));
  return size + maps;
}

Result<uint64_t> TarScanner::SparseExtensionBytes(Bytes block) {
  uint64_t maps = 0;
  bool more = block[482] != std::byte{0};
  while (more) {
    HR_ASSIGN_OR_RETURN(Bytes map, window_.Get(at_ + kTarBlockBytes + maps, kTarBlockBytes, true));
    if (map.size() < kTarBlockBytes) break;
    maps += kTarBlockBytes;
    more = map[504] != std::byte{0};
  }
  return maps;
}

void TarScanner::SetPath(Bytes block) {
  std::string& path = member_.path;
  if (pending_.pax.path) {
    path = *pending_.pax.path;
  } else if (pending_.long_name) {
    path = *pending_.long_name;
  } else if (global_.path) {
    path = *global_.path;
  } else {
    path.clear();
    if (AsText(block).substr(257, 6) == std::string_view("ustar\0", 6)) {
      bool star = AsText(block).substr(508, 4) == std::string_view("tar\0", 4);
      path = FieldText(block, 345, star ? 131 : kTarPrefixBytes);
      if (!path.empty()) path += '/';
    }
    path += FieldText(block, 0, kTarNameBytes);
  }
}

TarMemberKind KindOf(char type, bool sparse, std::string_view path) {
  switch (type) {
    case '0':
    case '7':
      return sparse ? TarMemberKind::kSparse : TarMemberKind::kFile;
    case '\0':  // before USTAR a directory was a name that ends in '/'
      if (path.ends_with('/')) return TarMemberKind::kDirectory;
      return sparse ? TarMemberKind::kSparse : TarMemberKind::kFile;
    case '1':
    case '2':
      return TarMemberKind::kLink;
    case '5':
      return TarMemberKind::kDirectory;
    case 'S':
      return TarMemberKind::kSparse;
    default:
      return TarMemberKind::kOther;
  }
}

Status TarScanner::TakeMember(Bytes block, char type, uint64_t size) {
  const uint64_t header_offset = pending_.any ? pending_.first_offset : at_;
  HR_ASSIGN_OR_RETURN(uint64_t data_bytes, DataBytes(block, type, size));
  const uint64_t data_offset = at_ + kTarBlockBytes;
  if (data_bytes > file_.size() - data_offset) {
    AddDamage(
        header_offset, file_.size(),
        fmt::format("a member of {} bytes at offset {} runs past the end of the file ({} bytes)",
                    data_bytes, data_offset, file_.size()));
    result_.has_end_blocks = false;
    done_ = true;
    return OkStatus();
  }
  SetPath(block);
  // The header of this member may have lost the extension header that held its name.
  bool name_lost = after_damage_ && !pending_.any &&
                   (last_member_had_extension_ || FieldText(block, 0, kTarNameBytes).size() >= 99);
  bool path_fits = member_.path.size() <= kMaxTarPathBytes;
  member_.kind = KindOf(type, IsSparsePax(), member_.path);
  member_.header_offset = header_offset;
  member_.data_offset = data_offset;
  member_.size_bytes = member_.kind == TarMemberKind::kDirectory ? 0 : data_bytes;
  last_member_had_extension_ = pending_.any;
  bool lost = pending_.lost || name_lost || !path_fits;
  pending_ = {};
  after_damage_ = false;
  long_reads_ = data_bytes <= kSmallMemberBytes;
  at_ = data_offset + TarPaddedBytes(data_bytes);
  result_.end_offset = std::min(at_, file_.size());
  if (lost) {
    AddDamage(header_offset, at_,
              "the extension header that names this member is damaged, too long "
              "or lost");
    return OkStatus();
  }
  ++result_.num_members;
  return visit_(member_);
}

}  // namespace

Result<TarScanResult> ScanTar(const RandomAccessFile& file, const Context& ctx,
                              const std::function<Status(const TarMember&)>& visit) {
  return TarScanner(file, ctx, visit).Run();
}

bool SplitMemberPath(std::string_view path, std::string_view* key, std::string_view* field) {
  size_t slash = path.rfind('/');
  size_t last_part = slash == std::string_view::npos ? 0 : slash + 1;
  size_t dot = path.find('.', last_part);
  if (dot == std::string_view::npos || dot == last_part || dot + 1 == path.size()) return false;
  *key = path.substr(0, dot);
  *field = path.substr(dot + 1);
  return true;
}

}  // namespace headrace::dataset
