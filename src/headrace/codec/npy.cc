#include "headrace/codec/npy.h"

#include <algorithm>

#include "headrace/base/text.h"

namespace headrace::codec {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Reads the Python dictionary literal of the header: three known names in any order.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, size_t base, NpyArray* array)
      : text_(text), base_(base), array_(array) {}

  Status Read() {
    HR_RETURN_IF_ERROR(Expect('{'));
    while (!Take('}')) {
      std::string_view name;
      HR_RETURN_IF_ERROR(Quoted(&name));
      HR_RETURN_IF_ERROR(Expect(':'));
      HR_RETURN_IF_ERROR(Member(name));
      if (!Take(',')) {
        HR_RETURN_IF_ERROR(Expect('}'));
        break;
      }
    }
    Space();
    if (at_ != text_.size()) return Wrong("the end of the header");
    if (seen_ != 7)
      return Error(Code::kDataLoss, ".npy header lacks descr, fortran_order or shape");
    return OkStatus();
  }

 private:
  Status Member(std::string_view name) {
    if (name == "descr") {
      seen_ |= 1;
      return Descr();
    }
    if (name == "fortran_order") {
      seen_ |= 2;
      return FortranOrder();
    }
    if (name == "shape") {
      seen_ |= 4;
      return Shape();
    }
    return Wrong("descr, fortran_order or shape");
  }

  Status Descr() {
    Space();
    std::string_view descr;
    if (Peek() == '[')
      return Error(Code::kUnimplemented, ".npy array of records: only plain numbers are supported");
    HR_RETURN_IF_ERROR(Quoted(&descr));
    struct Row {
      std::string_view name;
      NpyType type;
      size_t bytes;
    };
    static constexpr Row kRows[] = {
        {"|b1", NpyType::kBool, 1}, {"|i1", NpyType::kI8, 1},  {"<i2", NpyType::kI16, 2},
        {"<i4", NpyType::kI32, 4},  {"<i8", NpyType::kI64, 8}, {"|u1", NpyType::kU8, 1},
        {"<u2", NpyType::kU16, 2},  {"<u4", NpyType::kU32, 4}, {"<u8", NpyType::kU64, 8},
        {"<f2", NpyType::kF16, 2},  {"<f4", NpyType::kF32, 4}, {"<f8", NpyType::kF64, 8}};
    for (const Row& row : kRows) {
      if (row.name != descr) continue;
      array_->type = row.type;
      array_->element_bytes = row.bytes;
      return OkStatus();
    }
    return Error(Code::kUnimplemented,
                 ".npy type '{}' is not supported: little-endian b1, i1-i8, u1-u8, f2-f8 are",
                 EscapeText(descr));
  }

  Status FortranOrder() {
    Space();
    for (std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      fortran_ = word == "True";
      return CheckOrder();
    }
    return Wrong("True or False");
  }
  Status Shape() {
    HR_RETURN_IF_ERROR(Expect('('));
    while (!Take(')')) {
      if (array_->num_dims == NpyArray::kMaxDims)
        return Error(Code::kDataLoss, ".npy header has more than {} dimensions",
                     NpyArray::kMaxDims);
      HR_RETURN_IF_ERROR(Integer(&array_->dims[array_->num_dims++]));
      if (!Take(',')) {
        HR_RETURN_IF_ERROR(Expect(')'));
        break;
      }
    }
    return CheckOrder();
  }
  // With one dimension both orders are the same.
  Status CheckOrder() const {
    if (fortran_ && array_->num_dims > 1)
      return Error(Code::kUnimplemented,
                   ".npy array in Fortran order: save it with numpy.ascontiguousarray");
    return OkStatus();
  }
  Status Integer(uint64_t* value) {
    Space();
    if (Peek() < '0' || Peek() > '9') return Wrong("a number");
    *value = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      if (*value > (uint64_t{1} << 48)) return Wrong("a size below 2^48");
      *value = *value * 10 + static_cast<uint64_t>(Peek() - '0');
    }
    if (Peek() == 'L') ++at_;  // Python 2 wrote long integers so
    return OkStatus();
  }
  Status Quoted(std::string_view* text) {
    Space();
    char quote = Peek();
    if (quote != '\'' && quote != '"') return Wrong("a name in quotes");
    size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return Wrong("a name in quotes");
    *text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return OkStatus();
  }

  void Space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    Space();
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  Status Expect(char c) {
    if (Take(c)) return OkStatus();
    return Wrong(std::string_view(&c, 1));
  }
  Status Wrong(std::string_view expected) const {
    return Error(Code::kDataLoss, ".npy header: expected {} at byte {}, found \"{}\"", expected,
                 base_ + at_, EscapeText(text_.substr(at_, 12)));
  }

  std::string_view text_;
  size_t base_;
  NpyArray* array_;
  size_t at_ = 0;
  int seen_ = 0;
  bool fortran_ = false;
};

