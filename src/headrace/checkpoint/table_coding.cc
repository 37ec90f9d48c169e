#include "headrace/checkpoint/table_coding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "headrace/base/text.h"
#include "headrace/base/varint.h"
#include "headrace/checkpoint/tensor_path.h"

namespace headrace::checkpoint {
namespace {

constexpr uint8_t kWholeTensor = 1;  // flags of a box
constexpr uint8_t kReplica = 2;
constexpr uint8_t kCarried = 1;  // flag of a file
// The fewest bytes that a row takes, so that a count can be held against the bytes there are.
constexpr size_t kLeastTensor = 3;  // length of the path, dtype, number of dimensions
constexpr size_t kLeastFile = 23;
constexpr size_t kLeastBox = 24;
constexpr size_t kVarintBytes = 10;

Status Wrong(std::string text) { return {Code::kDataLoss, std::move(text)}; }

std::string Shown(std::string_view path) { return EscapeText(path.substr(0, 300)); }

// What both directions hold a tensor to; the text says what is wrong.
std::string FaultOfTensor(std::string_view path, DType dtype, Extents shape) {
  if (path.size() > kMaxPathBytes) return "its path has more than 65,535 bytes";
  if (shape.size() > kMaxDimensions) return "it has more than 64 dimensions";
  const std::optional<uint64_t> elements = Volume(shape);
  if (!elements || !BytesOf(dtype, *elements))
    return fmt::format("{} elements of {} are too many, or no whole number of bytes",
                       ShapeText(shape), DTypeName(dtype));
  return {};
}

// The same for a box; `bytes` are those of its elements.
std::string FaultOfBox(const BoxEntry& entry, BoxView box, const TensorTable& tensors,
                       const std::vector<FileEntry>& files) {
  const Extents shape = tensors.shape(entry.tensor);
  if (!FitsInto(box, shape))
    return fmt::format("the box {} lies outside the tensor of shape {}", BoxText(box),
                       ShapeText(shape));
  const std::optional<uint64_t> bytes =
      BytesOf(tensors.dtype(entry.tensor), Volume(box.length).value_or(UINT64_MAX));
  if (!bytes || *bytes != entry.bytes)
    return fmt::format("the box {} of {} does not have {} bytes", BoxText(box),
                       DTypeName(tensors.dtype(entry.tensor)), entry.bytes);
  const uint64_t file_bytes = files[entry.file].bytes;
  if (entry.offset > file_bytes || *bytes > file_bytes - entry.offset)
    return fmt::format("{} bytes at offset {} lie outside {} of {} bytes", *bytes, entry.offset,
                       files[entry.file].name.Hex(), file_bytes);
  return {};
}

// Writes into memory that has room.
class RowWriter {
 public:
  explicit RowWriter(char* begin) : begin_(begin), p_(begin) {}
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) *p_++ = static_cast<char>(value | 0x80);
    *p_++ = static_cast<char>(value);
  }
  void Byte(uint8_t value) { *p_++ = static_cast<char>(value); }
  template <typename T>
  void Little(T value) {
    StoreLittle(p_, value);
    p_ += sizeof(T);
  }
  std::string_view text() const { return {begin_, static_cast<size_t>(p_ - begin_)}; }

 private:
  char* const begin_;
  char* p_;
};

}  // namespace

Result<std::string> EncodeTensors(const TensorTable& tensors) {
  std::string out;
  out.reserve(tensors.text_bytes() + tensors.size() * 12 + kVarintBytes);
  PutVarint(tensors.size(), &out);
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const std::string_view path = tensors.path(i);
    std::string fault = FaultOfTensor(path, tensors.dtype(i), tensors.shape(i));
    if (fault.empty() && i > 0 && path <= tensors.path(i - 1))
      fault = fmt::format("its path is not behind '{}'", Shown(tensors.path(i - 1)));
    if (!fault.empty())
      return Error(Code::kInvalidArgument, "the tensor '{}' cannot be stored: {}", Shown(path),
                   fault);
    PutVarint(path.size(), &out);
    out += path;
    out += static_cast<char>(tensors.dtype(i));
    PutVarint(tensors.shape(i).size(), &out);
    for (uint64_t length : tensors.shape(i)) PutVarint(length, &out);
  }
  return out;
}

