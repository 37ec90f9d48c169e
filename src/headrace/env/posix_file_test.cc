// What only the real file system can show: limits, permissions, other processes, odd files. What it
// shares with its doubles is in testing/file_system_suite.cc.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>

#include "headrace/base/fault_point.h"
#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

// Sanitizers need more memory than a limit would leave.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HR_SANITIZED 1
#endif
#endif

namespace headrace {
namespace {

using ::testing::HasSubstr;

class PosixFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, std::string_view content) {
    ASSERT_TRUE(files_->WriteAtomically(path, AsBytes(content)).ok());
  }
  std::string Read(const std::string& path) {
    auto content = files_->ReadWhole(path, 1 << 20);
    return content.ok() ? *content : content.status().ToString();
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    auto entries = files_->List(dir_.path());
    if (!entries.ok()) return {entries.status().ToString()};
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }

  FileSystem* const files_ = PosixFileSystem();
  TemporaryDirectory dir_;
};

bool SetLimit(decltype(RLIMIT_NOFILE) which, rlim_t value) {
  rlimit limit{value, value};
  return ::setrlimit(which, &limit) == 0;
}

// In a child: 0 when `status` has this code and its text holds `part`.
int Check(const Status& status, Code code, std::string_view part) {
  std::string text = status.ToString();
  if (status.code() == code && text.find(part) != std::string::npos) return 0;
  std::fprintf(stderr, "found: %s\n", text.c_str());
  return 1;
}

TEST_F(PosixFileTest, TooManyOpenFilesNamesTheLimit) {
  Write(dir_ / "f", "x");
  EXPECT_EQ(ExitOfChild([&] {
              if (!SetLimit(RLIMIT_NOFILE, 64)) return 2;
              std::vector<std::unique_ptr<RandomAccessFile>> open;
              while (open.size() < 100) {
                auto file = files_->OpenForRead(dir_ / "f");
                if (file.ok()) {
                  open.push_back(std::move(file).value());
                  continue;
                }
                int bad = Check(file.status(), Code::kResourceExhausted, "limit 64");
                std::byte out[1];
                auto direct = files_->ReadInto(dir_ / "f", out);
                bad += Check(direct.status(), Code::kResourceExhausted, "too many open files");
                bad +=
                    Check(files_->List(dir_.path()).status(), Code::kResourceExhausted, "ulimit");
                open.clear();
                return bad + (files_->OpenForRead(dir_ / "f").ok() ? 0 : 1);
              }
              return 3;
            }),
            0);
}

TEST_F(PosixFileTest, PermissionsAreTold) {
  ASSERT_TRUE(files_->MakeDirectories(dir_ / "closed").ok());
  Write(dir_ / "secret", "x");
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((dir_ / "secret").c_str(), 0), 0);
  ASSERT_EQ(::chmod((dir_ / "closed").c_str(), 0), 0);
  EXPECT_EQ(ExitOfChild([&] {
              if (!BecomeNobody()) return 2;
              constexpr Code kDenied = Code::kPermissionDenied;
              std::byte out[1];
              std::string inside = dir_ / "closed/f";
              int bad = Check(files_->OpenForRead(dir_ / "secret").status(), kDenied, "secret");
              bad += Check(files_->ReadWhole(dir_ / "secret", 9).status(), kDenied, "secret");
              bad += Check(files_->ReadInto(dir_ / "secret", out).status(), kDenied, "secret");
              bad += Check(files_->Map(dir_ / "secret").status(), kDenied, "secret");
              bad += Check(files_->Create(inside).status(), kDenied, inside);
              bad += Check(files_->WriteAtomically(inside, {}), kDenied, inside);
              bad += Check(files_->OpenSharedWords(inside, 1).status(), kDenied, inside);
              bad += Check(files_->Lock(inside).status(), kDenied, inside);
              bad += Check(files_->Stat(inside).status(), kDenied, inside);
              bad += Check(files_->Remove(inside), kDenied, inside);
              bad += Check(files_->Rename(inside, dir_ / "x"), kDenied, inside);
              bad += Check(files_->MakeDirectories(inside), kDenied, inside);
              bad += Check(files_->List(dir_ / "closed").status(), kDenied, "closed");
              bad += Check(files_->RemoveTree(dir_ / "closed"), kDenied, "closed");
              return bad;
            }),
            0);
}

TEST_F(PosixFileTest, AFullDiskIsAnErrorWithAdvice) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  auto file = files_->Create("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(Check((*file)->Append(AsBytes("x")), Code::kResourceExhausted, "no space left"), 0);
  EXPECT_EQ((*file)->size(), 0u);
  // The failure stays: nothing later may look as if the bytes were safe.
  EXPECT_EQ((*file)->Sync().code(), Code::kResourceExhausted);
  EXPECT_EQ((*file)->Close().code(), Code::kResourceExhausted);
}

