#include "headrace/dataset/array_form.h"

#include <gtest/gtest.h>

#include "headrace/codec/npy.h"

namespace headrace::dataset {
namespace {

std::string Npy(const ArrayForm& form, std::string_view stored) {
  std::string npy(NpyBytes(form), '?');
  Status made =
      WriteNpy(form, AsBytes(stored), {reinterpret_cast<std::byte*>(npy.data()), npy.size()});
  EXPECT_TRUE(made.ok()) << made.ToString();
  return npy;
}

TEST(ArrayForm, ComesBackFromItsCode) {
  for (int element = 1; element <= 12; ++element) {
    std::vector<uint64_t> dims;
    for (uint64_t dim : {3, 300, 1, 7}) {
      auto form = ArrayForm::Make(static_cast<ElementType>(element), dims).value();
      std::string coded;
      form.AppendTo(&coded);
      ArrayForm back;
      ASSERT_TRUE(ArrayForm::Parse(coded, &back));
      EXPECT_EQ(back.element, form.element);
      EXPECT_EQ(back.num_dims, dims.size());
      EXPECT_EQ(back.num_elements(), form.num_elements());
      for (size_t cut = 0; cut < coded.size(); ++cut)
        EXPECT_FALSE(ArrayForm::Parse(coded.substr(0, cut), &back));
      EXPECT_FALSE(ArrayForm::Parse(coded + '\0', &back));
      dims.push_back(dim);
    }
  }
}

TEST(ArrayForm, RefusesWhatIsTooLarge) {
  std::vector<uint64_t> dims(33, 1);
  EXPECT_FALSE(ArrayForm::Make(ElementType::kInt8, dims).ok());
  dims = {uint64_t{1} << 21, uint64_t{1} << 20};
  EXPECT_FALSE(ArrayForm::Make(ElementType::kInt8, dims).ok());
  dims = {UINT64_MAX, UINT64_MAX};
  EXPECT_FALSE(ArrayForm::Make(ElementType::kInt8, dims).ok());
  ArrayForm form;
  EXPECT_FALSE(ArrayForm::Parse(std::string("\0\0", 2), &form));
  EXPECT_FALSE(ArrayForm::Parse("\x0d", &form));
}

TEST(ArrayForm, MakesArraysThatTheCodecReads) {
  struct Case {
    ElementType element;
    codec::NpyType type;
    size_t bytes;
  };
  for (const Case& c : {Case{ElementType::kUint8, codec::NpyType::kU8, 1},
                        {ElementType::kInt8, codec::NpyType::kI8, 1},
                        {ElementType::kUint16, codec::NpyType::kU16, 2},
                        {ElementType::kInt16, codec::NpyType::kI16, 2},
                        {ElementType::kUint32, codec::NpyType::kU32, 4},
                        {ElementType::kInt32, codec::NpyType::kI32, 4},
                        {ElementType::kUint64, codec::NpyType::kU64, 8},
                        {ElementType::kInt64, codec::NpyType::kI64, 8},
                        {ElementType::kFloat16, codec::NpyType::kF16, 2},
                        {ElementType::kFloat32, codec::NpyType::kF32, 4},
                        {ElementType::kFloat64, codec::NpyType::kF64, 8}}) {
    std::vector<std::vector<uint64_t>> shapes = {{}, {5}, {2, 3}, {0}, {4, 0}};
    shapes.push_back(std::vector<uint64_t>(32, 1));
    for (const std::vector<uint64_t>& dims : shapes) {
      auto form = ArrayForm::Make(c.element, dims).value();
      EXPECT_EQ(form.StoredBytes(), form.num_elements() * c.bytes);
      std::string stored(form.StoredBytes(), '\0');
      for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<char>(i * 7);
      std::string npy = Npy(form, stored);
      auto array = codec::ParseNpy(AsBytes(npy));
      ASSERT_TRUE(array.ok()) << array.status().ToString();
      EXPECT_EQ(array->type, c.type);
      EXPECT_EQ(std::vector<uint64_t>(array->dims.begin(), array->dims.begin() + array->num_dims),
                dims);
      EXPECT_EQ(AsText(array->data), stored);
      EXPECT_EQ((npy.size() - stored.size()) % 64, 0u);
    }
  }
}

TEST(ArrayForm, DecodesVarintsExactly) {
  const uint64_t three = 3;
  auto form = ArrayForm::Make(ElementType::kVarint64, {&three, 1}).value();
  std::string npy = Npy(form, "\x01\xac\x02\x7f");
  auto array = codec::ParseNpy(AsBytes(npy)).value();
  EXPECT_EQ(codec::NpyElement(array, 1).i, 300);
  std::string out(NpyBytes(form), '\0');
  MutableBytes room(reinterpret_cast<std::byte*>(out.data()), out.size());
  const std::string too_long = std::string(10, '\xff') + "\x01\x01\x01";
  for (std::string_view stored :
       {std::string_view(""), std::string_view("\x01\x02"), std::string_view("\x01\x02\x03\x04"),
        std::string_view("\x01\x02\x83"), std::string_view(too_long)})
    EXPECT_EQ(WriteNpy(form, AsBytes(stored), room).code(), Code::kDataLoss);
  EXPECT_EQ(WriteNpy(form, AsBytes("\x01\x02\x03"), room.first(out.size() - 8)).code(),
            Code::kDataLoss);
}

}  // namespace
}  // namespace headrace::dataset
