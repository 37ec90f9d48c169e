#include "headrace/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/box.h"
#include "headrace/env/file.h"

namespace headrace::checkpoint {
namespace {

using testing::HasSubstr;

// A file with that JSON and so many bytes of data.
std::string FileOf(std::string_view json, size_t data_bytes = 0) {
  std::string file(8, '\0');
  StoreLittle<uint64_t>(file.data(), json.size());
  return file + std::string(json) + std::string(data_bytes, 'd');
}

Result<SafetensorsHeader> Parse(std::string_view file) {
  return ParseSafetensors(AsBytes(file), file.size(), "x.safetensors");
}

TEST(DType, SizesAndNames) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kDTypes[i].dtype), i + 1);
    EXPECT_EQ(DTypeNamed(DTypeName(kDTypes[i].dtype)), kDTypes[i].dtype);
  }
  EXPECT_EQ(DTypeNamed("f32"), std::nullopt);
  EXPECT_FALSE(IsDType(0));
  EXPECT_FALSE(IsDType(kDTypes.size() + 1));
  EXPECT_EQ(BytesOf(DType::kC64, 3), 24u);
  EXPECT_EQ(BytesOf(DType::kF4, 6), 3u);
  EXPECT_EQ(BytesOf(DType::kF4, 7), std::nullopt);
  EXPECT_EQ(BytesOf(DType::kF6E2M3, 4), 3u);
  EXPECT_EQ(BytesOf(DType::kF6E2M3, 12), 9u);
  EXPECT_EQ(BytesOf(DType::kF6E2M3, 2), std::nullopt);
  EXPECT_EQ(BytesOf(DType::kU8, uint64_t{1} << 62), uint64_t{1} << 62);
  EXPECT_EQ(BytesOf(DType::kF64, uint64_t{1} << 59), uint64_t{1} << 62);
  EXPECT_EQ(BytesOf(DType::kF64, uint64_t{1} << 60), std::nullopt);
  EXPECT_EQ(BytesOf(DType::kF64, UINT64_MAX), std::nullopt);
  EXPECT_EQ(BytesOf(DType::kF4, UINT64_MAX - 1), std::nullopt);
}

TEST(Safetensors, ReadsWhatTheReferenceWrites) {
  for (std::string_view name : {"types", "empty", "metadata", "names"}) {
    const std::string path = fmt::format("{}/{}.safetensors", HEADRACE_GOLDEN_DIR, name);
    auto file = PosixFileSystem()->ReadWhole(path, 1 << 20);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    auto header = Parse(*file);
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    // Beside it lies what Python found in it.
    auto text = PosixFileSystem()->ReadWhole(path + ".json", 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    const Json expected = *Json::Parse(*text);
    std::vector<std::string> found, wanted;
    for (const SafetensorsEntry& entry : header->entries)
      found.push_back(fmt::format("{} {} {} {}", entry.name, DTypeName(entry.dtype),
                                  ShapeText(entry.shape),
                                  HexText(AsBytes(*file).subspan(entry.offset, entry.bytes))));
    for (const Json& line : expected.Find("entries")->items()) wanted.emplace_back(line.AsString());
    EXPECT_THAT(found, testing::UnorderedElementsAreArray(wanted)) << name;
    std::sort(header->metadata.begin(), header->metadata.end());
    found.clear();
    wanted.clear();
    for (const auto& [key, value] : header->metadata)
      found.push_back(fmt::format("{}={}", key, value));
    for (const Json& line : expected.Find("metadata")->items())
      wanted.emplace_back(line.AsString());
    EXPECT_EQ(found, wanted) << name;
  }
}

TEST(Safetensors, WhatIsWrittenIsAlignedAndCanBeRead) {
  const std::vector<uint64_t> matrix = {3, 5}, scalar, nothing = {4, 0};
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"},
                                                                     {"é\"", "\n"}};
  const std::vector<SafetensorsSpec> specs = {{"w", DType::kBF16, matrix},
                                              {"s", DType::kF64, scalar},
                                              {"\"\\\n\u00e9\U0001F600", DType::kU8, nothing}};
  auto written = WriteSafetensorsHeader(specs, metadata);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_EQ(written->bytes.size(), 4096u);
  EXPECT_THAT(written->offsets, testing::ElementsAre(4096, 4126, 4134));
  EXPECT_EQ(written->file_bytes, 4134u);
  auto header = Parse(written->bytes + std::string(38, 'd'));
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->metadata, metadata);
  ASSERT_EQ(header->entries.size(), 3u);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(header->entries[i].name, specs[i].name);
    EXPECT_EQ(header->entries[i].dtype, specs[i].dtype);
    EXPECT_EQ(header->entries[i].offset, written->offsets[i]);
  }
  EXPECT_EQ(WriteSafetensorsHeader({})->file_bytes, 4096u);
}

