#include "headrace/env/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/child_process.h"

namespace headrace {
namespace {

TEST(SharedMemory, IsZeroAndRoundedToPages) {
  auto memory = SharedMemory::Create("headrace-test", 5000);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  auto bytes = (*memory)->bytes();
  EXPECT_EQ(bytes.size() % static_cast<size_t>(::sysconf(_SC_PAGESIZE)), 0u);
  EXPECT_GE(bytes.size(), 5000u);
  for (std::byte b : bytes) ASSERT_EQ(b, std::byte{0});
}

TEST(SharedMemory, TouchKeepsTheContent) {
  for (int threads : {1, 3}) {
    auto memory = SharedMemory::Create("headrace-test", uint64_t{150} << 20);
    ASSERT_TRUE(memory.ok());
    auto bytes = (*memory)->bytes();
    for (size_t i = 0; i < bytes.size(); i += 999'983) bytes[i] = std::byte(i % 251);
    ASSERT_TRUE((*memory)->Touch(threads).ok());
    for (size_t i = 0; i < bytes.size(); i += 999'983) ASSERT_EQ(bytes[i], std::byte(i % 251));
  }
}

TEST(SharedMemory, IsSharedWithAForkedChild) {
  auto memory = SharedMemory::Create("headrace-test", 4096);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(ExitOfChild([&] {
              (*memory)->bytes()[7] = std::byte{42};
              return 0;
            }),
            0);
  EXPECT_EQ((*memory)->bytes()[7], std::byte{42});
}

TEST(SharedMemory, AdoptsWhatAnotherMadeAndNothingElse) {
  auto memory = SharedMemory::Create("headrace-test", 4096);
  ASSERT_TRUE(memory.ok());
  (*memory)->bytes()[1] = std::byte{9};
  auto adopted = SharedMemory::Adopt(::dup((*memory)->descriptor()));
  ASSERT_TRUE(adopted.ok()) << adopted.status().ToString();
  memory->reset();
  EXPECT_EQ((*adopted)->bytes()[1], std::byte{9});

  uint64_t open = *NumOpenFiles();
  int unsealed = ::memfd_create("headrace-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(unsealed, 4096), 0);
  EXPECT_EQ(SharedMemory::Adopt(unsealed).status().code(), Code::kInvalidArgument);
  int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(SharedMemory::Adopt(file).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Adopt(-1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*NumOpenFiles(), open);
}

TEST(SharedMemory, RefusesWhatIsTooLarge) {
  EXPECT_EQ(SharedMemory::Create("headrace-test", 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Create("headrace-test", UINT64_MAX).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(SharedMemory::Create(std::string("a\0b", 3), 1).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ExitOfChild([] {
              rlimit limit{1 << 20, 1 << 20};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              ::signal(SIGXFSZ, SIG_IGN);
              auto memory = SharedMemory::Create("headrace-test", 64 << 20);
              return memory.ok() ? 2 : 0;
            }),
            0);
}

TEST(SharedMemory, LeavesNoDescriptorBehind) {
  uint64_t open = *NumOpenFiles();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(SharedMemory::Create("headrace-test", 1).ok());
  EXPECT_EQ(*NumOpenFiles(), open);
}

}  // namespace
}  // namespace headrace
