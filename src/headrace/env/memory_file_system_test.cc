// What the memory double loses at a power cut, and that its boundaries find a broken publish.
#include "headrace/env/testing/memory_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

using ::testing::ElementsAre;

void Write(MemoryFileSystem& files, const std::string& path, std::string_view content, bool sync) {
  auto file = files.Create(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_TRUE((*file)->Append(AsBytes(content)).ok());
  if (sync) {
    ASSERT_TRUE((*file)->Sync().ok());
  }
  ASSERT_TRUE((*file)->Close().ok());
}

std::string Read(MemoryFileSystem& files, const std::string& path) {
  auto content = files.ReadWhole(path, 1 << 20);
  return content.ok() ? *content : "error: " + std::string(CodeName(content.status().code()));
}

void CutAndStart(MemoryFileSystem& files, Survival survival = Survival::kNothing,
                 uint64_t seed = 0) {
  files.PowerCut(survival, seed);
  files.PowerOn();
}

TEST(MemoryFileSystem, ANewFileNeedsBothSyncs) {
  MemoryFileSystem files;
  Write(files, "/neither", "x", false);
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/neither"), "error: not found");

  Write(files, "/only_data", "x", true);
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/only_data"), "error: not found");

  Write(files, "/only_name", "x", false);
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/only_name"), "");

  Write(files, "/both", "x", true);
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/both"), "x");
}

TEST(MemoryFileSystem, WhatWasAppendedAfterTheSyncIsLost) {
  MemoryFileSystem files;
  auto file = files.Create("/f");
  ASSERT_TRUE((*file)->Append(AsBytes("safe")).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Append(AsBytes(" lost")).ok());
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/f"), "safe");
}

TEST(MemoryFileSystem, TruncatingIsDurableAtOnce) {
  MemoryFileSystem files;
  Write(files, "/f", "old", true);
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  Write(files, "/f", "new", false);
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/f"), "");
}

TEST(MemoryFileSystem, RenameInOneDirectoryIsWholeOrNothing) {
  MemoryFileSystem files;
  Write(files, "/old", "A", true);
  Write(files, "/new", "B", true);
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  ASSERT_TRUE(files.Rename("/new", "/old").ok());
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/old"), "A");
  EXPECT_EQ(Read(files, "/new"), "B");
  ASSERT_TRUE(files.Rename("/new", "/old").ok());
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/old"), "B");
  EXPECT_EQ(Read(files, "/new"), "error: not found");
}

TEST(MemoryFileSystem, RenameBetweenDirectoriesNeedsBothSyncs) {
  auto prepare = [](MemoryFileSystem& files) {
    ASSERT_TRUE(files.MakeDirectories("/a").ok());
    ASSERT_TRUE(files.MakeDirectories("/b").ok());
    Write(files, "/a/f", "F", true);
    ASSERT_TRUE(files.SyncDirectory("/a").ok());
    ASSERT_TRUE(files.SyncDirectory("/").ok());
    ASSERT_TRUE(files.Rename("/a/f", "/b/f").ok());
  };
  MemoryFileSystem source_only;
  prepare(source_only);
  ASSERT_TRUE(source_only.SyncDirectory("/a").ok());
  CutAndStart(source_only);
  EXPECT_EQ(Read(source_only, "/a/f"), "error: not found");
  EXPECT_EQ(Read(source_only, "/b/f"), "error: not found");

  MemoryFileSystem target_only;
  prepare(target_only);
  ASSERT_TRUE(target_only.SyncDirectory("/b").ok());
  CutAndStart(target_only);
  EXPECT_EQ(Read(target_only, "/a/f"), "F");
  EXPECT_EQ(Read(target_only, "/b/f"), "F");
}

TEST(MemoryFileSystem, NewDirectoriesNeedTheirParentsSync) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectories("/a/b").ok());
  ASSERT_TRUE(files.SyncDirectory("/a").ok());
  CutAndStart(files);
  EXPECT_FALSE(files.Exists("/a"));
  ASSERT_TRUE(files.MakeDirectories("/a/b").ok());
  ASSERT_TRUE(files.SyncDirectory("/a").ok());
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  CutAndStart(files);
  EXPECT_TRUE(files.Exists("/a/b"));
}

TEST(MemoryFileSystem, ARemovalNeedsASync) {
  MemoryFileSystem files;
  Write(files, "/f", "F", true);
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  ASSERT_TRUE(files.Remove("/f").ok());
  CutAndStart(files);
  EXPECT_EQ(Read(files, "/f"), "F");
}

TEST(MemoryFileSystem, EverythingSurvivesTheDeathOfAProcess) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectories("/d").ok());
  Write(files, "/d/f", "F", false);
  auto lock = files.Lock("/lock");
  ASSERT_TRUE(lock.ok());
  CutAndStart(files, Survival::kEverything);
  EXPECT_EQ(Read(files, "/d/f"), "F");
  EXPECT_TRUE(files.Lock("/lock").ok());
}

