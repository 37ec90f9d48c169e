// The driver dir, and pointers by lock file and rename, in a folder of a shared file system, which
// the environment names: HEADRACE_TEST_FOLDERS, one folder by each of its mounts, parted by ':'. It
// leaves files there. Run by tests/integration/test_mounts.py, which mounts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "headrace/env/console.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/ref.h"
#include "headrace/object/testing/conformance.h"
#include "headrace/object/testing/ref_suite.h"

namespace headrace::object {
namespace {

std::vector<std::string> Folders() {
  std::vector<std::string> folders(1);
  for (char c : EnvironmentVariable("HEADRACE_TEST_FOLDERS").value_or("/nonexistent")) {
    if (c == ':')
      folders.emplace_back();
    else
      folders.back() += c;
  }
  return folders;
}

// A new folder, as each mount has it.
std::vector<std::string> NewFolder() {
  static const int64_t start = WallClockNanos();
  static int number = 0;
  std::vector<std::string> folders = Folders();
  std::string name = std::to_string(start) + "-" + std::to_string(++number);
  for (std::string& folder : folders) folder = JoinPath(folder, name);
  Status made = PosixFileSystem()->MakeDirectories(folders.front());
  EXPECT_TRUE(made.ok()) << made.ToString();
  for (const std::string& folder : folders)
    EXPECT_TRUE(PosixFileSystem()->Exists(folder)) << folder;
  return folders;
}

std::shared_ptr<ObjectStore> Open(const std::string& folder) {
  auto store = OpenDirStore(folder, {.threads = 4});
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? *std::move(store) : nullptr;
}

Abilities Claimed() {
  return {.list = true,
          .write = true,
          .upload = true,
          .put_if_absent = true,
          .put_if_match = true,
          .get_if_match = true,
          .strict_keys = false};
}

// A few seconds for each mount: fewer keys than on a disk of this machine, where each takes less.
const bool kRegistered = RegisterObjectStoreSuite(
    "shared_folder", {.abilities = Claimed(),
                      .open = [] { return StoreUnderTest{.store = Open(NewFolder().front())}; },
                      .many_keys = 60,
                      .num_threads = 4});

// Gives out refs of one place by one mount after the other.
RefUnderTest OpenRefs(const std::function<std::unique_ptr<Ref>(const std::string&)>& open) {
  auto next = std::make_shared<std::atomic<size_t>>(0);
  return {
      [open, next, folders = NewFolder()] { return open(folders[(*next)++ % folders.size()]); }};
}

std::unique_ptr<Ref> OpenFileRef(const std::string& folder) {
  return MakeFileRef(PosixFileSystem(), JoinPath(folder, "latest"));
}
std::unique_ptr<Ref> OpenDirRef(const std::string& folder) {
  auto ref = MakeObjectRef(Open(folder), "refs/latest");
  EXPECT_TRUE(ref.ok()) << ref.status().ToString();
  return ref.ok() ? *std::move(ref) : nullptr;
}

const bool kRefsRegistered =
    RegisterRefSuite("shared_folder_file", [] { return OpenRefs(OpenFileRef); }) &&
    RegisterRefSuite("shared_folder_dir", [] { return OpenRefs(OpenDirRef); });

// The child's way to say what went wrong.
int Tell(const Status& status) {
  WriteStderr(AsBytes(status.ToString() + "\n"));
  return 1;
}

// Adds one to the number in the ref until it has done so `times` times. 0 when all went well.
int Count(Ref* ref, int times) {
  while (times > 0) {
    auto now = ref->Read(Context());
    if (!now.ok()) return Tell(now.status());
    std::string next = std::to_string(std::stoi(now->content) + 1);
    Status swapped = ref->Swap(now->version, AsBytes(next), Context()).status();
    if (swapped.ok())
      --times;
    else if (swapped.code() != Code::kFailedPrecondition)
      return Tell(swapped);
  }
  return 0;
}

// What the ref holds in the end: a mount that remembers names may show for a while what was there
// before.
std::string LastContent(Ref* ref, const std::string& expected) {
  const auto give_up = Context::Clock::now() + std::chrono::minutes(2);
  while (true) {
    auto value = ref->Read(Context());
    if (!value.ok()) return value.status().ToString();
    if (value->content == expected || Context::Clock::now() > give_up) return value->content;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Two nodes, each a process behind its own mount.
TEST(SharedFolder, NoSwapOfTwoProcessesIsLost) {
  constexpr int kTimes = 10;
  for (auto* open : {OpenFileRef, OpenDirRef}) {
    std::vector<std::string> folders = NewFolder();
    ASSERT_TRUE(open(folders.front())->Swap("", AsBytes("0"), Context()).ok());
    std::vector<std::unique_ptr<ChildProcess>> nodes;
    for (size_t i = 0; i < 2; ++i)
      nodes.push_back(std::make_unique<ChildProcess>(
          [&, i] { return Count(open(folders[i % folders.size()]).get(), kTimes); }));
    for (auto& node : nodes) EXPECT_EQ(node->Wait(), 0);
    for (const std::string& folder : folders)
      EXPECT_EQ(LastContent(open(folder).get(), std::to_string(2 * kTimes)),
                std::to_string(2 * kTimes));
  }
}

// What one node has replaced, another one sees; the old content never comes back.
TEST(SharedFolder, ASwapIsSeenByTheOtherMountAtOnce) {
  std::vector<std::string> folders = NewFolder();
  for (auto* open : {OpenFileRef, OpenDirRef}) {
    std::string version;
    for (int i = 0; i < 6; ++i) {
      auto writer = open(folders[i % folders.size()]);
      auto next = writer->Swap(version, AsBytes(std::to_string(i)), Context());
      ASSERT_TRUE(next.ok()) << next.status().ToString();
      version = *next;
      for (const std::string& folder : folders) {
        auto value = open(folder)->Read(Context());
        ASSERT_TRUE(value.ok()) << value.status().ToString();
        EXPECT_EQ(value->content, std::to_string(i)) << folder;
        EXPECT_EQ(value->version, version) << folder;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::object