TEST(Safetensors, WritesTheSameBytesAsEver) {
  // The reference package reads this file: see make_safetensors.py.
  auto golden = PosixFileSystem()->ReadWhole(HEADRACE_GOLDEN_DIR "/ours.safetensors", 1 << 20);
  ASSERT_TRUE(golden.ok()) << golden.status().ToString();
  const std::vector<uint64_t> matrix = {3, 5}, part = {2, 2}, scalar, nothing = {4, 0};
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
  const std::vector<SafetensorsSpec> specs = {{"w", DType::kBF16, matrix},
                                              {"w@0,16", DType::kF32, part},
                                              {"s", DType::kF64, scalar},
                                              {"höhe \"😀\"\n", DType::kU8, nothing}};
  auto written = WriteSafetensorsHeader(specs, metadata);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_EQ(written->bytes, golden->substr(0, 4096));
  EXPECT_EQ(written->file_bytes, golden->size());
}

TEST(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const std::vector<uint64_t> one = {1}, huge = {uint64_t{1} << 62}, deep(65, 1);
  auto code = [](const std::vector<SafetensorsSpec>& specs) {
    return WriteSafetensorsHeader(specs).status().code();
  };
  EXPECT_EQ(code({{"\xff", DType::kU8, one}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"__metadata__", DType::kU8, one}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", DType::kU8, one}, {"b", DType::kU8, one}, {"a", DType::kU8, one}}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", DType::kF4, one}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", DType::kU8, deep}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", DType::kF32, huge}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", DType::kU8, huge}, {"b", DType::kU8, one}}), Code::kInvalidArgument);
  std::string long_name;
  long_name.resize(100'000'000, 'a');
  EXPECT_EQ(code({{long_name, DType::kU8, one}}), Code::kResourceExhausted);
  const std::vector<std::pair<std::string, std::string>> bad = {{"a", "\xff"}};
  EXPECT_EQ(WriteSafetensorsHeader({}, bad).status().code(), Code::kInvalidArgument);
}

TEST(Safetensors, DamageIsNamed) {
  struct Case {
    std::string file, why;
  };
  const std::string ok = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::vector<Case> cases = {
      {"", "too few"},
      {"1234567", "too few"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), "at most"},
      {FileOf("{").substr(0, 8), "the file has 8"},
      {FileOf(""), "does not begin with '{'"},
      {FileOf(" {}"), "does not begin with '{'"},
      {FileOf("[]"), "does not begin with '{'"},
      {FileOf("{} x"), "more behind"},
      {FileOf("{\"\xff\":1}"), "not UTF-8"},
      {FileOf("{" + ok + "}", 3), "has 64 bytes, its header speaks of 65"},
      {FileOf("{" + ok + "}", 5), "bytes"},
      {FileOf("{" + ok + "," + ok + "}", 4), "'a' is there twice"},
      {FileOf("{" + ok + ",}", 4), "expected '\"'"},
      {FileOf("{" + ok, 4), "expected '}'"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,5]}})", 5), "take 4 bytes"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4), "take 4 bytes"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5), "begins at 1"},
      {FileOf("{" + ok + R"(,"b":{"dtype":"U8","shape":[3],"data_offsets":[3,6]}})", 6),
       "'b' begins at 3"},
      {FileOf("{" + ok + R"(,"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})", 8),
       "'b' begins at 5"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[4]}})", 4), "lacks"},
      {FileOf(R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4), "twice"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4), "whole number"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", 4), "whole number"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[04],"data_offsets":[0,4]}})", 4), "whole number"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]}})", 4),
       "more than 64 bits"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
       "too many"},
      {FileOf(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), "whole number"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}})", 4), "expected ']'"},
      {FileOf(R"({"__metadata__":{"a":1}})"), "expected '\"'"},
      {FileOf(R"({"__metadata__":{"a":"","a":""}})"), "'a' is there twice"},
      {FileOf(R"({"__metadata__":{},"__metadata__":{}})"), "twice"},
      {FileOf(R"({"a\ud800":1})"), "surrogate"},
      {FileOf(R"({"a\x":1})"), "wrong escape"},
      {FileOf("{\"a\n\":1}"), "control character"},
      {FileOf("{\"a\":{\"x\":" + std::string(1000, '[') + "}}"), "nested too deeply"},
  };
  for (const Case& c : cases) {
    const Status status = Parse(c.file).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << EscapeText(c.file.substr(0, 100));
    EXPECT_THAT(status.message(), HasSubstr(c.why)) << EscapeText(c.file.substr(0, 100));
    EXPECT_THAT(status.message(), HasSubstr("x.safetensors"));
  }
}