Result<TensorTable> DecodeTensors(Bytes body) {
  RecordCursor cursor(body);
  const uint64_t count = cursor.Varint();
  if (!cursor.ok() || count > cursor.left() / kLeastTensor)
    return Wrong(fmt::format("{} tensors do not fit into it", count));
  TensorTable tensors;
  tensors.Reserve(count, cursor.left() - count * kLeastTensor, 2 * count);
  std::vector<uint64_t> shape;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string_view path = cursor.Text(cursor.Varint());
    const uint8_t dtype = cursor.Byte();
    const uint64_t dimensions = cursor.Varint();
    if (!cursor.ok() || dimensions > kMaxDimensions || !IsDType(dtype))
      return Wrong(fmt::format("tensor {} ends too early or makes no sense", i));
    shape.resize(dimensions);
    for (uint64_t& length : shape) length = cursor.Varint();
    if (!cursor.ok()) return Wrong(fmt::format("tensor {} ends too early", i));
    std::string fault = FaultOfTensor(path, static_cast<DType>(dtype), shape);
    if (fault.empty() && i > 0 && path <= tensors.path(i - 1)) fault = "its path does not ascend";
    if (!fault.empty()) return Wrong(fmt::format("tensor '{}': {}", Shown(path), fault));
    tensors.Add(path, static_cast<DType>(dtype), shape);
  }
  if (!cursor.at_end()) return Wrong("there is more behind the last tensor");
  return tensors;
}

Result<std::string> EncodeFiles(const std::vector<FileEntry>& files) {
  std::string out;
  PutVarint(files.size(), &out);
  for (const FileEntry& file : files) {
    std::array<char, 2 * kVarintBytes + 21> row;
    RowWriter writer(row.data());
    writer.Little(file.name.low);
    writer.Little(file.name.high);
    writer.Varint(file.bytes);
    writer.Little(file.crc32c);
    writer.Varint(file.rank);
    writer.Byte(file.carried ? kCarried : 0);
    out += writer.text();
  }
  return out;
}

Result<std::vector<FileEntry>> DecodeFiles(Bytes body) {
  RecordCursor cursor(body);
  const uint64_t count = cursor.Varint();
  if (!cursor.ok() || count > cursor.left() / kLeastFile)
    return Wrong(fmt::format("{} files do not fit into it", count));
  std::vector<FileEntry> files(count);
  for (FileEntry& file : files) {
    file.name.low = cursor.Long();
    file.name.high = cursor.Long();
    file.bytes = cursor.Varint();
    file.crc32c = cursor.Word();
    const uint64_t rank = cursor.Varint();
    const uint8_t flags = cursor.Byte();
    if (!cursor.ok() || rank > UINT32_MAX || flags > kCarried)
      return Wrong(fmt::format("file {} ends too early or makes no sense", &file - files.data()));
    file.rank = static_cast<uint32_t>(rank);
    file.carried = flags != 0;
  }
  if (!cursor.at_end()) return Wrong("there is more behind the last file");
  return files;
}

