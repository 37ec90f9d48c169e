#include "headrace/env/testing/file_system_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace headrace {

namespace {

using ::testing::HasSubstr;

// What the tests below use: a file system, its empty root, and the shortest way to a file.
class Bench {
 public:
  explicit Bench(FileSystemUnderTest under_test) : t_(std::move(under_test)) {}
  FileSystem* operator->() const { return t_.files; }
  std::string operator/(const std::string& name) const { return JoinPath(t_.root, name); }
  const std::string& root() const { return t_.root; }

  void Write(const std::string& name, std::string_view content) const {
    auto file = t_.files->Create(*this / name);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    ASSERT_TRUE((*file)->Append(AsBytes(content)).ok());
    ASSERT_TRUE((*file)->Close().ok());
  }
  // The content, or "error: not found" and the like.
  std::string Read(const std::string& name) const {
    auto content = t_.files->ReadWhole(*this / name, 1 << 20);
    return content.ok() ? *content : "error: " + std::string(CodeName(content.status().code()));
  }
  std::vector<std::string> Names(const std::string& name) const {
    auto entries = t_.files->List(*this / name);
    std::vector<std::string> names;
    if (!entries.ok()) return {entries.status().ToString()};
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }

 private:
  FileSystemUnderTest t_;
};

MutableBytes Writable(std::string* text) { return std::as_writable_bytes(std::span(*text)); }

#define EXPECT_CODE(expression, expected)                                        \
  [](const Status& got) {                                                        \
    EXPECT_EQ(CodeName(got.code()), CodeName(Code::expected)) << got.ToString(); \
  }(expression)

void ReadsBackWhatWasWritten(const Bench& b) {
  auto file = b->Create(b / "f");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append(AsBytes("hello ")).ok());
  EXPECT_TRUE((*file)->Append({}).ok());
  EXPECT_TRUE((*file)->Append(AsBytes("world")).ok());
  EXPECT_EQ((*file)->size(), 11u);
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_CODE((*file)->Append(AsBytes("x")), kFailedPrecondition);
  EXPECT_EQ(b.Read("f"), "hello world");
}

void CreateTruncates(const Bench& b) {
  b.Write("f", "a long text");
  b.Write("f", "x");
  EXPECT_EQ(b.Read("f"), "x");
}