TEST(Safetensors, UnknownTypesAndMembers) {
  auto header = Parse(FileOf(
      R"({"a":{"x":[{"y":null}, -1.5e3, true],"dtype":"U8","shape":[4],"data_offsets":[0,4]}}   )",
      4));
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->entries[0].bytes, 4u);
  EXPECT_EQ(Parse(FileOf(R"({"a":{"dtype":"F128","shape":[],"data_offsets":[0,16]}})", 16))
                .status()
                .code(),
            Code::kUnimplemented);
}

TEST(Safetensors, TheHeaderMustBeThereWhole) {
  const std::string file = FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(SafetensorsHeaderBytes(AsBytes(file).first(8), file.size(), "x").value(),
            file.size() - 4);
  EXPECT_TRUE(ParseSafetensors(AsBytes(file).first(file.size() - 4), file.size(), "x").ok());
  EXPECT_EQ(ParseSafetensors(AsBytes(file).first(20), file.size(), "x").status().code(),
            Code::kInvalidArgument);
}

RC_GTEST_PROP(SafetensorsProperty, WrittenHeadersReadTheSame, ()) {
  std::vector<SafetensorsEntry> wanted;
  std::vector<std::pair<std::string, std::string>> metadata;
  const size_t count = *rc::gen::inRange<size_t>(0, 20);
  for (size_t i = 0; i < count; ++i) {
    SafetensorsEntry entry;
    entry.name = EscapeText(*rc::gen::arbitrary<std::string>()) + std::to_string(i);
    entry.dtype = static_cast<DType>(*rc::gen::inRange(1, 23));
    entry.shape = *rc::gen::container<std::vector<uint64_t>>(*rc::gen::inRange<size_t>(0, 4),
                                                             rc::gen::inRange<uint64_t>(0, 5));
    entry.shape.push_back(8);  // whole bytes for all types
    wanted.push_back(entry);
    if (i % 3 == 0)
      metadata.emplace_back(entry.name, EscapeText(*rc::gen::arbitrary<std::string>()));
  }
  std::vector<SafetensorsSpec> specs;
  for (const SafetensorsEntry& entry : wanted)
    specs.push_back({entry.name, entry.dtype, entry.shape});
  auto written = WriteSafetensorsHeader(specs, metadata);
  RC_ASSERT(written.ok());
  RC_ASSERT(written->bytes.size() % 4096 == 0u);
  auto header = ParseSafetensors(AsBytes(written->bytes), written->file_bytes, "x");
  RC_ASSERT(header.ok());
  RC_ASSERT(header->metadata == metadata);
  RC_ASSERT(header->entries.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    // Those without elements may lie before or behind one at the same place.
    const auto found =
        std::find_if(header->entries.begin(), header->entries.end(),
                     [&](const SafetensorsEntry& e) { return e.name == wanted[i].name; });
    RC_ASSERT(found != header->entries.end());
    RC_ASSERT(found->dtype == wanted[i].dtype);
    RC_ASSERT(found->shape == wanted[i].shape);
    RC_ASSERT(found->offset == written->offsets[i]);
  }
}

}  // namespace
}  // namespace headrace::checkpoint
