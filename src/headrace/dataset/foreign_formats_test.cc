// Datasets written by the original tools (tests/compat/dataset/make_tfrecord.py and make_mds.py):
// every value is what the original readers give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "headrace/codec/npy.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/testing/dump.h"
#include "headrace/dataset/verify.h"

namespace headrace::dataset {
namespace {

using ::testing::HasSubstr;

const std::string kGoldenDir = HEADRACE_GOLDEN_DIR;

std::string ToHex(std::string_view bytes) {
  std::string hex;
  for (char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex.empty() ? "-" : hex;
}

std::string_view NumPyName(codec::NpyType type) {
  using codec::NpyType;
  switch (type) {
    case NpyType::kBool:
      return "|b1";
    case NpyType::kI8:
      return "|i1";
    case NpyType::kI16:
      return "<i2";
    case NpyType::kI32:
      return "<i4";
    case NpyType::kI64:
      return "<i8";
    case NpyType::kU8:
      return "|u1";
    case NpyType::kU16:
      return "<u2";
    case NpyType::kU32:
      return "<u4";
    case NpyType::kU64:
      return "<u8";
    case NpyType::kF16:
      return "<f2";
    case NpyType::kF32:
      return "<f4";
    case NpyType::kF64:
      break;
  }
  return "<f8";
}

// "TYPE SHAPE HEX" of an .npy array, as the generators write it.
std::string DescribeNpy(std::string_view npy) {
  auto array = codec::ParseNpy(AsBytes(npy));
  if (!array.ok()) return array.status().ToString();
  std::string shape;
  for (size_t i = 0; i < array->num_dims; ++i)
    shape += fmt::format("{}{}", i ? "," : "", array->dims[i]);
  return fmt::format("{} {} {}", NumPyName(array->type), shape.empty() ? "()" : shape,
                     ToHex(AsText(array->data)));
}

struct Expected {
  std::string key, field, kind, shape, hex;
};

// Lines of an expected.txt; with `dataset`, those that begin with it.
std::vector<Expected> ReadExpected(const std::string& path, const std::string& dataset) {
  auto text = PosixFileSystem()->ReadWhole(path, 1 << 24);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  std::vector<Expected> lines;
  std::istringstream stream(text.ok() ? *text : "");
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string name = dataset;
    Expected one;
    if (!dataset.empty()) words >> name;
    words >> one.key >> one.field >> one.kind >> one.shape >> one.hex;
    if (name == dataset) lines.push_back(one);
  }
  EXPECT_FALSE(lines.empty()) << dataset;
  return lines;
}

void ExpectHolds(const std::string& folder, const std::vector<Expected>& expected) {
  auto dataset = Dataset::Open(PosixFileSystem(), folder, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
  const auto samples = ReadAll(*dataset);
  EXPECT_EQ(ReadAllByField(*dataset), samples);
  size_t num_fields = 0;
  for (const auto& [key, fields] : samples) num_fields += fields.size();
  EXPECT_EQ(num_fields, expected.size());
  for (const Expected& one : expected) {
    auto sample = samples.find(one.key);
    ASSERT_NE(sample, samples.end()) << one.key;
    auto field = sample->second.find(one.field);
    ASSERT_NE(field, sample->second.end()) << one.key << " " << one.field;
    if (one.kind == "bytes") {
      EXPECT_EQ(ToHex(field->second), one.hex) << one.key << " " << one.field;
    } else {
      EXPECT_EQ(DescribeNpy(field->second), fmt::format("{} {} {}", one.kind, one.shape, one.hex))
          << one.key << " " << one.field;
    }
  }
  auto report = Verify(*dataset, {}, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->num_faults, 0u);
}

TEST(ForeignFormats, TfRecordsOfTensorFlow) {
  const std::string folder = kGoldenDir + "/tfrecord";
  ExpectHolds(folder, ReadExpected(folder + "/expected.txt", ""));
}

TEST(ForeignFormats, CompressedTfRecordsOfTensorFlowAreRefused) {
  for (const auto& [file, name] : {std::pair("gzip.packed", "gzip"), {"zlib.packed", "zlib"}}) {
    Status status = Dataset::Open(PosixFileSystem(), kGoldenDir + "/tfrecord/" + file, {}).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.ToString(), HasSubstr(name));
  }
}

TEST(ForeignFormats, MdsOfMosaicMlStreaming) {
  const std::string folder = kGoldenDir + "/mds";
  for (const char* name : {"plain", "zstd", "zstd_19", "gz", "bz2_9", "br_5", "snappy"}) {
    SCOPED_TRACE(name);
    ExpectHolds(folder + "/" + name, ReadExpected(folder + "/expected.txt", name));
  }
}

TEST(ForeignFormats, PicklesOfMosaicMlStreamingAreRefused) {
  Status status = Dataset::Open(PosixFileSystem(), kGoldenDir + "/mds/pickle", {}).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.ToString(), HasSubstr("'pkl'"));
}

}  // namespace
}  // namespace headrace::dataset
