#include "headrace/dataset/array_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "headrace/dataset/index_format.h"

namespace headrace::dataset {
namespace {

using index_format::PutVarint;
using index_format::RecordCursor;

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr size_t kAlign = 64;  // of the elements, as NumPy lays them
constexpr size_t kMaxHeaderBytes = 1024;

struct ElementRow {
  std::string_view descr;
  size_t bytes;
};

ElementRow RowOf(ElementType type) {
  static constexpr ElementRow kRows[] = {{"|u1", 1}, {"|i1", 1}, {"<u2", 2}, {"<i2", 2},
                                         {"<u4", 4}, {"<i4", 4}, {"<u8", 8}, {"<i8", 8},
                                         {"<f2", 2}, {"<f4", 4}, {"<f8", 8}, {"<i8", 8}};
  return kRows[static_cast<size_t>(type) - 1];
}

bool IsElementType(uint8_t number) {
  return number >= static_cast<uint8_t>(ElementType::kUint8) &&
         number <= static_cast<uint8_t>(ElementType::kVarint64);
}

bool Fits(std::span<const uint64_t> dims) {
  if (dims.size() > ArrayForm::kMaxDims) return false;
  uint64_t count = 1;
  for (uint64_t dim : dims) {
    if (dim > ArrayForm::kMaxElements) return false;
    if (__builtin_mul_overflow(count, dim, &count)) return false;
  }
  return count <= ArrayForm::kMaxElements;
}

constexpr std::string_view kBeforeShape = "', 'fortran_order': False, 'shape': (";

size_t Digits(uint64_t number) {
  size_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

// Bytes of the header without padding: magic, length, the dictionary, a newline.
size_t BareHeaderBytes(const ArrayForm& form) {
  constexpr std::string_view kBegin = "{'descr': '", kEnd = "), }";
  size_t bytes = kMagic.size() + 2 + kBegin.size() + RowOf(form.element).descr.size() +
                 kBeforeShape.size() + kEnd.size() + 1;
  for (size_t i = 0; i < form.num_dims; ++i) bytes += Digits(form.dims[i]) + 2;
  return bytes;
}

size_t HeaderBytes(const ArrayForm& form) {
  return (BareHeaderBytes(form) + kAlign - 1) / kAlign * kAlign;
}

void WriteHeader(const ArrayForm& form, MutableBytes out) {
  static_assert(kMaxHeaderBytes >= 128 + ArrayForm::kMaxDims * 15);
  char* at = reinterpret_cast<char*>(out.data());
  char* const end = at + out.size();
  at = std::copy(kMagic.begin(), kMagic.end(), at);
  StoreLittle<uint16_t>(at, static_cast<uint16_t>(out.size() - kMagic.size() - 2));
  at += 2;
  at = fmt::format_to(at, "{{'descr': '{}{}", RowOf(form.element).descr, kBeforeShape);
  for (size_t i = 0; i < form.num_dims; ++i) at = fmt::format_to(at, "{}, ", form.dims[i]);
  at = fmt::format_to(at, "), }}");
  std::fill(at, end, ' ');
  end[-1] = '\n';
}

// Decodes exactly `count` varints that fill `stored`. False when they do not.
bool DecodeVarints(Bytes stored, uint64_t count, std::byte* out) {
  const std::byte *p = stored.data(), *const end = p + stored.size();
  for (uint64_t i = 0; i < count; ++i, out += 8) {
    uint64_t value = 0;
    unsigned shift = 0;
    for (;; shift += 7) {
      if (p == end || shift > 63) return false;
      uint64_t b = static_cast<uint64_t>(*p++);
      value |= (b & 0x7f) << shift;
      if (b < 0x80) break;
    }
    StoreLittle(out, value);
  }
  return p == end;
}

}  // namespace

size_t ElementBytes(ElementType type) { return RowOf(type).bytes; }

Result<ArrayForm> ArrayForm::Make(ElementType element, std::span<const uint64_t> dims) {
  if (!Fits(dims))
    return Error(Code::kInvalidArgument, "an array may have {} dimensions and 2^40 elements",
                 kMaxDims);
  ArrayForm form;
  form.element = element;
  form.num_dims = dims.size();
  std::copy(dims.begin(), dims.end(), form.dims.begin());
  return form;
}

bool ArrayForm::Parse(std::string_view coded, ArrayForm* form) {
  RecordCursor cursor(AsBytes(coded));
  uint8_t element = cursor.Byte();
  uint64_t num_dims = cursor.Varint();
  if (!IsElementType(element) || num_dims > kMaxDims) return false;
  form->element = static_cast<ElementType>(element);
  form->num_dims = num_dims;
  for (size_t i = 0; i < num_dims; ++i) form->dims[i] = cursor.Varint();
  return cursor.ok() && cursor.at_end() && Fits(std::span(form->dims).first(num_dims));
}

void ArrayForm::AppendTo(std::string* out) const {
  out->push_back(static_cast<char>(element));
  PutVarint(num_dims, out);
  for (size_t i = 0; i < num_dims; ++i) PutVarint(dims[i], out);
}

uint64_t ArrayForm::num_elements() const {
  uint64_t count = 1;
  for (size_t i = 0; i < num_dims; ++i) count *= dims[i];
  return count;
}

uint64_t ArrayForm::StoredBytes() const {
  return element == ElementType::kVarint64 ? 0 : num_elements() * ElementBytes(element);
}

uint64_t NpyBytes(const ArrayForm& form) {
  return HeaderBytes(form) + form.num_elements() * ElementBytes(form.element);
}

Status WriteNpy(const ArrayForm& form, Bytes stored, MutableBytes out) {
  const size_t header = HeaderBytes(form);
  const uint64_t count = form.num_elements();
  bool fits = out.size() == header + count * ElementBytes(form.element);
  if (fits) WriteHeader(form, out.first(header));
  if (form.element == ElementType::kVarint64) {
    fits = fits && DecodeVarints(stored, count, out.data() + header);
  } else {
    fits = fits && stored.size() == out.size() - header;
    if (fits && !stored.empty()) std::memcpy(out.data() + header, stored.data(), stored.size());
  }
  if (fits) return OkStatus();
  return Error(Code::kDataLoss,
               "{} bytes were expected to hold {} {} exactly, and do not: the data changed or is "
               "damaged",
               stored.size(), count,
               form.element == ElementType::kVarint64 ? "varints" : "elements");
}

}  // namespace headrace::dataset