TEST_F(PosixFileTest, AShortWriteIsContinuedUpToTheLimit) {
  EXPECT_EQ(ExitOfChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              if (!SetLimit(RLIMIT_FSIZE, 64)) return 2;
              auto file = files_->Create(dir_ / "f");
              int bad = file.ok() ? 0 : 1;
              bad += Check((*file)->Append(AsBytes(std::string(100, 'x'))),
                           Code::kResourceExhausted, "largest size");
              return bad + ((*file)->size() == 64 ? 0 : 1);
            }),
            0);
  EXPECT_EQ(Read(dir_ / "f"), std::string(64, 'x'));
}

// How many bytes of a file are in the page cache.
size_t CachedBytes(const std::string& path) {
  auto map = PosixFileSystem()->Map(path);
  if (!map.ok()) return 0;
  Bytes bytes = (*map)->bytes();
  std::vector<unsigned char> pages((bytes.size() + 4095) / 4096);
  ::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data());
  return static_cast<size_t>(
             std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; })) *
         4096;
}

TEST_F(PosixFileTest, WhatIsResidentIsRightAndNeverTooMuch) {
  std::string content(100'000, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  Write(dir_ / "f", content);
  auto file = files_->OpenForRead(dir_ / "f");
  ASSERT_TRUE(file.ok());
  std::string a(50, '?'), b(3000, '?');
  const MutableBytes parts[] = {std::as_writable_bytes(std::span(a)),
                                std::as_writable_bytes(std::span(b))};
  for (uint64_t offset :
       {uint64_t{0}, uint64_t{5000}, uint64_t{99'000}, uint64_t{100'000}, uint64_t{1} << 63}) {
    auto n = (*file)->ReadResident(offset, parts);
    ASSERT_TRUE(n.ok()) << n.status().ToString();
    uint64_t there = offset < content.size() ? content.size() - offset : 0;
    ASSERT_LE(*n, std::min<uint64_t>(there, a.size() + b.size()));
    EXPECT_EQ((a + b).substr(0, *n), content.substr(std::min(offset, content.size()), *n));
    EXPECT_LE((*file)->ResidentBytes(offset, 5000), std::min<uint64_t>(there, 5000));
    // What the system has let go of between two reads from memory was told rightly as well.
    const uint64_t resident = (*file)->ResidentBytes(offset, *n);
    const bool all = *n == a.size() + b.size();
    if (all && (*file)->ReadResident(offset, parts).value() == *n) {
      EXPECT_EQ(resident, *n);
    }
  }
}

// True where what is written around the page cache is not in it: some file systems take the flag,
// and go on as usual.
bool HasDirectWrites(const std::string& path) {
  constexpr size_t kBytes = 1 << 20;
  int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0666);
  if (file < 0) return false;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const ssize_t written = ::write(file, memory, kBytes);
  ::munmap(memory, kBytes);
  ::close(file);
  return written == static_cast<ssize_t>(kBytes) && CachedBytes(path) < kBytes / 2;
}

TEST_F(PosixFileTest, DirectWritesLeaveThePageCacheAlone) {
  if (!HasDirectWrites(dir_ / "probe")) GTEST_SKIP() << "no direct I/O on this file system";
  auto file = files_->CreateDirect(dir_ / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append(AsBytes(std::string((20 << 20) + 100, 'x'))).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_LT(CachedBytes(dir_ / "f"), size_t{2} << 20);
}

TEST_F(PosixFileTest, DirectWritesWorkWhereTheFileSystemRefusesThem) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm here";
  std::string path = "/dev/shm/headrace-direct-" + std::to_string(::getpid());
  auto file = files_->CreateDirect(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  std::string content(5'000'001, 'x');
  EXPECT_TRUE((*file)->Append(AsBytes(content)).ok());
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_TRUE(*files_->ReadWhole(path, 10'000'000) == content);
  EXPECT_TRUE(files_->Remove(path).ok());
}

// The blocks after the one at fault must not be written, nor may anyone wait for them.
TEST_F(PosixFileTest, AFaultOfADirectWriteIsToldAndKept) {
  EXPECT_EQ(ExitOfChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              if (!SetLimit(RLIMIT_FSIZE, 6 << 20)) return 2;
              auto file = files_->CreateDirect(dir_ / "f");
              Status status = (*file)->Append(AsBytes(std::string(64 << 20, 'x')));
              int bad = Check(status, Code::kResourceExhausted, "largest size");
              bad += status.location().offset == uint64_t{6} << 20 ? 0 : 1;
              bad += Check((*file)->Append({}), Code::kResourceExhausted, "largest size");
              bad += Check((*file)->Sync(), Code::kResourceExhausted, "largest size");
              return bad + Check((*file)->Close(), Code::kResourceExhausted, "largest size");
            }),
            0);
  EXPECT_EQ(files_->Stat(dir_ / "f")->size_bytes, uint64_t{6} << 20);
}

