#include "headrace/object/dir/dir_handles.h"

#include <gtest/gtest.h>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace::object {
namespace {

using std::chrono::hours;

class DirHandlesTest : public ::testing::Test {
 protected:
  DirHandles::File Open(const std::string& path) {
    EXPECT_TRUE(files_.WriteAtomically(path, AsBytes(path)).ok());
    return files_.OpenForRead(path).value();
  }
  void Keep(DirHandles* handles, const std::string& path) {
    handles->Keep(path, Open(path), handles->Turn());
  }
  MemoryFileSystem files_;
};

TEST_F(DirHandlesTest, TheLeastRecentlyUsedGoesFirst) {
  DirHandles handles(2, hours(1));
  Keep(&handles, "/a");
  Keep(&handles, "/b");
  EXPECT_NE(handles.Find("/a").file, nullptr);
  Keep(&handles, "/c");
  EXPECT_EQ(handles.Find("/b").file, nullptr);
  EXPECT_NE(handles.Find("/a").file, nullptr);
  EXPECT_NE(handles.Find("/c").file, nullptr);
  EXPECT_EQ(handles.num_open(), 2u);
}

TEST_F(DirHandlesTest, KeepsOneFileOfAName) {
  DirHandles handles(2, hours(1));
  Keep(&handles, "/a");
  Keep(&handles, "/b");
  DirHandles::File again = Open("/a");
  handles.Keep("/a", again, handles.Turn());
  EXPECT_EQ(handles.Find("/a").file, again);
  EXPECT_NE(handles.Find("/b").file, nullptr);
}

TEST_F(DirHandlesTest, ANameIsBelievedForAWhile) {
  DirHandles always(2, hours(1)), never(2, std::chrono::nanoseconds(0));
  Keep(&always, "/a");
  Keep(&never, "/a");
  EXPECT_TRUE(always.Find("/a").believed);
  EXPECT_FALSE(never.Find("/a").believed);
  never.Confirm("/a", never.Find("/a").file);
  EXPECT_FALSE(never.Find("/a").believed);
  EXPECT_FALSE(always.Find("/none").believed);
}

TEST_F(DirHandlesTest, WhatWasOpenedBeforeANameWasForgottenIsNotKept) {
  DirHandles handles(2, hours(1));
  const uint64_t turn = handles.Turn();
  DirHandles::File old = Open("/a");
  handles.Forget("/a");  // another one was put there meanwhile
  handles.Keep("/a", old, turn);
  EXPECT_EQ(handles.Find("/a").file, nullptr);
}

TEST_F(DirHandlesTest, NoneAreKeptWhereNoneMayBe) {
  DirHandles handles(0, hours(1));
  Keep(&handles, "/a");
  EXPECT_EQ(handles.Find("/a").file, nullptr);
}

}  // namespace
}  // namespace headrace::object
