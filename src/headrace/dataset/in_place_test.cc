// Folders and lists read in place, and what index building refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/dataset/csv.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

#include <filesystem>

namespace headrace::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "key: field=value field=value" for every sample.
std::vector<std::string> Dump(FileSystem* fs, const std::string& path) {
  auto dataset = Dataset::Open(fs, path, OpenOptions());
  if (!dataset.ok()) return {dataset.status().ToString()};
  auto reader = SampleReader::Create(*dataset, ReadOptions());
  std::vector<std::string> lines;
  for (uint64_t i = 0; i < (*dataset)->num_samples(); ++i) {
    auto view = reader->Read(i, {}, Context());
    if (!view.ok()) {
      lines.push_back(view.status().ToString());
      continue;
    }
    std::string line = EscapeText(view->key) + ":";
    for (const FieldView& f : view->fields)
      line += fmt::format(" {}={}", (*dataset)->fields()[f.field], AsText(f.data));
    lines.push_back(line);
  }
  return lines;
}

TEST(FolderSource, APlaceThatCannotBeWrittenAsksForAnotherOne) {
  MemoryFileSystem memory;
  Put(&memory, "/f/a/1.jpg", "x");
  FaultyFileSystem fs(&memory);
  for (const char* output : {"", "/out"}) {
    fs.FailNth(FileOperation::kWriteAtomically, 1, Error(Code::kPermissionDenied, "not yours"));
    IndexOptions options;
    options.output = output;
    auto refused = IndexDataset(&fs, std::vector<std::string>{"/f"}, options, Context());
    EXPECT_EQ(refused.status().code(), Code::kPermissionDenied);
    const bool asks = refused.status().message().find("--output") != std::string::npos;
    EXPECT_EQ(asks, options.output.empty()) << refused.status().message();
  }
}

TEST(FolderSource, ClassesAreFoldersInByteOrder) {
  MemoryFileSystem fs;
  Put(&fs, "/f/dog/2.jpg", "d2");
  Put(&fs, "/f/dog/1.jpg", "d1");
  Put(&fs, "/f/Cat/x.y/1.seg.png", "c1s");
  Put(&fs, "/f/Cat/x.y/1.jpg", "c1");
  Put(&fs, "/f/Cat/x.y/1-b.jpg", "c1b");
  Put(&fs, "/f/Cat/own.cls", "77");
  Put(&fs, "/f/Cat/README", "skipped");
  Put(&fs, "/f/Cat/.hidden.jpg", "skipped");
  Put(&fs, "/f/.git/a.jpg", "skipped");
  Put(&fs, "/f/list.txt", "skipped");
  auto expected = ElementsAre("Cat/own: cls=77", "Cat/x.y/1-b: jpg=c1b cls=0",
                              "Cat/x.y/1: jpg=c1 seg.png=c1s cls=0", "dog/1: jpg=d1 cls=1",
                              "dog/2: jpg=d2 cls=1");
  EXPECT_THAT(Dump(&fs, "/f"), expected);
  auto in_place = Dataset::Open(&fs, "/f", OpenOptions()).value();
  EXPECT_EQ(in_place->kind(), "folder");
  EXPECT_THAT(in_place->manifest().classes, ElementsAre("Cat", "dog"));

  auto report = IndexDataset(&fs, std::vector<std::string>{"/f"}, {}, Context()).value();
  EXPECT_EQ(report.manifest_path, "/f/.headrace/headrace.json");
  EXPECT_EQ(report.shards[0].num_skipped, 2u);
  EXPECT_THAT(Dump(&fs, "/f"), expected);
  EXPECT_EQ(Dataset::Open(&fs, "/f", OpenOptions()).value()->version(), in_place->version());

  IndexOptions elsewhere;
  elsewhere.output = "/o";
  elsewhere.build.checksums = true;
  ASSERT_TRUE(IndexDataset(&fs, std::vector<std::string>{"/f"}, elsewhere, Context()).ok());
  EXPECT_THAT(Dump(&fs, "/o"), expected);
}

TEST(FolderSource, WithoutFoldersThereIsNoLabel) {
  MemoryFileSystem fs;
  Put(&fs, "/f/b.jpg", "2");
  Put(&fs, "/f/a.jpg", "1");
  EXPECT_THAT(Dump(&fs, "/f"), ElementsAre("a: jpg=1", "b: jpg=2"));
  Put(&fs, "/g/README", "x");
  EXPECT_THAT(Dump(&fs, "/g")[0], HasSubstr("no samples in the folder /g"));
}

TEST(FolderSource, TarsInFoldersAreNotTakenForSamples) {
  MemoryFileSystem fs;
  Put(&fs, "/f/train/0.tar", MakeTar(MakeSamples("k", 2)));
  Put(&fs, "/f/test/0.tar", MakeTar(MakeSamples("k", 2)));
  EXPECT_THAT(Dump(&fs, "/f")[0], HasSubstr("open one of these folders"));
  EXPECT_EQ(Dump(&fs, "/f/train/").size(), 2u);
}