// Parts of sizes that fit no block, so that they lie across the borders of any buffer.
void WritesDirectly(const Bench& b) {
  std::string expected;
  auto file = b->CreateDirect(b / "f");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  for (size_t bytes : {size_t{1}, size_t{0}, size_t{999'999}, size_t{9'000'001}, size_t{77}}) {
    std::string part(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) part[i] = static_cast<char>((expected.size() + i) * 31 >> 8);
    EXPECT_TRUE((*file)->Append(AsBytes(part)).ok());
    expected += part;
    EXPECT_EQ((*file)->size(), expected.size());
  }
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE(*b->ReadWhole(b / "f", 20'000'000) == expected);
  EXPECT_TRUE((*file)->Append(AsBytes("more")).ok());
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE((*file)->Append(AsBytes(" and more")).ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_CODE((*file)->Append(AsBytes("x")), kFailedPrecondition);
  EXPECT_CODE((*file)->Sync(), kFailedPrecondition);
  EXPECT_TRUE(*b->ReadWhole(b / "f", 20'000'000) == expected + "more and more");
}

void WritesWholeBlocksDirectly(const Bench& b) {
  std::string content(8 << 20, 'b');
  auto file = b->CreateDirect(b / "f");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append(AsBytes(content)).ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_TRUE(*b->ReadWhole(b / "f", 20'000'000) == content);
}

void CreateDirectIsCreate(const Bench& b) {
  b.Write("f", "a long text");
  auto file = b->CreateDirect(b / "f");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(b.Read("f"), "");
  EXPECT_TRUE((*file)->Append(AsBytes("x")).ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_EQ(b.Read("f"), "x");
  EXPECT_TRUE(b->CreateDirect(b / "dropped").ok());
  EXPECT_EQ(b.Read("dropped"), "");
  EXPECT_CODE(b->CreateDirect(b / "none/f").status(), kNotFound);
  EXPECT_CODE(b->CreateDirect(b / "f/g").status(), kNotFound);
  EXPECT_CODE(b->CreateDirect(b.root()).status(), kInvalidArgument);
  EXPECT_CODE(b->CreateDirect(b / std::string("a\0b", 3)).status(), kInvalidArgument);
}

void WritesPartsDirectly(const Bench& b) {
  std::string all(300'000, '\0');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 >> 8);
  auto* aligned = static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, 200 * 4096));
  std::memcpy(aligned, all.data(), all.size());
  Bytes whole(aligned, all.size());
  auto expect = [&](std::initializer_list<Bytes> parts) {
    std::string expected;
    for (Bytes part : parts) expected += AsText(part);
    Status status = b->WriteDirect(b / "f", std::vector<Bytes>(parts));
    EXPECT_TRUE(status.ok() && *b->ReadWhole(b / "f", 2'000'000) == expected) << expected.size();
  };
  expect({});
  expect({whole.first(4096), whole});
  expect({AsBytes(all).subspan(1, 8192), whole.subspan(4096, 100'000)});  // the first is copied
  expect({whole.first(70'001), whole.subspan(4096), whole.first(1), whole.first(8192)});
  expect({Bytes(), AsBytes(all).subspan(3), Bytes()});
  std::free(aligned);
  EXPECT_CODE(b->WriteDirect(b / "none/f", {}), kNotFound);
}

void CreateFails(const Bench& b) {
  b.Write("f", "");
  EXPECT_CODE(b->Create(b / "none/f").status(), kNotFound);
  EXPECT_CODE(b->Create(b / "f/g").status(), kNotFound);
  EXPECT_CODE(b->Create(b.root()).status(), kInvalidArgument);
  EXPECT_CODE(b->Create(b / std::string(300, 'n')).status(), kInvalidArgument);
  EXPECT_CODE(b->Create(b / std::string("a\0b", 3)).status(), kInvalidArgument);
  EXPECT_CODE(b->Create("").status(), kNotFound);
}

void AppendsToTheEnd(const Bench& b) {
  auto one = b->OpenForAppend(b / "log");
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  auto two = b->OpenForAppend(b / "log");
  ASSERT_TRUE(two.ok());
  EXPECT_TRUE((*one)->Append(AsBytes("1\n")).ok());
  EXPECT_TRUE((*two)->Append(AsBytes("two\n")).ok());
  EXPECT_TRUE((*one)->Append(AsBytes("3\n")).ok());
  EXPECT_EQ((*one)->size(), 4u);
  EXPECT_EQ((*two)->size(), 4u);
  EXPECT_TRUE((*one)->Sync().ok());
  EXPECT_TRUE((*one)->Close().ok());
  EXPECT_EQ(b.Read("log"), "1\ntwo\n3\n");
  EXPECT_CODE(b->OpenForAppend(b / "none/log").status(), kNotFound);
  EXPECT_CODE(b->OpenForAppend(b.root()).status(), kInvalidArgument);
}

void SharedFilesAreWrittenByPosition(const Bench& b) {
  auto one = b->OpenShared(b / "f");
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  auto two = b->OpenShared(b / "f");
  ASSERT_TRUE(two.ok());
  EXPECT_TRUE((*one)->WriteAt(4, AsBytes("four")).ok());
  EXPECT_TRUE((*two)->WriteAt(0, AsBytes("0")).ok());
  EXPECT_TRUE((*two)->WriteAt(6, AsBytes("UR!")).ok());
  EXPECT_TRUE((*one)->WriteAt(1, {}).ok());
  EXPECT_EQ(b.Read("f"), std::string("0\0\0\0foUR!", 9));
  std::string out(20, '\0');
  auto done = (*one)->ReadSome(4, Writable(&out));
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(out.substr(0, *done), "foUR!");
  EXPECT_EQ((*two)->ReadSome(9, Writable(&out)).value(), 0u);
  EXPECT_EQ((*two)->ReadSome(UINT64_MAX, Writable(&out)).value(), 0u);
  // What is open stays there without its name, and is not what gets the name next.
  EXPECT_TRUE(b->Remove(b / "f").ok());
  auto next = b->OpenShared(b / "f");
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE((*one)->WriteAt(0, AsBytes("1")).ok());
  EXPECT_EQ((*two)->ReadSome(0, Writable(&out).first(1)).value(), 1u);
  EXPECT_EQ(out[0], '1');
  EXPECT_EQ(b.Read("f"), "");
  EXPECT_CODE(b->OpenShared(b / "none/f").status(), kNotFound);
  EXPECT_CODE(b->OpenShared(b.root()).status(), kInvalidArgument);
}

void NamesAreBytes(const Bench& b) {
  std::string name = "caf\xe9 \n\xff\\\"";
  b.Write(name, "odd");
  EXPECT_EQ(b.Read(name), "odd");
  EXPECT_EQ(b.Names(""), std::vector<std::string>{name});
}

void ReadsByPosition(const Bench& b) {
  b.Write("f", "0123456789");
  auto file = b->OpenForRead(b / "f");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->size(), 10u);
  EXPECT_EQ((*file)->path(), b / "f");
  std::string out(4, '?');
  EXPECT_TRUE((*file)->ReadAt(3, Writable(&out), {}).ok());
  EXPECT_EQ(out, "3456");
  EXPECT_TRUE((*file)->ReadAt(0, {}, {}).ok());
  EXPECT_TRUE((*file)->ReadAt(10, {}, {}).ok());
  auto n = (*file)->ReadSome(8, Writable(&out), {});
  ASSERT_TRUE(n.ok());
  EXPECT_EQ(*n, 2u);
  EXPECT_EQ(out.substr(0, 2), "89");
  EXPECT_EQ(*(*file)->ReadSome(10, Writable(&out), {}), 0u);
  EXPECT_EQ(*(*file)->ReadSome(UINT64_MAX, Writable(&out), {}), 0u);
}

void ReadingPastTheEndIsDataLoss(const Bench& b) {
  b.Write("f", "0123456789");
  auto file = b->OpenForRead(b / "f");
  ASSERT_TRUE(file.ok());
  std::string out(4, '?');
  for (uint64_t offset : {uint64_t{7}, uint64_t{10}, uint64_t{1} << 40, UINT64_MAX - 1}) {
    Status status = (*file)->ReadAt(offset, Writable(&out), {});
    EXPECT_CODE(status, kDataLoss);
    EXPECT_EQ(status.location().file, b / "f");
    EXPECT_EQ(status.location().offset, offset);
    EXPECT_THAT(std::string(status.message()), HasSubstr("10"));
  }
}

void ReadingHonorsItsContext(const Bench& b) {
  b.Write("f", "0123456789");
  auto file = b->OpenForRead(b / "f");
  ASSERT_TRUE(file.ok());
  std::string out(4, '?');
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_CODE((*file)->ReadAt(0, Writable(&out), ctx), kCancelled);
  EXPECT_CODE((*file)->ReadSome(0, Writable(&out), ctx).status(), kCancelled);
  EXPECT_EQ(out, "????");
}

void OpenForReadFails(const Bench& b) {
  Status missing = b->OpenForRead(b / "none").status();
  EXPECT_CODE(missing, kNotFound);
  EXPECT_THAT(missing.ToString(), HasSubstr(b / "none"));
  Status directory = b->OpenForRead(b.root()).status();
  EXPECT_CODE(directory, kInvalidArgument);
  EXPECT_THAT(directory.ToString(), HasSubstr("directory"));
}

void AnOpenFileOutlivesItsName(const Bench& b) {
  b.Write("f", "0123");
  auto file = b->OpenForRead(b / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(b->Remove(b / "f").ok());
  std::string out(4, '?');
  EXPECT_TRUE((*file)->ReadAt(0, Writable(&out), {}).ok());
  EXPECT_EQ(out, "0123");
}

void ReadWholeKeepsToItsLimit(const Bench& b) {
  b.Write("f", "0123456789");
  EXPECT_EQ(*b->ReadWhole(b / "f", 10), "0123456789");
  EXPECT_CODE(b->ReadWhole(b / "f", 9).status(), kResourceExhausted);
  EXPECT_CODE(b->ReadWhole(b / "none", 9).status(), kNotFound);
  EXPECT_CODE(b->ReadWhole(b.root(), 9).status(), kInvalidArgument);
  b.Write("empty", "");
  EXPECT_EQ(*b->ReadWhole(b / "empty", 0), "");
  std::string large(100'000, 'x');
  b.Write("large", large);
  EXPECT_EQ(*b->ReadWhole(b / "large", 100'000), large);
}

void ReadIntoFillsFromTheStart(const Bench& b) {
  b.Write("f", "0123456789");
  std::string out(16, '?');
  EXPECT_EQ(*b->ReadInto(b / "f", Writable(&out)), 10u);
  EXPECT_EQ(out.substr(0, 11), "0123456789?");
  std::string small(4, '?');
  EXPECT_EQ(*b->ReadInto(b / "f", Writable(&small)), 4u);
  EXPECT_EQ(small, "0123");
  EXPECT_CODE(b->ReadInto(b / "none", Writable(&out)).status(), kNotFound);
  EXPECT_CODE(b->ReadInto(b.root(), Writable(&out)).status(), kInvalidArgument);
}

void MapsAFile(const Bench& b) {
  b.Write("f", "0123456789");
  b.Write("empty", "");
  auto file = b->Map(b / "f");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_TRUE(b->Remove(b / "f").ok());
  EXPECT_EQ(AsText((*file)->bytes()), "0123456789");
  auto empty = b->Map(b / "empty");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE((*empty)->bytes().empty());
  EXPECT_CODE(b->Map(b / "none").status(), kNotFound);
  EXPECT_CODE(b->Map(b.root()).status(), kInvalidArgument);
}

void SharesWords(const Bench& b) {
  auto one = b->OpenSharedWords(b / "w", 3);
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  auto two = b->OpenSharedWords(b / "w", 3);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ((*one)->size(), 3u);
  EXPECT_EQ((*two)->Load(2), 0u);
  (*one)->Store(2, 0xfedcba9876543210u);
  EXPECT_EQ((*two)->Load(2), 0xfedcba9876543210u);
  EXPECT_EQ((*one)->Add(1, 5), 5u);
  EXPECT_EQ((*two)->Add(1, ~uint64_t{2} + 1), 3u);
  EXPECT_EQ((*one)->Load(1), 3u);
  one = Error(Code::kCancelled, "closed");
  two = Error(Code::kCancelled, "closed");
  EXPECT_EQ((*b->OpenSharedWords(b / "w", 3))->Load(2), 0xfedcba9876543210u);
  EXPECT_EQ(b->Stat(b / "w")->size_bytes, 24u);
  EXPECT_CODE(b->OpenSharedWords(b / "w", 4).status(), kFailedPrecondition);
  EXPECT_CODE(b->OpenSharedWords(b / "w", 2).status(), kFailedPrecondition);
  EXPECT_CODE(b->OpenSharedWords(b / "v", 0).status(), kInvalidArgument);
  EXPECT_CODE(b->OpenSharedWords(b / "none/w", 3).status(), kNotFound);
  EXPECT_CODE(b->OpenSharedWords(b.root(), 3).status(), kInvalidArgument);
}

void WritesAtomically(const Bench& b) {
  EXPECT_TRUE(b->WriteAtomically(b / "f", AsBytes("one")).ok());
  EXPECT_EQ(b.Read("f"), "one");
  auto before = b->OpenForRead(b / "f");
  ASSERT_TRUE(before.ok());
  EXPECT_TRUE(b->WriteAtomically(b / "f", AsBytes("three")).ok());
  EXPECT_EQ(b.Read("f"), "three");
  std::string out(3, '?');
  EXPECT_TRUE((*before)->ReadAt(0, Writable(&out), {}).ok());
  EXPECT_EQ(out, "one");  // the old file is replaced, not written to
  EXPECT_EQ(b.Names(""), std::vector<std::string>{"f"});
}

void AFailedAtomicWriteLeavesNothing(const Bench& b) {
  EXPECT_CODE(b->WriteAtomically(b / "none/f", AsBytes("x")), kNotFound);
  ASSERT_TRUE(b->MakeDirectories(b / "d/e").ok());
  EXPECT_FALSE(b->WriteAtomically(b / "d", AsBytes("x")).ok());
  EXPECT_CODE(b->WriteAtomically(b / std::string("a\0b", 3), AsBytes("x")), kInvalidArgument);
  EXPECT_EQ(b.Names(""), std::vector<std::string>{"d"});
}

void RenamesFiles(const Bench& b) {
  b.Write("a", "A");
  b.Write("b", "B");
  ASSERT_TRUE(b->MakeDirectories(b / "d").ok());
  EXPECT_TRUE(b->Rename(b / "a", b / "b").ok());
  EXPECT_EQ(b.Read("b"), "A");
  EXPECT_EQ(b.Read("a"), "error: not found");
  EXPECT_TRUE(b->Rename(b / "b", b / "d/c").ok());
  EXPECT_EQ(b.Read("d/c"), "A");
  EXPECT_TRUE(b->Rename(b / "d/c", b / "d/c").ok());
  EXPECT_EQ(b.Read("d/c"), "A");
  EXPECT_EQ(b.Names(""), std::vector<std::string>{"d"});
}

void RenamesDirectories(const Bench& b) {
  ASSERT_TRUE(b->MakeDirectories(b / "d/sub").ok());
  ASSERT_TRUE(b->MakeDirectories(b / "empty").ok());
  b.Write("d/sub/f", "F");
  EXPECT_TRUE(b->Rename(b / "d", b / "empty").ok());
  EXPECT_EQ(b.Read("empty/sub/f"), "F");
  EXPECT_EQ(b.Names(""), std::vector<std::string>{"empty"});
}

void RenameFails(const Bench& b) {
  b.Write("f", "F");
  ASSERT_TRUE(b->MakeDirectories(b / "d/sub").ok());
  ASSERT_TRUE(b->MakeDirectories(b / "e").ok());
  EXPECT_CODE(b->Rename(b / "none", b / "g"), kNotFound);
  EXPECT_CODE(b->Rename(b / "f", b / "none/g"), kNotFound);
  EXPECT_CODE(b->Rename(b / "f", b / "d"), kInvalidArgument);
  EXPECT_CODE(b->Rename(b / "e", b / "f"), kNotFound);
  EXPECT_CODE(b->Rename(b / "e", b / "d"), kAlreadyExists);
  EXPECT_CODE(b->Rename(b / "d", b / "d/sub/x"), kInvalidArgument);
  EXPECT_EQ(b.Read("f"), "F");
  EXPECT_EQ(b.Names("d"), std::vector<std::string>{"sub"});
}

void MakesTemporaryFiles(const Bench& b) {
  ASSERT_TRUE(b->MakeDirectories(b / "d").ok());
  std::string one, two;
  auto first = b->CreateTemporary(b / "d", &one);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  auto second = b->CreateTemporary(b / "d", &two);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(one, two);
  EXPECT_EQ(DirectoryName(one), b / "d");
  EXPECT_TRUE(BaseName(one).starts_with(kTemporaryPrefix));
  EXPECT_TRUE((*first)->Append(AsBytes("1")).ok());
  EXPECT_TRUE((*second)->Append(AsBytes("22")).ok());
  EXPECT_TRUE((*first)->Close().ok());
  EXPECT_EQ(*b->ReadWhole(one, 10), "1");
  EXPECT_EQ(*b->ReadWhole(two, 10), "22");
  EXPECT_CODE(b->CreateTemporary(b / "none", &one).status(), kNotFound);
}

void RenamesIfAbsent(const Bench& b) {
  b.Write("one", "1");
  b.Write("two", "2");
  ASSERT_TRUE(b->MakeDirectories(b / "d").ok());
  EXPECT_TRUE(b->RenameIfAbsent(b / "one", b / "d/f").ok());
  EXPECT_CODE(b->RenameIfAbsent(b / "two", b / "d/f"), kAlreadyExists);
  EXPECT_CODE(b->RenameIfAbsent(b / "two", b / "d"), kAlreadyExists);
  EXPECT_CODE(b->RenameIfAbsent(b / "two", b / "none/f"), kNotFound);
  EXPECT_CODE(b->RenameIfAbsent(b / "none", b / "g"), kNotFound);
  EXPECT_EQ(b.Read("d/f"), "1");
  EXPECT_EQ(b.Read("two"), "2");
  EXPECT_EQ(b.Names(""), (std::vector<std::string>{"d", "two"}));
}

// What was opened, not what has the name now.
void AnOpenFileTellsWhatItIs(const Bench& b) {
  b.Write("f", "12345");
  auto file = b->OpenForRead(b / "f");
  ASSERT_TRUE(file.ok());
  FileInfo before = *b->Stat(b / "f"), opened = (*file)->info();
  EXPECT_TRUE(b->WriteAtomically(b / "f", AsBytes("123")).ok());
  EXPECT_EQ(opened.inode, before.inode);
  EXPECT_EQ(opened.mtime_ns, before.mtime_ns);
  EXPECT_EQ(opened.size_bytes, 5u);
  EXPECT_EQ((*file)->info().inode, before.inode);
  EXPECT_NE(b->Stat(b / "f")->inode, before.inode);
}

void RemovesFilesAndEmptyDirectories(const Bench& b) {
  b.Write("f", "F");
  ASSERT_TRUE(b->MakeDirectories(b / "d").ok());
  b.Write("d/g", "G");
  EXPECT_CODE(b->Remove(b / "d"), kAlreadyExists);
  EXPECT_TRUE(b->Remove(b / "d/g").ok());
  EXPECT_TRUE(b->Remove(b / "d").ok());
  EXPECT_TRUE(b->Remove(b / "f").ok());
  EXPECT_CODE(b->Remove(b / "f"), kNotFound);
  EXPECT_TRUE(b.Names("").empty());
}

void RemovesTrees(const Bench& b) {
  ASSERT_TRUE(b->MakeDirectories(b / "d/e/f").ok());
  b.Write("d/x", "");
  b.Write("d/e/y", "");
  b.Write("keep", "");
  EXPECT_TRUE(b->RemoveTree(b / "d").ok());
  EXPECT_TRUE(b->RemoveTree(b / "d").ok());
  EXPECT_TRUE(b->RemoveTree(b / "none/x").ok());
  EXPECT_EQ(b.Names(""), std::vector<std::string>{"keep"});
  EXPECT_TRUE(b->RemoveTree(b / "keep").ok());
  EXPECT_TRUE(b.Names("").empty());
}

void MakesDirectories(const Bench& b) {
  EXPECT_TRUE(b->MakeDirectories(b / "a/b//c/").ok());
  EXPECT_TRUE(b->MakeDirectories(b / "a/b/c").ok());
  EXPECT_EQ(b->Stat(b / "a/b/c")->kind, FileKind::kDirectory);
  EXPECT_TRUE(b->MakeDirectories(b.root()).ok());
  b.Write("f", "");
  EXPECT_CODE(b->MakeDirectories(b / "f"), kAlreadyExists);
  EXPECT_CODE(b->MakeDirectories(b / "f/g"), kAlreadyExists);
}

void StatTellsKindAndSize(const Bench& b) {
  b.Write("f", "12345");
  b.Write("g", "");
  auto f = b->Stat(b / "f");
  ASSERT_TRUE(f.ok());
  EXPECT_EQ(f->kind, FileKind::kRegular);
  EXPECT_EQ(f->size_bytes, 5u);
  EXPECT_GT(f->mtime_ns, 0);
  EXPECT_NE(f->inode, b->Stat(b / "g")->inode);
  EXPECT_EQ(f->device, b->Stat(b / "g")->device);
  EXPECT_EQ(b->Stat(b.root())->kind, FileKind::kDirectory);
  EXPECT_CODE(b->Stat(b / "none").status(), kNotFound);
  EXPECT_CODE(b->Stat(b / "f/g").status(), kNotFound);
  EXPECT_TRUE(b->Exists(b / "f"));
  EXPECT_FALSE(b->Exists(b / "none"));
}

void ListsInOrderOfBytes(const Bench& b) {
  for (const char* name : {"b", "a", "\xff", "B", "a.b", ".hidden"}) b.Write(name, "");
  ASSERT_TRUE(b->MakeDirectories(b / "dir").ok());
  auto entries = b->List(b.root());
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(b.Names(""),
            (std::vector<std::string>{".hidden", "B", "a", "a.b", "b", "dir", "\xff"}));
  EXPECT_EQ((*entries)[2].kind, FileKind::kRegular);
  EXPECT_EQ((*entries)[5].kind, FileKind::kDirectory);
  EXPECT_CODE(b->List(b / "none").status(), kNotFound);
  EXPECT_CODE(b->List(b / "a").status(), kNotFound);
}

void SyncsDirectories(const Bench& b) {
  b.Write("f", "");
  EXPECT_TRUE(b->SyncDirectory(b.root()).ok());
  EXPECT_CODE(b->SyncDirectory(b / "none"), kNotFound);
  EXPECT_CODE(b->SyncDirectory(b / "f"), kNotFound);
}

void LocksExclude(const Bench& b) {
  auto held = b->Lock(b / "lock");
  ASSERT_TRUE(held.ok()) << held.status().ToString();
  Status refused = b->Lock(b / "lock").status();
  EXPECT_CODE(refused, kFailedPrecondition);
  EXPECT_THAT(refused.ToString(), HasSubstr(b / "lock"));
  EXPECT_TRUE(b->Lock(b / "other").ok());
  held = Error(Code::kCancelled, "let go");
  held = b->Lock(b / "lock");
  EXPECT_TRUE(held.ok());
  // A holder may remove its lock file: the next one locks a new file.
  EXPECT_TRUE(b->Remove(b / "lock").ok());
  auto next = b->Lock(b / "lock");
  EXPECT_TRUE(next.ok());
  EXPECT_CODE(b->Lock(b / "lock").status(), kFailedPrecondition);
  EXPECT_CODE(b->Lock(b / "none/lock").status(), kNotFound);
  EXPECT_CODE(b->Lock(b.root()).status(), kInvalidArgument);
}

void TellsFreeSpace(const Bench& b) {
  auto free = b->FreeBytes(b.root());
  if (!free.ok()) return EXPECT_CODE(free.status(), kUnavailable);  // a file system need not tell
  EXPECT_GT(*free, 0u);
  EXPECT_CODE(b->FreeBytes(b / "none").status(), kNotFound);
}

struct NamedTest {
  const char* name;
  void (*run)(const Bench&);
};
#define HR_TEST_ROW_(function) {#function, function}
constexpr NamedTest kTests[] = {
    HR_TEST_ROW_(ReadsBackWhatWasWritten),
    HR_TEST_ROW_(CreateTruncates),
    HR_TEST_ROW_(WritesDirectly),
    HR_TEST_ROW_(WritesWholeBlocksDirectly),
    HR_TEST_ROW_(CreateDirectIsCreate),
    HR_TEST_ROW_(WritesPartsDirectly),
    HR_TEST_ROW_(CreateFails),
    HR_TEST_ROW_(AppendsToTheEnd),
    HR_TEST_ROW_(SharedFilesAreWrittenByPosition),
    HR_TEST_ROW_(NamesAreBytes),
    HR_TEST_ROW_(ReadsByPosition),
    HR_TEST_ROW_(ReadingPastTheEndIsDataLoss),
    HR_TEST_ROW_(ReadingHonorsItsContext),
    HR_TEST_ROW_(OpenForReadFails),
    HR_TEST_ROW_(AnOpenFileOutlivesItsName),
    HR_TEST_ROW_(ReadWholeKeepsToItsLimit),
    HR_TEST_ROW_(ReadIntoFillsFromTheStart),
    HR_TEST_ROW_(MapsAFile),
    HR_TEST_ROW_(SharesWords),
    HR_TEST_ROW_(WritesAtomically),
    HR_TEST_ROW_(AFailedAtomicWriteLeavesNothing),
    HR_TEST_ROW_(RenamesFiles),
    HR_TEST_ROW_(RenamesDirectories),
    HR_TEST_ROW_(RenameFails),
    HR_TEST_ROW_(MakesTemporaryFiles),
    HR_TEST_ROW_(RenamesIfAbsent),
    HR_TEST_ROW_(AnOpenFileTellsWhatItIs),
    HR_TEST_ROW_(RemovesFilesAndEmptyDirectories),
    HR_TEST_ROW_(RemovesTrees),
    HR_TEST_ROW_(MakesDirectories),
    HR_TEST_ROW_(StatTellsKindAndSize),
    HR_TEST_ROW_(ListsInOrderOfBytes),
    HR_TEST_ROW_(SyncsDirectories),
    HR_TEST_ROW_(LocksExclude),
    HR_TEST_ROW_(TellsFreeSpace),
};

class SuiteTest : public ::testing::Test {
 public:
  SuiteTest(void (*run)(const Bench&), std::function<FileSystemUnderTest()> open)
      : run_(run), open_(std::move(open)) {}
  void TestBody() override { run_(Bench(open_())); }

 private:
  void (*run_)(const Bench&);
  std::function<FileSystemUnderTest()> open_;
};

}  // namespace

bool RegisterFileSystemSuite(const std::string& name,
                             const std::function<FileSystemUnderTest()>& open) {
  std::string suite = "FileSystemSuite/" + name;
  for (const NamedTest& test : kTests)
    ::testing::RegisterTest(
        suite.c_str(), test.name, nullptr, nullptr, __FILE__, __LINE__,
        [run = test.run, open]() -> ::testing::Test* { return new SuiteTest(run, open); });
  return true;
}

}  // namespace headrace
