// Headers of the tar members that we write: plain USTAR where it can hold the name and the size.
#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/dataset/tar.h"
#include "headrace/dataset/tar_block.h"

namespace headrace::dataset {
namespace {

constexpr uint64_t kMaxOctalSize = (uint64_t{1} << 33) - 1;  // eleven octal digits

// Writes `value` as zero-padded octal digits and a NUL, `width` bytes together.
void PutOctal(char* p, size_t width, uint64_t value) {
  p[width - 1] = 0;
  for (size_t i = width - 1; i-- > 0; value >>= 3) p[i] = static_cast<char>('0' + (value & 7));
}

// Finds the '/' at which USTAR can cut the path into prefix and name. npos: it cannot.
size_t FindPrefixCut(std::string_view path) {
  if (path.size() <= kTarNameBytes || path.size() > kTarNameBytes + 1 + kTarPrefixBytes)
    return std::string_view::npos;
  size_t first = path.size() - 1 - kTarNameBytes;  // so that the rest fits the name field
  size_t cut = path.find('/', std::max<size_t>(first, 1));
  bool fits = cut <= kTarPrefixBytes && cut + 1 < path.size();  // npos is larger, too
  return fits ? cut : std::string_view::npos;
}

bool FitsUstar(std::string_view path, uint64_t size_bytes) {
  if (size_bytes > kMaxOctalSize) return false;
  return path.size() <= kTarNameBytes || FindPrefixCut(path) != std::string_view::npos;
}

void AppendBlock(std::string_view prefix, std::string_view name, uint64_t size_bytes, char type,
                 std::string* out) {
  std::array<char, kTarBlockBytes> block{};
  std::memcpy(&block[0], name.data(), std::min(name.size(), kTarNameBytes));
  PutOctal(&block[100], 8, 0644);         // mode
  PutOctal(&block[108], 8, 0);            // owner
  PutOctal(&block[116], 8, 0);            // group
  PutOctal(&block[124], 12, size_bytes);  // size
  PutOctal(&block[136], 12, 0);           // time of change
  block[156] = type;
  std::memcpy(&block[257], "ustar\00000", 8);
  PutOctal(&block[329], 8, 0);  // device numbers
  PutOctal(&block[337], 8, 0);
  std::memcpy(&block[345], prefix.data(), prefix.size());
  std::memset(&block[148], ' ', 8);
  uint64_t sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  PutOctal(&block[148], 7, sum);  // six digits, NUL, and the space that is there
  out->append(block.data(), block.size());
}

// "LEN key=value\n", where LEN counts itself.
std::string PaxRecord(std::string_view key, std::string_view value) {
  size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (rest + std::to_string(length).size() != length)
    length = rest + std::to_string(length).size();
  std::string record = std::to_string(length);
  record.append(" ").append(key).append("=").append(value).append("\n");
  return record;
}

std::string PaxRecords(std::string_view path, uint64_t size_bytes) {
  std::string records;
  if (path.size() > kTarNameBytes && FindPrefixCut(path) == std::string_view::npos)
    records += PaxRecord("path", path);
  if (size_bytes > kMaxOctalSize) records += PaxRecord("size", std::to_string(size_bytes));
  return records;
}

}  // namespace

void AppendTarHeader(std::string_view path, uint64_t size_bytes, std::string* out) {
  if (!FitsUstar(path, size_bytes)) {
    std::string records = PaxRecords(path, size_bytes);
    AppendBlock("", "PaxHeaders/headrace", records.size(), 'x', out);
    size_t padding = TarPaddedBytes(records.size()) - records.size();
    out->append(records).append(padding, '\0');
  }
  // A size that the field cannot hold is 0 there and true in the PAX record, as POSIX has it.
  uint64_t size_field = size_bytes > kMaxOctalSize ? 0 : size_bytes;
  size_t cut = FindPrefixCut(path);
  if (cut == std::string_view::npos)
    AppendBlock("", path, size_field, '0', out);
  else
    AppendBlock(path.substr(0, cut), path.substr(cut + 1), size_field, '0', out);
}

uint64_t TarHeaderBytes(std::string_view path, uint64_t size_bytes) {
  if (FitsUstar(path, size_bytes)) return kTarBlockBytes;
  return 2 * kTarBlockBytes + TarPaddedBytes(PaxRecords(path, size_bytes).size());
}

}  // namespace headrace::dataset