Result<std::string> EncodeBoxes(const BoxTable& boxes, const TensorTable& tensors,
                                const std::vector<FileEntry>& files) {
  std::string out;
  out.reserve(boxes.size() * 40 + kVarintBytes);
  PutVarint(boxes.size(), &out);
  std::vector<uint64_t> end_in_file(files.size());
  uint32_t previous = 0;
  std::array<char, (4 + 2 * kMaxDimensions) * kVarintBytes + 21> row;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const BoxEntry& entry = boxes.entry(i);
    const BoxView box = boxes.box(i);
    if (entry.tensor >= tensors.size() || entry.file >= files.size())
      return Error(Code::kInvalidArgument, "box {} names tensor {} of {} and file {} of {}", i,
                   entry.tensor, tensors.size(), entry.file, files.size());
    if (std::string fault = FaultOfBox(entry, box, tensors, files); !fault.empty())
      return Error(Code::kInvalidArgument, "the tensor '{}' cannot be stored: {}",
                   Shown(tensors.path(entry.tensor)), fault);
    const bool whole = IsWhole(box, tensors.shape(entry.tensor));
    RowWriter writer(row.data());
    writer.Varint(ZigZag(uint64_t{entry.tensor} - previous));
    writer.Varint(entry.file);
    writer.Varint(ZigZag(entry.offset - end_in_file[entry.file]));
    writer.Byte(static_cast<uint8_t>((whole ? kWholeTensor : 0) | (entry.replica ? kReplica : 0)));
    for (size_t k = 0; k < box.dimensions() && !whole; ++k) {
      writer.Varint(box.offset[k]);
      writer.Varint(box.length[k]);
    }
    writer.Little(entry.crc32c);
    writer.Little(entry.hash.low);
    writer.Little(entry.hash.high);
    out += writer.text();
    previous = entry.tensor;
    end_in_file[entry.file] = entry.offset + entry.bytes;
  }
  return out;
}

Result<BoxTable> DecodeBoxes(Bytes body, const TensorTable& tensors,
                             const std::vector<FileEntry>& files) {
  RecordCursor cursor(body);
  const uint64_t count = cursor.Varint();
  if (!cursor.ok() || count > cursor.left() / kLeastBox)
    return Wrong(fmt::format("{} boxes do not fit into it", count));
  BoxTable boxes;
  boxes.Reserve(count, 0);
  std::vector<uint64_t> end_in_file(files.size());
  uint64_t tensor = 0;
  std::array<uint64_t, 2 * kMaxDimensions> numbers;
  for (uint64_t i = 0; i < count; ++i) {
    tensor += UnZigZag(cursor.Varint());
    const uint64_t file = cursor.Varint();
    const uint64_t distance = UnZigZag(cursor.Varint());
    const uint8_t flags = cursor.Byte();
    if (!cursor.ok() || tensor >= tensors.size() || file >= files.size() ||
        flags > (kWholeTensor | kReplica))
      return Wrong(fmt::format("box {} ends too early or makes no sense", i));
    const Extents shape = tensors.shape(static_cast<uint32_t>(tensor));
    const size_t dimensions = shape.size();
    const BoxView box{Extents(numbers.data(), dimensions),
                      Extents(numbers.data() + dimensions, dimensions)};
    for (size_t k = 0; k < dimensions; ++k) {
      const bool whole = (flags & kWholeTensor) != 0;
      numbers[k] = whole ? 0 : cursor.Varint();
      numbers[dimensions + k] = whole ? shape[k] : cursor.Varint();
    }
    BoxEntry entry;
    entry.tensor = static_cast<uint32_t>(tensor);
    entry.file = static_cast<uint32_t>(file);
    entry.offset = end_in_file[file] + distance;
    entry.crc32c = cursor.Word();
    entry.hash.low = cursor.Long();
    entry.hash.high = cursor.Long();
    entry.replica = (flags & kReplica) != 0;
    if (!cursor.ok()) return Wrong(fmt::format("box {} ends too early", i));
    entry.bytes =
        BytesOf(tensors.dtype(entry.tensor), Volume(box.length).value_or(UINT64_MAX)).value_or(0);
    if (std::string fault = FaultOfBox(entry, box, tensors, files); !fault.empty())
      return Wrong(fmt::format("tensor '{}': {}", Shown(tensors.path(entry.tensor)), fault));
    boxes.Add(entry, box);
    end_in_file[file] = entry.offset + entry.bytes;
  }
  if (!cursor.at_end()) return Wrong("there is more behind the last box");
  return boxes;
}

}  // namespace headrace::checkpoint