TEST(FolderSource, ChangedFilesAreFound) {
  MemoryFileSystem fs;
  for (const char* name : {"1", "2", "3", "4"}) Put(&fs, fmt::format("/f/c/{}.bin", name), "12345");
  auto dataset = Dataset::Open(&fs, "/f", OpenOptions()).value();
  Put(&fs, "/f/c/1.bin", "1234");
  Put(&fs, "/f/c/2.bin", "123456");
  ASSERT_TRUE(fs.Remove("/f/c/3.bin").ok());
  auto reader = SampleReader::Create(dataset, ReadOptions());
  Status shorter = reader->Read(0, {}, Context()).status();
  EXPECT_EQ(shorter.code(), Code::kDataLoss);
  EXPECT_THAT(shorter.ToString(), HasSubstr("has 4 bytes, its index says 5"));
  EXPECT_EQ(shorter.location().file, "/f/c/1.bin");
  EXPECT_EQ(shorter.location().key, "c/1");
  EXPECT_THAT(reader->Read(1, {}, Context()).status().ToString(), HasSubstr("more than 5 bytes"));
  EXPECT_EQ(reader->Read(2, {}, Context()).status().code(), Code::kNotFound);
  ASSERT_TRUE(reader->Read(3, {}, Context()).ok());
  Put(&fs, "/f/c/4.bin", "54321");
  Status changed = reader->Read(3, {}, Context()).status();
  EXPECT_THAT(changed.ToString(), HasSubstr("wrong checksum"));
  EXPECT_EQ(changed.location().file, "/f/c/4.bin");
}

TEST(FolderSource, LinksAreFollowedAndLoopsAreNot) {
  TemporaryDirectory root;
  FileSystem* fs = PosixFileSystem();
  Put(fs, root / "f/cat/1.jpg", "c1");
  Put(fs, root / "elsewhere/2.jpg", "e2");
  namespace stdfs = std::filesystem;
  stdfs::create_symlink(root / "elsewhere/2.jpg", root / "f/cat/3.jpg");
  stdfs::create_symlink(root / "elsewhere", root / "f/dog");
  stdfs::create_symlink(root / "f", root / "f/cat/up");
  stdfs::create_symlink(".", root / "f/dog/self");
  EXPECT_THAT(Dump(fs, root / "f"),
              ElementsAre("cat/1: jpg=c1 cls=0", "cat/3: jpg=e2 cls=0", "dog/2: jpg=e2 cls=1"));
}

TEST(ListSource, CsvAndJsonLinesGiveTheSame) {
  MemoryFileSystem fs;
  Put(&fs, "/l/img/a.jpg", "A");
  Put(&fs, "/l/img/b.x.png", "B");
  Put(&fs, "/l/t.csv",
      "\xef\xbb\xbfpath,label,caption\r\nimg/a.jpg,3,\"hello, \"\"you\"\"\"\r\n"
      "/l/img/b.x.png,4,\r\n\r\n");
  Put(&fs, "/l/t.jsonl",
      "{\"path\": \"img/a.jpg\", \"label\": 3, \"caption\": \"hello, \\\"you\\\"\"}\n\n"
      "{\"path\": \"./img/b.x.png\", \"label\": 4, \"caption\": \"\", \"none\": null}\n");
  auto expected =
      ElementsAre("img/a: file=A label=3 caption=hello, \"you\"", "img/b: file=B label=4 caption=");
  EXPECT_THAT(Dump(&fs, "/l/t.csv"), expected);
  EXPECT_THAT(Dump(&fs, "/l/t.jsonl"), expected);
  EXPECT_EQ(Dataset::Open(&fs, "/l/t.csv", OpenOptions()).value()->kind(), "list");
}

TEST(ListSource, ColumnsOfFilesAndKeys) {
  MemoryFileSystem fs;
  Put(&fs, "/l/a.jpg", "A");
  Put(&fs, "/l/m.png", "M");
  Put(&fs, "/l/t.csv", "key,image_path,mask_file\none,a.jpg,m.png\ntwo,a.jpg,\n");
  EXPECT_THAT(Dump(&fs, "/l/t.csv"), ElementsAre("one: image=A mask=M", "two: image=A"));
  Put(&fs, "/l/n.csv", "text\nfirst\n\"second\nline\"\n");
  EXPECT_THAT(Dump(&fs, "/l/n.csv"),
              ElementsAre("00000000: text=first", "00000001: text=second\nline"));
}

TEST(ListSource, StoredIndexKnowsWhenTheListChanged) {
  MemoryFileSystem fs;
  Put(&fs, "/l/a.jpg", "A");
  Put(&fs, "/l/t.csv", "path\na.jpg\n");
  auto report = IndexDataset(&fs, std::vector<std::string>{"/l/t.csv"}, {}, Context()).value();
  EXPECT_EQ(report.manifest_path, "/l/.headrace/t.csv/headrace.json");
  EXPECT_THAT(Dump(&fs, "/l/t.csv"), ElementsAre("a: file=A"));
  Put(&fs, "/l/t.csv", "path\na.jpg\na.jpg\n");
  EXPECT_THAT(Dump(&fs, "/l/t.csv")[0], HasSubstr("changed after it was indexed"));
}