TEST(MemoryFileSystem, SomeSurvivalDrawsBetweenBoth) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    MemoryFileSystem files;
    Write(files, "/f", "ab", true);
    ASSERT_TRUE(files.SyncDirectory("/").ok());
    Write(files, "/g", "", false);
    auto file = files.Create("/f");
    ASSERT_TRUE((*file)->Append(AsBytes("cd")).ok());
    CutAndStart(files, Survival::kSome, seed);
    seen.insert(Read(files, "/f") + (files.Exists("/g") ? "+g" : ""));
  }
  using std::string_literals::operator""s;
  EXPECT_EQ(seen, (std::set<std::string>{"", "c", "cd", "\0"s, "\0\0"s, "c\0"s, "+g", "c+g", "cd+g",
                                         "\0+g"s, "\0\0+g"s, "c\0+g"s}));
}

TEST(MemoryFileSystem, AfterTheCutEverythingFailsUntilPowerOn) {
  MemoryFileSystem files;
  Write(files, "/f", "F", true);
  ASSERT_TRUE(files.SyncDirectory("/").ok());
  auto reader = files.OpenForRead("/f");
  auto writer = files.Create("/g");
  ASSERT_TRUE(reader.ok() && writer.ok());
  files.PowerCut();
  EXPECT_TRUE(files.power_is_off());
  std::byte out[1];
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ((*reader)->ReadAt(0, out, {}).code(), Code::kUnavailable);
    EXPECT_EQ((*writer)->Append(AsBytes("x")).code(), Code::kUnavailable);
    EXPECT_EQ((*writer)->Sync().code(), Code::kUnavailable);
    if (round == 0) {
      EXPECT_EQ(files.Stat("/f").status().code(), Code::kUnavailable);
      EXPECT_EQ(files.WriteAtomically("/f", {}).code(), Code::kUnavailable);
      EXPECT_EQ(files.MakeDirectories("/d").code(), Code::kUnavailable);
      EXPECT_EQ(files.RemoveTree("/f").code(), Code::kUnavailable);
    }
    files.PowerOn();
  }
  EXPECT_EQ(Read(files, "/f"), "F");
}

TEST(MemoryFileSystem, BoundariesAreNumberedAndNamed) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectories("/d").ok());
  ASSERT_TRUE(files.WriteAtomically("/d/f", AsBytes("abc")).ok());
  ASSERT_TRUE(files.RemoveTree("/d").ok());
  EXPECT_THAT(files.boundary_log(),
              ElementsAre("1 make directory /d", "2 create /d/.headrace-tmp-0",
                          "3 append /d/.headrace-tmp-0 3", "4 sync /d/.headrace-tmp-0",
                          "5 rename /d/.headrace-tmp-0 to /d/f", "6 sync directory /d",
                          "7 remove /d/f", "8 remove /d"));
  EXPECT_EQ(files.boundaries(), 8u);
}

// What the power-cut loop finds for a way to replace the content of /f.
std::set<std::string> ContentsAfterCuts(const std::function<void(MemoryFileSystem&)>& replace) {
  std::set<std::string> found;
  for (uint64_t k = 1;; ++k) {
    MemoryFileSystem files;
    Write(files, "/f", "old", true);
    EXPECT_TRUE(files.SyncDirectory("/").ok());
    files.CutPowerAt(files.boundaries() + k);
    replace(files);
    bool finished = !files.power_is_off();
    if (finished) files.PowerCut();
    files.PowerOn();
    found.insert(Read(files, "/f"));
    if (finished) return found;
  }
}

TEST(MemoryFileSystem, PowerCutsShowThatAnAtomicWriteIsAtomic) {
  auto atomically = [](MemoryFileSystem& files) {
    (void)files.WriteAtomically("/f", AsBytes("new"));
  };
  EXPECT_EQ(ContentsAfterCuts(atomically), (std::set<std::string>{"old", "new"}));
}

TEST(MemoryFileSystem, PowerCutsShowWhatAPlainWriteBreaks) {
  auto in_place = [](MemoryFileSystem& files) {
    auto file = files.Create("/f");
    if (file.ok() && (*file)->Append(AsBytes("new")).ok()) (void)(*file)->Sync();
  };
  EXPECT_EQ(ContentsAfterCuts(in_place), (std::set<std::string>{"old", "", "new"}));
  auto without_sync = [](MemoryFileSystem& files) {
    auto file = files.Create("/g");
    if (file.ok() && (*file)->Append(AsBytes("new")).ok() && files.Rename("/g", "/f").ok())
      (void)files.SyncDirectory("/");
  };
  EXPECT_EQ(ContentsAfterCuts(without_sync), (std::set<std::string>{"old", ""}));
}

}  // namespace
}  // namespace headrace