TEST_F(PosixFileTest, AFaultOfTheLastDirectWriteIsToldBySyncAndClose) {
  for (bool sync : {true, false}) {
    EXPECT_EQ(ExitOfChild([&] {
                std::signal(SIGXFSZ, SIG_IGN);
                if (!SetLimit(RLIMIT_FSIZE, 64)) return 2;
                auto file = files_->CreateDirect(dir_ / "f");
                if (!(*file)->Append(AsBytes(std::string(100, 'x'))).ok()) return 3;
                return Check(sync ? (*file)->Sync() : (*file)->Close(), Code::kResourceExhausted,
                             "largest size");
              }),
              0);
  }
}

TEST_F(PosixFileTest, ADirectFileThatIsDroppedEndsItsThread) {
  for (int i = 0; i < 50; ++i) {
    auto file = files_->CreateDirect(dir_ / "f");
    ASSERT_TRUE(file.ok());
    std::string content(i % 2 * (6 << 20), 'x');
    ASSERT_TRUE((*file)->Append(AsBytes(content)).ok());
  }
  EXPECT_LE(files_->Stat(dir_ / "f")->size_bytes, uint64_t{6} << 20);
}

// Without memory or a thread of its own it is written the usual way.
#ifndef HR_SANITIZED
TEST_F(PosixFileTest, DirectWritesWorkWithoutMemoryForBlocks) {
  EXPECT_EQ(ExitOfChild([&] {
              std::string content(5 << 20, 'x');
              std::ifstream statm("/proc/self/statm");
              uint64_t pages = 0;
              statm >> pages;
              if (!SetLimit(RLIMIT_AS, pages * 4096 + (4 << 20))) return 2;
              auto file = files_->CreateDirect(dir_ / "f");
              if (!file.ok() || !(*file)->Append(AsBytes(content)).ok()) return 3;
              return (*file)->Close().ok() ? 0 : 4;
            }),
            0);
  EXPECT_EQ(files_->Stat(dir_ / "f")->size_bytes, uint64_t{5} << 20);
}
#endif

TEST_F(PosixFileTest, AnAtomicWriteThatDoesNotFitLeavesTheOldFile) {
  Write(dir_ / "f", "old");
  EXPECT_EQ(ExitOfChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              if (!SetLimit(RLIMIT_FSIZE, 64)) return 2;
              return Check(files_->WriteAtomically(dir_ / "f", AsBytes(std::string(100, 'x'))),
                           Code::kResourceExhausted, dir_ / "f");
            }),
            0);
  EXPECT_EQ(Read(dir_ / "f"), "old");
  EXPECT_EQ(Names(), std::vector<std::string>{"f"});
}

TEST_F(PosixFileTest, SharedWordsThatDoNotFitLeaveAnEmptyFile) {
  EXPECT_EQ(ExitOfChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              if (!SetLimit(RLIMIT_FSIZE, 64)) return 2;
              return Check(files_->OpenSharedWords(dir_ / "w", 1000).status(),
                           Code::kResourceExhausted, dir_ / "w");
            }),
            0);
  EXPECT_EQ(files_->Stat(dir_ / "w")->size_bytes, 0u);
  EXPECT_TRUE(files_->OpenSharedWords(dir_ / "w", 1000).ok());
}

