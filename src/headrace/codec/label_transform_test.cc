#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "headrace/codec/element.h"
#include "headrace/codec/json_scan.h"
#include "headrace/codec/testing/golden_files.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {
namespace {

std::shared_ptr<const Transform> Make(const std::string& members) {
  auto transform =
      CreateTransform("{\"type\": \"label\"" + (members.empty() ? "" : ", " + members) + "}");
  EXPECT_TRUE(transform.ok()) << transform.status().ToString();
  return *transform;
}

Status Apply(const Transform& transform, std::string_view field, std::vector<std::byte>* out) {
  Scratch scratch;
  out->assign(transform.output().bytes(), std::byte{0xcc});
  return transform.Apply(AsBytes(field), {}, {}, &scratch, *out);
}

template <typename T>
std::vector<T> Read(const std::string& members, std::string_view field) {
  std::vector<std::byte> out;
  Status status = Apply(*Make(members), field, &out);
  EXPECT_TRUE(status.ok()) << field << ": " << status.ToString();
  std::vector<T> values(out.size() / sizeof(T));
  if (!out.empty()) std::memcpy(values.data(), out.data(), out.size());
  return values;
}

std::string Fails(const std::string& members, std::string_view field, Code code = Code::kDataLoss) {
  std::vector<std::byte> out;
  Status status = Apply(*Make(members), field, &out);
  EXPECT_EQ(status.code(), code) << field << ": " << status.ToString();
  return std::string(status.message());
}

using I64 = std::vector<int64_t>;
using F32 = std::vector<float>;

TEST(LabelText, ReadsNumbers) {
  EXPECT_EQ(Read<int64_t>("", "7\n"), I64{7});
  EXPECT_EQ(Read<int64_t>("", "  -12\t\r\n"), I64{-12});
  EXPECT_EQ(Read<int64_t>("", "+5"), I64{5});
  EXPECT_EQ(Read<int64_t>("", "3.0"), I64{3});
  EXPECT_EQ(Read<int64_t>("", "9223372036854775807"), I64{INT64_MAX});
  EXPECT_EQ(Read<float>(R"("dtype": "float32")", "0.1"), F32{0.1f});
  EXPECT_EQ(Read<float>(R"("dtype": "float32", "shape": [3])", "1 2.5,-3e2\n"),
            (F32{1, 2.5f, -300}));
  EXPECT_EQ(Read<int64_t>(R"("shape": [2, 2])", "1, 2\n3, 4"), (I64{1, 2, 3, 4}));
  EXPECT_EQ(Read<uint16_t>(R"("dtype": "bfloat16")", "1.5"), std::vector<uint16_t>{0x3fc0});
}

TEST(LabelText, SaysWhatItFound) {
  EXPECT_NE(Fails("", "cat\n").find("at byte 0 of the text, found \"cat\\n\""), std::string::npos);
  EXPECT_NE(Fails("", "").find("empty (0 bytes)"), std::string::npos);
  EXPECT_NE(Fails("", " \n").find("expected 1 number in the text, found 0"), std::string::npos);
  EXPECT_NE(Fails("", "1 2").find("found more than 1"), std::string::npos);
  EXPECT_NE(Fails("", "2.5").find("not a whole number"), std::string::npos);
  EXPECT_NE(Fails("", "99999999999999999999").find("outside the range of int64"),
            std::string::npos);
  EXPECT_NE(Fails(R"("dtype": "uint8")", "256").find("256 at byte 0 is outside the range of uint8"),
            std::string::npos);
  EXPECT_NE(Fails(R"("dtype": "float32")", "16777217").find("cannot be stored exactly"),
            std::string::npos);
  EXPECT_NE(Fails(R"("shape": [3])", "1,2,,3").find("at byte 4"), std::string::npos);
  Fails("", "0x10");
  Fails("", "1e400");
  Fails("", "7 cats");
  Fails("", "+-5");
  Fails("", std::string_view("7\0", 2));
}

TEST(LabelJson, ReadsNumbersBoolsArraysAndPaths) {
  EXPECT_EQ(Read<int64_t>("", "true"), I64{1});
  EXPECT_EQ(Read<int64_t>("", "false\n"), I64{0});
  EXPECT_EQ(Read<int64_t>(R"("shape": [3])", "[1, 2, 3]"), (I64{1, 2, 3}));
  EXPECT_EQ(Read<int64_t>(R"("shape": [2, 2])", " [[1,2],\n[3,4]] "), (I64{1, 2, 3, 4}));
  EXPECT_EQ(Read<int64_t>(R"("path": "/meta/label")",
                          R"({"a": [1, {"b": null}], "meta": {"label": 42}})"),
            I64{42});
  EXPECT_EQ(Read<int64_t>(R"("path": "/boxes/1/0")", R"({"boxes": [[1, 2], [3, 4]]})"), I64{3});
  EXPECT_EQ(Read<int64_t>(R"("path": "/a~1b~0c")", R"({"a/b~c": 5})"), I64{5});
  EXPECT_EQ(Read<int64_t>(R"("path": "/é")", R"({"\u00e9": 6})"), I64{6});
  EXPECT_EQ(Read<int64_t>(R"("path": "/x")", R"({"x": 1, "x": 2})"), I64{2});
  EXPECT_EQ(Read<int64_t>(R"("path": "")", "8"), I64{8});
  EXPECT_EQ(Read<double>(R"("dtype": "float64", "format": "json")", "-1.25e-3"),
            std::vector<double>{-1.25e-3});
  EXPECT_EQ(Read<int64_t>(R"("shape": [0])", "[]"), I64{});
}

TEST(LabelJson, SaysWhatItFound) {
  EXPECT_NE(Fails(R"("path": "/label")", R"({"labels": 1})").find("no member \"/label\""),
            std::string::npos);
  EXPECT_NE(Fails("", "\"7\"").find("a string"), std::string::npos);
  EXPECT_NE(Fails("", "null").find("null"), std::string::npos);
  EXPECT_NE(Fails(R"("path": "/a")", R"({"a": {"b": 1}})").find("an object"), std::string::npos);
  EXPECT_NE(Fails(R"("shape": [3])", "[1, 2]").find("expected an array of 3 elements"),
            std::string::npos);
  EXPECT_NE(Fails(R"("shape": [1])", "[1, 2]").find("found more"), std::string::npos);
  EXPECT_NE(Fails(R"("shape": [2, 1])", "[1, 2]").find("at byte 1"), std::string::npos);
  EXPECT_NE(Fails(R"("format": "json")", "[1, 2").find("at byte 5"), std::string::npos);
  for (const char* bad :
       {"{",           "{\"a\"}", "{\"a\": 1,}", "[1 2]",       "01",     "1.",       "-",
        "1e",          "[1]x",    "\"\\x\"",     "\"\\u12g4\"", "tru",    "{'a': 1}", "\"open",
        "\"tab\tin\"", "",        "+1",          ".5",          "[1,,2]", "nan"})
    if (*bad) Fails(R"("format": "json")", bad);
  Fails(R"("format": "json")", std::string(100, '[') + std::string(100, ']'));
}

TEST(JsonPointer, FollowsItsRules) {
  auto names = ParseJsonPointer("/a//b~01");
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{"a", "", "b~1"}));
  EXPECT_FALSE(ParseJsonPointer("a").ok());
  EXPECT_FALSE(ParseJsonPointer("/a~2").ok());
}