Status CheckSize(size_t header_end, Bytes rest, const NpyArray& array) {
  uint64_t bytes = array.element_bytes;
  bool too_many = false;
  for (size_t i = 0; i < array.num_dims; ++i)
    too_many |= __builtin_mul_overflow(bytes, array.dims[i], &bytes);
  if (too_many) return Error(Code::kDataLoss, ".npy header: the shape is too large");
  if (bytes == rest.size()) return OkStatus();
  return Error(
      Code::kDataLoss,
      ".npy array is {}: its shape needs {} bytes after the header, found {} from byte {} on",
      rest.size() < bytes ? "truncated" : "followed by other bytes", bytes, rest.size(),
      header_end);
}

}  // namespace

bool IsNpy(Bytes bytes) { return AsText(bytes).substr(0, kMagic.size()) == kMagic; }

Result<NpyArray> ParseNpy(Bytes bytes) {
  if (!IsNpy(bytes))
    return Error(Code::kDataLoss, "not an .npy array: it does not begin with \\x93NUMPY");
  if (bytes.size() < 12)
    return Error(Code::kDataLoss, ".npy array ends at byte {}, in its header", bytes.size());
  unsigned major = std::to_integer<unsigned>(bytes[6]), minor = std::to_integer<unsigned>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0)
    return Error(Code::kUnimplemented, ".npy format version {}.{} is not known (1.0 to 3.0 are)",
                 major, minor);
  size_t start = major == 1 ? 10 : 12;
  size_t length =
      major == 1 ? LoadLittle<uint16_t>(bytes.data() + 8) : LoadLittle<uint32_t>(bytes.data() + 8);
  if (length > bytes.size() - start)
    return Error(Code::kDataLoss, ".npy array ends at byte {}, in its header of {} bytes",
                 bytes.size(), length);
  NpyArray array;
  HR_RETURN_IF_ERROR(HeaderReader(AsText(bytes.subspan(start, length)), start, &array).Read());
  array.data = bytes.subspan(start + length);
  HR_RETURN_IF_ERROR(CheckSize(start + length, array.data, array));
  return array;
}

Number NpyElement(const NpyArray& array, size_t index) {
  const std::byte* p = array.data.data() + index * array.element_bytes;
  switch (array.type) {
    case NpyType::kBool:
      return Number::Unsigned(*p != std::byte{0});
    case NpyType::kI8:
      return Number::Signed(LoadLittle<int8_t>(p));
    case NpyType::kI16:
      return Number::Signed(LoadLittle<int16_t>(p));
    case NpyType::kI32:
      return Number::Signed(LoadLittle<int32_t>(p));
    case NpyType::kI64:
      return Number::Signed(LoadLittle<int64_t>(p));
    case NpyType::kU8:
      return Number::Unsigned(LoadLittle<uint8_t>(p));
    case NpyType::kU16:
      return Number::Unsigned(LoadLittle<uint16_t>(p));
    case NpyType::kU32:
      return Number::Unsigned(LoadLittle<uint32_t>(p));
    case NpyType::kU64:
      return Number::Unsigned(LoadLittle<uint64_t>(p));
    case NpyType::kF16:
      return Number::Float(HalfToFloat(LoadLittle<uint16_t>(p)));
    case NpyType::kF32:
      return Number::Float(LoadLittle<float>(p));
    case NpyType::kF64:
      break;
  }
  return Number::Float(LoadLittle<double>(p));
}

bool SameBits(NpyType type, DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return type == NpyType::kU8;
    case DType::kInt8:
      return type == NpyType::kI8;
    case DType::kInt16:
      return type == NpyType::kI16;
    case DType::kInt32:
      return type == NpyType::kI32;
    case DType::kInt64:
      return type == NpyType::kI64;
    case DType::kFloat16:
      return type == NpyType::kF16;
    case DType::kBfloat16:
      return false;
    case DType::kFloat32:
      return type == NpyType::kF32;
    case DType::kFloat64:
      return type == NpyType::kF64;
  }
  return false;
}

}  // namespace headrace::codec