TEST_F(PosixFileTest, SharedWordsHaveDiskSpaceBehindThem) {
  ASSERT_TRUE(files_->OpenSharedWords(dir_ / "w", 100'000).ok());
  struct stat info;
  ASSERT_EQ(::stat((dir_ / "w").c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 800'000);
}

TEST_F(PosixFileTest, AnAtomicWriteKilledAtAnyPointLeavesOldOrNew) {
  for (auto [point, expected] : {std::pair("before_sync", "old"), std::pair("before_rename", "old"),
                                 std::pair("before_directory_sync", "new")}) {
    Write(dir_ / "f", "old");
    std::string fault = std::string("env.write_atomically.") + point + "=kill";
    EXPECT_EQ(ExitOfChild([&] {
                if (!ArmFaultsFromText(fault).ok()) return 2;
                return files_->WriteAtomically(dir_ / "f", AsBytes("new")).ok() ? 0 : 1;
              }),
              -SIGKILL)
        << point;
    EXPECT_EQ(Read(dir_ / "f"), expected) << point;
    for (const std::string& name : Names())
      EXPECT_TRUE(name == "f" || name.starts_with(kTemporaryPrefix)) << name;
  }
  EXPECT_EQ(Names().size(), 3u);  // "f", and what the first two left
}

TEST_F(PosixFileTest, AnAtomicWriteThatFailsAtAnyPointRemovesItsTemporaryFile) {
  Write(dir_ / "f", "old");
  for (const char* point : {"before_sync", "before_rename"}) {
    ArmFault(std::string("env.write_atomically.") + point, 1,
             [] { return Error(Code::kIoError, "armed"); });
    Status failed = files_->WriteAtomically(dir_ / "f", AsBytes("new"));
    DisarmFaults();
    EXPECT_EQ(Check(failed, Code::kIoError, "replacing " + (dir_ / "f")), 0);
    EXPECT_EQ(Read(dir_ / "f"), "old");
    EXPECT_EQ(Names(), std::vector<std::string>{"f"});
  }
}

TEST_F(PosixFileTest, ATemporaryFileOfADeadProcessIsPassedOver) {
  Write(dir_ / "f", "one");
  // The next names that this process would take are taken: a killed one with our number made them.
  for (int i = 0; i < 200; ++i) {
    auto stale = files_->Create(dir_ / (std::string(kTemporaryPrefix) + std::to_string(::getpid()) +
                                        "-" + std::to_string(i)));
    ASSERT_TRUE(stale.ok());
  }
  EXPECT_TRUE(files_->WriteAtomically(dir_ / "f", AsBytes("two")).ok());
  EXPECT_EQ(Read(dir_ / "f"), "two");
  EXPECT_EQ(Names().size(), 201u);
}

TEST_F(PosixFileTest, PipesAndDevicesAreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0666), 0);
  for (const std::string& path : {dir_ / "pipe", std::string("/dev/null")}) {
    EXPECT_EQ(Check(files_->OpenForRead(path).status(), Code::kInvalidArgument, "pipe, socket"), 0);
    EXPECT_EQ(files_->Map(path).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(files_->ReadWhole(path, 9).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ((*files_->List(dir_.path()))[0].kind, FileKind::kOther);
  EXPECT_EQ(files_->Stat(dir_ / "pipe")->kind, FileKind::kOther);
}

TEST_F(PosixFileTest, SymbolicLinksAreFollowedToReadAndNotToRemove) {
  ASSERT_TRUE(files_->MakeDirectories(dir_ / "target").ok());
  Write(dir_ / "target/f", "F");
  ASSERT_TRUE(files_->MakeDirectories(dir_ / "tree").ok());
  ASSERT_EQ(::symlink("../target", (dir_ / "tree/link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", (dir_ / "dangling").c_str()), 0);
  ASSERT_EQ(::symlink("loop", (dir_ / "loop").c_str()), 0);
  EXPECT_EQ(Read(dir_ / "tree/link/f"), "F");
  EXPECT_EQ((*files_->List(dir_ / "tree"))[0].kind, FileKind::kSymlink);
  EXPECT_EQ(files_->Stat(dir_ / "tree/link")->kind, FileKind::kDirectory);
  EXPECT_EQ(files_->Stat(dir_ / "dangling").status().code(), Code::kNotFound);
  EXPECT_EQ(files_->OpenForRead(dir_ / "loop").status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(files_->RemoveTree(dir_ / "tree").ok());
  EXPECT_TRUE(files_->RemoveTree(dir_ / "dangling").ok());
  EXPECT_TRUE(files_->Remove(dir_ / "loop").ok());
  EXPECT_EQ(Read(dir_ / "target/f"), "F");
  EXPECT_EQ(Names(), std::vector<std::string>{"target"});
}

TEST_F(PosixFileTest, AFileCutShortWhileOpenIsDataLoss) {
  Write(dir_ / "f", std::string(1000, 'x'));
  auto file = files_->OpenForRead(dir_ / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate((dir_ / "f").c_str(), 300), 0);
  std::vector<std::byte> out(500);
  Status status = (*file)->ReadAt(100, out, {});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ends at byte 300"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("500 bytes from byte 100"));
  EXPECT_EQ((*file)->size(), 1000u);
}

TEST_F(PosixFileTest, FilesOfUnknownSizeAreReadWhole) {
  auto content = files_->ReadWhole("/proc/self/maps", 1 << 24);
  ASSERT_TRUE(content.ok()) << content.status().ToString();
  EXPECT_THAT(*content, HasSubstr("[stack]"));
  EXPECT_EQ(files_->ReadWhole("/proc/self/maps", 100).status().code(), Code::kResourceExhausted);
}

TEST_F(PosixFileTest, MapsThatDoNotFitAreAnErrorWithAdvice) {
  // Of which a process cannot map more than 16, or 32, as the processor has addresses.
  constexpr off_t kBytes = off_t{1} << 43;
  ASSERT_TRUE(files_->Create(dir_ / "huge").ok());
  if (::truncate((dir_ / "huge").c_str(), kBytes) != 0)
    GTEST_SKIP() << "no files of 8 TiB on this file system";
  size_t fitted[2];
  for (size_t& fits : fitted) {
    std::vector<std::unique_ptr<MappedFile>> maps;
    Status refused;
    while (refused.ok() && maps.size() < 100) {
      auto map = files_->Map(dir_ / "huge");
      if (!map.ok()) refused = map.status();
      if (map.ok()) maps.push_back(std::move(map).value());
    }
    EXPECT_EQ(Check(refused, Code::kResourceExhausted, "no memory"), 0);
    fits = maps.size();
  }
  EXPECT_EQ(fitted[0], fitted[1]);  // each map was given back
}

TEST_F(PosixFileTest, ReadingAHugeFileWholeIsRefusedBeforeItIsRead) {
  ASSERT_TRUE(files_->Create(dir_ / "huge").ok());
  if (::truncate((dir_ / "huge").c_str(), off_t{1} << 40) != 0)
    GTEST_SKIP() << "no files of 1 TiB on this file system";
  EXPECT_EQ(Check(files_->ReadWhole(dir_ / "huge", 100).status(), Code::kResourceExhausted,
                  "has 1099511627776 bytes, expected at most 100"),
            0);
}

std::set<int> OpenDescriptors() {
  std::set<int> open;
  for (int fd = 0; fd < 1024; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) open.insert(fd);
  return open;
}

TEST_F(PosixFileTest, NoDescriptorSurvivesAnExec) {
  Write(dir_ / "f", "x");
  std::set<int> before = OpenDescriptors();
  auto reader = files_->OpenForRead(dir_ / "f");
  auto writer = files_->Create(dir_ / "g");
  auto log = files_->OpenForAppend(dir_ / "h");
  auto lock = files_->Lock(dir_ / "lock");
  auto words = files_->OpenSharedWords(dir_ / "w", 1);
  auto map = files_->Map(dir_ / "f");
  ASSERT_TRUE(reader.ok() && writer.ok() && log.ok() && lock.ok() && words.ok() && map.ok());
  size_t num_new = 0;
  for (int fd : OpenDescriptors()) {
    if (before.count(fd)) continue;
    ++num_new;
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC) << fd;
  }
  EXPECT_EQ(num_new, 4u);  // maps and shared words need none
}

TEST_F(PosixFileTest, NoDescriptorIsLeftByFailures) {
  Write(dir_ / "f", "0123456789");
  auto held = files_->Lock(dir_ / "lock");
  std::set<int> before = OpenDescriptors();
  std::byte out[4];
  EXPECT_FALSE(files_->OpenForRead(dir_.path()).ok());
  EXPECT_FALSE(files_->Map(dir_.path()).ok());
  EXPECT_FALSE(files_->ReadWhole(dir_ / "f", 5).ok());
  EXPECT_FALSE(files_->ReadInto(dir_.path(), out).ok());
  EXPECT_FALSE(files_->OpenSharedWords(dir_ / "f", 5).ok());
  EXPECT_FALSE(files_->Lock(dir_ / "lock").ok());
  EXPECT_FALSE(files_->List(dir_ / "f").ok());
  EXPECT_FALSE(files_->WriteAtomically(dir_.path(), {}).ok());
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(PosixFileTest, ALinkWhoseAnswerWasLostIsARename) {
  ArmFault("env.rename_if_absent.rename", 1,
           [] { return Error(Code::kUnimplemented, "as on NFS"); });
  Write(dir_ / "from", "x");
  ASSERT_EQ(::link((dir_ / "from").c_str(), (dir_ / "to").c_str()), 0);
  EXPECT_TRUE(files_->RenameIfAbsent(dir_ / "from", dir_ / "to").ok());
  EXPECT_EQ(Names(), std::vector<std::string>{"to"});
  DisarmFaults();
}

}  // namespace
}  // namespace headrace