TEST(LabelNpy, ReadsNumPysFiles) {
  EXPECT_EQ(Read<int64_t>("", ReadGolden("scalar_i8.npy")), I64{-5});
  EXPECT_EQ(Read<int8_t>(R"("dtype": "int8")", ReadGolden("scalar_i8.npy")),
            std::vector<int8_t>{-5});
  EXPECT_EQ(Read<float>(R"("dtype": "float32", "shape": [2, 3])", ReadGolden("matrix_f4.npy")),
            (F32{0.5f, -1.25f, 3, 4, 5, 6e10f}));
  EXPECT_EQ(Read<double>(R"("dtype": "float64", "shape": [2, 3])", ReadGolden("matrix_f4.npy"))[5],
            6e10f);
  EXPECT_EQ(Read<int32_t>(R"("dtype": "int32", "shape": [3])", ReadGolden("vector_u2.npy")),
            (std::vector<int32_t>{0, 300, 65535}));
  EXPECT_EQ(Read<uint8_t>(R"("dtype": "uint8", "shape": [2])", ReadGolden("bools.npy")),
            (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(Read<double>(R"("dtype": "float64", "shape": [2])", ReadGolden("version_3.npy")),
            (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(Read<int64_t>(R"("shape": [3])", ReadGolden("version_2.npy")), (I64{7, 8, 9}));
}

TEST(LabelNpy, OneNumberIsOneNumber) {
  EXPECT_EQ(Read<int64_t>(R"("shape": [1])", ReadGolden("scalar_i8.npy")), I64{-5});
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\n";
  const std::string one =
      std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(header.size()) + '\0' + header + '\x07';
  EXPECT_EQ(Read<int64_t>("", one), I64{7});
  EXPECT_EQ(Read<int64_t>(R"("shape": [1])", one), I64{7});
  EXPECT_NE(Fails(R"("shape": [1, 1])", ReadGolden("scalar_i8.npy")).find("expected [1, 1]"),
            std::string::npos);
}

TEST(LabelNpy, SaysWhatItFound) {
  EXPECT_NE(Fails(R"("shape": [2])", ReadGolden("scalar_i8.npy")).find("shape [], expected [2]"),
            std::string::npos);
  EXPECT_NE(
      Fails(R"("shape": [3, 2])", ReadGolden("matrix_f4.npy")).find("[2, 3], expected [3, 2]"),
      std::string::npos);
  EXPECT_NE(Fails(R"("shape": [2, 3])", ReadGolden("matrix_f4.npy")).find("not a whole number"),
            std::string::npos);
  EXPECT_NE(Fails(R"("dtype": "int16", "shape": [3])", ReadGolden("vector_u2.npy"))
                .find("65535 at byte 132"),
            std::string::npos);
  EXPECT_NE(
      Fails(R"("shape": [2, 3])", ReadGolden("fortran.npy"), Code::kUnimplemented).find("Fortran"),
      std::string::npos);
  EXPECT_NE(
      Fails(R"("shape": [2])", ReadGolden("big_endian.npy"), Code::kUnimplemented).find(">i4"),
      std::string::npos);
  std::string file = ReadGolden("vector_u2.npy");
  for (size_t size = 0; size < file.size(); ++size)
    Fails(R"("format": "npy", "shape": [3])", file.substr(0, size));
  EXPECT_NE(Fails(R"("shape": [3])", file + "x").find("followed by other bytes"),
            std::string::npos);
  std::string huge = file;
  huge.replace(huge.find("(3,)"), 4, "(99999999999999,)");
  Fails(R"("shape": [3])", huge);
}

TEST(LabelDescription, NamesTheWrongMember) {
  const char* wrong[][2] = {{R"({"type": "label", "dtyp": "int64"})", "\"dtyp\": is not known"},
                            {R"({"type": "label", "dtype": "int65"})", "\"int65\" is not known"},
                            {R"({"type": "label", "shape": [-1]})", "\"shape\""},
                            {R"({"type": "label", "shape": [1000000, 1000000]})", "\"shape\""},
                            {R"({"type": "label", "format": "xml"})", "\"format\""},
                            {R"({"type": "label", "path": "a"})", "\"path\""},
                            {R"({"type": "label", "format": "text", "path": "/a"})", "\"path\""},
                            {R"({"type": "sound"})", "\"type\""},
                            {R"({})", "\"type\""},
                            {R"([])", "\"type\""},
                            {R"({"type")", "not valid JSON"}};
  for (auto [json, text] : wrong) {
    auto transform = CreateTransform(json);
    ASSERT_FALSE(transform.ok()) << json;
    EXPECT_EQ(transform.status().code(), Code::kInvalidArgument) << json;
    EXPECT_NE(transform.status().message().find(text), std::string_view::npos)
        << transform.status().ToString();
  }
}

TEST(Label, ChecksTheOutputSize) {
  Scratch scratch;
  std::byte out[4];
  EXPECT_EQ(Make("")->Apply(AsBytes("1"), {}, {}, &scratch, out).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::codec
