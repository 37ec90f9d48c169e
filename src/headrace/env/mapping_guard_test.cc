// Mapped files whose pages go away. A file that is cut does that without a mount that vanishes.
#include "headrace/env/mapping_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "headrace/env/file.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 1 << 16;

class MappingGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_->WriteAtomically(path_, AsBytes(std::string(kBytes, 'x'))).ok());
  }
  void Cut() { ASSERT_EQ(::truncate(path_.c_str(), 0), 0); }

  FileSystem* const files_ = PosixFileSystem();
  TemporaryDirectory dir_;
  const std::string path_ = dir_ / "file";
};

TEST_F(MappingGuardTest, AMappedFileThatWentAwayIsAnError) {
  auto file = files_->Map(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->bytes()[100], std::byte{'x'});
  EXPECT_TRUE((*file)->Check().ok());
  Cut();
  EXPECT_EQ((*file)->bytes()[100], std::byte{0});
  EXPECT_EQ((*file)->bytes()[kBytes - 1], std::byte{0});
  Status gone = (*file)->Check();
  EXPECT_EQ(gone.code(), Code::kIoError);
  EXPECT_THAT(gone.ToString(), HasSubstr(path_));
}

TEST_F(MappingGuardTest, OtherMappingsAreNotTouched) {
  ASSERT_TRUE(files_->WriteAtomically(dir_ / "other", AsBytes(std::string(kBytes, 'y'))).ok());
  std::vector<std::unique_ptr<MappedFile>> others;
  for (int i = 0; i < 300; ++i) others.push_back(*files_->Map(dir_ / "other"));  // several blocks
  auto file = *files_->Map(path_);
  others.erase(others.begin(), others.begin() + 100);
  Cut();
  EXPECT_EQ(file->bytes()[0], std::byte{0});
  EXPECT_FALSE(file->Check().ok());
  for (const auto& other : others) {
    EXPECT_EQ(other->bytes()[0], std::byte{'y'});
    EXPECT_TRUE(other->Check().ok());
  }
  // Nor is the next one in its place.
  file.reset();
  file = *files_->Map(dir_ / "other");
  EXPECT_TRUE(file->Check().ok());
}

TEST_F(MappingGuardTest, SharedWordsThatWentAwayAreAnError) {
  auto words = files_->OpenSharedWords(dir_ / "words", 2048);
  ASSERT_TRUE(words.ok());
  (*words)->Store(7, 42);
  EXPECT_TRUE((*words)->Check().ok());
  ASSERT_EQ(::truncate((dir_ / "words").c_str(), 0), 0);
  EXPECT_EQ((*words)->Load(7), 0u);
  (*words)->Store(7, 43);
  EXPECT_EQ((*words)->Add(7, 1), 44u) << "of this process alone";
  EXPECT_EQ((*words)->Check().code(), Code::kIoError);
}

TEST_F(MappingGuardTest, AForkedChildIsGuardedToo) {
  auto file = *files_->Map(path_);
  EXPECT_EQ(ExitOfChild([&] {
              if (::truncate(path_.c_str(), 0) != 0) return 1;
              if (file->bytes()[0] != std::byte{0}) return 2;
              return file->Check().ok() ? 3 : 0;
            }),
            0);
}

// Faults and signals that are none of ours.
void FaultElsewhere(const std::string& path) {
  auto file = *PosixFileSystem()->OpenForRead(path);
  auto* start = static_cast<volatile char*>(
      ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file->descriptor(), 0));
  if (::truncate(path.c_str(), 0) == 0) (void)start[0];
}

using MappingGuardDeathTest = MappingGuardTest;

TEST_F(MappingGuardDeathTest, OtherFaultsEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);  // a sanitizer's own handler would report and exit
        auto guarded = *PosixFileSystem()->Map(path_);
        FaultElsewhere(path_);
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        auto guarded = *PosixFileSystem()->Map(path_);
        ::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

// A handler that was there before, or came after, is called with the faults of others only.
TEST_F(MappingGuardDeathTest, OtherFaultsGoToTheHandlerBefore) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { ::_exit(42); });
        auto guarded = *PosixFileSystem()->Map(path_);
        if (::truncate(path_.c_str(), 0) != 0 || guarded->bytes()[0] != std::byte{0}) ::_exit(1);
        (void)PosixFileSystem()->WriteAtomically(path_, AsBytes(std::string(kBytes, 'x')));
        FaultElsewhere(path_);
      },
      ::testing::ExitedWithCode(42), "");
}

// As Python's faulthandler does: it restores what was there before and raises the signal again.
struct sigaction restored;
TEST_F(MappingGuardDeathTest, AHandlerThatRaisesAgainEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        auto guarded = *PosixFileSystem()->Map(path_);
        struct sigaction theirs{};
        theirs.sa_handler = [](int signal) {
          ::sigaction(signal, &restored, nullptr);
          ::raise(signal);
        };
        theirs.sa_flags = SA_NODEFER;
        ::sigaction(SIGBUS, &theirs, &restored);
        auto again = *PosixFileSystem()->Map(path_);  // ours is the first once more
        FaultElsewhere(path_);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace headrace