TEST(ListSource, BadRowsNameTheirLine) {
  MemoryFileSystem fs;
  Put(&fs, "/l/a.jpg", "A");
  Put(&fs, "/secret.jpg", "S");
  std::pair<const char*, const char*> lists[] = {
      {"path\na.jpg\n../secret.jpg\n", "line 3"},
      {"path\n/secret.jpg\n", "is absolute"},
      {"path\na/../a.jpg\n", "the part '..'"},
      {"path\nnobody.jpg\n", "line 2"},
      {"path,n\na.jpg\n", "the row has 1 cells"},
      {"path,path\na.jpg,a.jpg\n", "twice"},
      {"path\n\"a.jpg\n", "never closed"},
      {"path\n\"a.jpg\"x\n", "after a closing quote"},
      {"path\n", "has no rows"},
      {"", "has no rows"},
      {"file,path\na.jpg,a.jpg\n", "the field 'file' twice"},
  };
  for (const auto& [text, word] : lists) {
    Put(&fs, "/l/t.csv", text);
    auto lines = Dump(&fs, "/l/t.csv");
    ASSERT_EQ(lines.size(), 1u) << text;
    EXPECT_THAT(lines[0], HasSubstr(word)) << text;
    EXPECT_THAT(lines[0], HasSubstr("/l/t.csv")) << text;
  }
  Put(&fs, "/l/t.jsonl", "{\"path\": \"a.jpg\"}\n[1]\n");
  EXPECT_THAT(Dump(&fs, "/l/t.jsonl")[0], HasSubstr("line 2"));
  Put(&fs, "/l/t.jsonl", "{\"path\": \"a.jpg\"}\n{\"path\": \"none.jpg\"}\n");
  std::string missing = Dump(&fs, "/l/t.jsonl")[0];
  EXPECT_THAT(missing, HasSubstr("line 2"));
  EXPECT_EQ(missing.find("line 2"), missing.rfind("line 2")) << missing;
}

Result<BuiltIndex> Build(const std::string& tar, BuildOptions options = {}) {
  MemoryFileSystem fs;
  Put(&fs, "/t/a.tar", tar);
  return BuildTarIndex(*fs.OpenForRead("/t/a.tar").value(), options, Context());
}

TEST(TarIndex, AFieldTwiceNamesBothOffsets) {
  Status status = Build(MakeTar({{"a.jpg", "1"}, {"a.cls", "2"}, {"a.jpg", "3"}})).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("offsets 0 and 2048"));
}

TEST(TarIndex, AKeyThatComesAgainIsAPolicy) {
  std::string tar = MakeTar({{"a.jpg", "1"}, {"b.jpg", "2"}, {"a.cls", "3"}});
  Status status = Build(tar).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("at offset 0 and again"));
  EXPECT_THAT(status.ToString(), HasSubstr("offset 2048"));
  BuildOptions separate;
  separate.repeated_keys = RepeatedKeys::kSeparate;
  EXPECT_EQ(Build(tar, separate).value().num_samples, 3u);
}

TEST(TarIndex, MembersThatAreNoSamplesAreCounted) {
  auto built = Build(MakeTar({{"README", "r"}, {"a.jpg", "1"}, {".x.jpg", "h"}})).value();
  EXPECT_EQ(built.num_samples, 1u);
  EXPECT_EQ(built.num_skipped, 2u);
  EXPECT_EQ(built.first_skipped, "README");
}

TEST(TarIndex, SparseMembersAreRefused) {
  for (const char* name : {"sparse-gnu.tar", "sparse-posix0.1.tar", "sparse-posix1.0.tar"}) {
    auto file = PosixFileSystem()->OpenForRead(std::string(HEADRACE_GOLDEN_DIR "/") + name).value();
    Status status = BuildTarIndex(*file, {}, Context()).status();
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_THAT(status.ToString(), HasSubstr("--sparse"));
  }
}

TEST(TarIndex, ChecksumsAreThoseOfTheData) {
  BuildOptions options;
  options.checksums = true;
  Members members = MakeSamples("k", 50, 3000);
  std::string tar = MakeTar(members);
  auto built = Build(tar, options).value();
  EXPECT_EQ(built.shard_crc32c, Crc32c(AsBytes(tar)));
  auto reader = IndexReader::FromBytes(built.bytes, "x").value();
  IndexSample sample;
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(reader->Get(i, &sample).ok());
    for (size_t k = 0; k < 2; ++k)
      EXPECT_EQ(sample.fields[k].crc32c, Crc32c(AsBytes(members[2 * i + k].second)));
  }
}

}  // namespace
}  // namespace headrace::dataset
