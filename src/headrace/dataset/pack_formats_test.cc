// Packing TFRecords and MDS: each sample of the tars is what a reader of the source gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/pack.h"
#include "headrace/dataset/testing/mds_maker.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/dataset/testing/tfrecord_maker.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A line for each sample: its key, and its fields by name, as a member of a tar would call them.
std::vector<std::string> Samples(FileSystem* fs, const std::string& path) {
  auto dataset = Dataset::Open(fs, path, {});
  if (!dataset.ok()) return {dataset.status().ToString()};
  std::vector<std::string> lines;
  auto reader = SampleReader::Create(*dataset, {});
  for (uint64_t i = 0; i < (*dataset)->num_samples(); ++i) {
    auto sample = reader->Read(i, {}, Context());
    if (!sample.ok()) {
      lines.push_back(sample.status().ToString());
      continue;
    }
    std::vector<std::string> fields;
    for (const FieldView& field : sample->fields) {
      std::string name = (*dataset)->fields()[field.field];
      std::replace(name.begin(), name.end(), '/', '.');
      fields.push_back(fmt::format(" {}={}", name, AsText(field.data)));
    }
    std::sort(fields.begin(), fields.end());
    std::string line(sample->key);
    for (const std::string& field : fields) line += field;
    lines.push_back(std::move(line));
  }
  return lines;
}

Result<PackReport> PackTo(FileSystem* fs, const std::string& source, const std::string& destination,
                          const PackOptions& options = {}) {
  return Pack(fs, {source}, destination, options, Context());
}

void ExpectPackedAsRead(const std::string& source) {
  TemporaryDirectory dir;
  auto expected = Samples(PosixFileSystem(), source);
  ASSERT_FALSE(expected.empty());
  PackOptions options;
  options.threads = 2;
  options.sync = false;
  auto report = PackTo(PosixFileSystem(), source, dir / "packed", options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->samples, expected.size());
  auto dataset = Dataset::Open(PosixFileSystem(), dir / "packed", {});
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)->kind(), "tar");
  EXPECT_TRUE(Samples(PosixFileSystem(), dir / "packed") == expected);
  // The tars alone tell the same to who knows no index.
  ASSERT_TRUE(PosixFileSystem()->Remove(dir / "packed/headrace.json").ok());
  auto entries = PosixFileSystem()->List(dir / "packed");
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.ends_with(".tar"))
      (void)PosixFileSystem()->RemoveTree(dir / ("packed/" + entry.name));
  }
  EXPECT_TRUE(Samples(PosixFileSystem(), dir / "packed") == expected);
}

TEST(PackFormats, MdsOfTheOriginalWriter) {
  for (const char* kind : {"plain", "zstd", "gz"}) {
    SCOPED_TRACE(kind);
    ExpectPackedAsRead(std::string(HEADRACE_GOLDEN_DIR) + "/mds/" + kind);
  }
}

TEST(PackFormats, TfRecordsOfTheOriginalWriter) {
  TemporaryDirectory dir;  // beside them lie files that are none
  const std::string golden = std::string(HEADRACE_GOLDEN_DIR) + "/tfrecord/";
  for (const char* name : {"small.tfrecord-00000-of-00002", "small.tfrecord-00001-of-00002"})
    Put(PosixFileSystem(), dir / "source" + std::string("/") + name,
        *PosixFileSystem()->ReadWhole(golden + name, 1 << 24));
  ExpectPackedAsRead(dir / "source");
  ExpectPackedAsRead(dir / "source/small.tfrecord-00001-of-00002");
}

// A field that is larger than the writer's buffer, and numbers that have to be unpacked.
TEST(PackFormats, LargeArrays) {
  MemoryFileSystem fs;
  std::vector<int64_t> numbers(400'000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * i) - 77;
  Put(&fs, "/t/a.tfrecord",
      MakeTfRecord({MakeExample({{"many", Int64Feature(numbers)}, {"a/b", BytesFeature({"x"})}})}));
  auto expected = Samples(&fs, "/t");
  ASSERT_EQ(expected.size(), 1u);
  EXPECT_THAT(expected[0], HasSubstr(" a.b=x"));
  ASSERT_TRUE(PackTo(&fs, "/t", "/out").ok());
  EXPECT_TRUE(Samples(&fs, "/out") == expected);
}

TEST(PackFormats, AnIndexedSourceIsTheSame) {
  MemoryFileSystem fs;
  Put(&fs, "/t/a.tfrecord",
      MakeTfRecord({MakeExample({{"label", Int64Feature({1})}, {"x", BytesFeature({"one"})}}),
                    MakeExample({{"label", Int64Feature({2})}, {"x", BytesFeature({"two"})}})}));
  auto expected = Samples(&fs, "/t");
  std::vector<std::string> paths = {"/t"};
  ASSERT_TRUE(IndexDataset(&fs, paths, {}, Context()).ok());
  ASSERT_TRUE(PackTo(&fs, "/t", "/out").ok());
  EXPECT_EQ(Samples(&fs, "/out"), expected);
}

TEST(PackFormats, ADamagedRecordIsRefusedOrLeftOut) {
  MemoryFileSystem fs;
  std::string records;
  for (const char* text : {"first", "second", "third"})
    records += MakeTfRecord({MakeExample({{"x", BytesFeature({text})}})});
  records[records.find("second")] ^= 1;
  Put(&fs, "/t/a.tfrecord", records);
  auto refused = PackTo(&fs, "/t", "/out");
  EXPECT_EQ(refused.status().code(), Code::kDataLoss);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("/t/a.tfrecord"));
  PackOptions options;
  options.skip_unreadable = true;
  auto report = PackTo(&fs, "/t", "/out", options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->samples, 2u);
  ASSERT_EQ(report->left_out.size(), 1u);
  EXPECT_THAT(report->left_out[0], HasSubstr("damaged"));
  EXPECT_THAT(Samples(&fs, "/out"), ElementsAre(HasSubstr("x=first"), HasSubstr("x=third")));
}

TEST(PackFormats, MdsThatDoesNotMatchItsHashesIsRefused) {
  MemoryFileSystem fs;
  const std::vector<MdsTestColumn> columns = {{"label", "uint8", 1}, {"text", "str"}};
  const std::string shard = MakeMdsShard(columns, {{"\1", "one"}, {"\2", "two"}});
  Json hashes = Json::MakeObject();
  hashes.Set("sha1", std::string(40, '0'));
  Put(&fs, "/m/shard.00000.mds", shard);
  Put(&fs, "/m/index.json",
      MakeMdsIndex(columns, {{.samples = 2, .bytes = shard.size(), .hashes = hashes}}));
  auto refused = PackTo(&fs, "/m", "/out");
  EXPECT_EQ(refused.status().code(), Code::kDataLoss);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("sha1"));
  EXPECT_THAT(refused.status().ToString(), HasSubstr("/m/shard.00000.mds"));
}

}  // namespace
}  // namespace headrace::dataset
