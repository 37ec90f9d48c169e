// What reading does to the process: allocations, open files, fork. In a program of its own, since
// it counts every allocation.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "headrace/base/keyed_random.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/temporary_directory.h"

// Sanitizers bring their own operator new and need more memory than a limit would leave.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HR_SANITIZED 1
#endif
#endif

namespace {
thread_local uint64_t allocations = 0;  // of this thread
}

#ifndef HR_SANITIZED
// Not inlined: the compiler would take the pairs apart and warn of a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace headrace::dataset {
namespace {

FileSystem* Fs() { return PosixFileSystem(); }

void MakeShards(const std::string& folder, int shards, size_t samples) {
  for (int i = 0; i < shards; ++i)
    Put(Fs(), fmt::format("{}/{:03}.tar", folder, i),
        MakeTar(MakeSamples(fmt::format("{:03}/", i), samples, 2000)));
}

void Index(const std::string& folder, bool checksums) {
  IndexOptions options;
  options.build.checksums = checksums;
  auto report = IndexDataset(Fs(), std::vector<std::string>{folder}, options, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
}

std::shared_ptr<const Dataset> Open(const std::string& path) {
  auto dataset = Dataset::Open(Fs(), path, OpenOptions());
  EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
  return *dataset;
}

// Reads `count` samples in a mixed order; returns how many failed.
uint64_t ReadMixed(SampleReader* reader, uint64_t num_samples, uint64_t count, uint64_t seed) {
  KeyedRandom random(seed);
  uint64_t failed = 0;
  for (uint64_t i = 0; i < count; ++i) {
    auto view = reader->Read(random.NextBelow(num_samples), {}, Context());
    failed += !view.ok() || view->fields.size() < 2;
  }
  return failed;
}

void ExpectNoAllocations(const std::string& path) {
  auto dataset = Open(path);
  auto reader = SampleReader::Create(dataset, ReadOptions());
  const uint64_t n = dataset->num_samples();
  for (uint64_t i = 0; i < n; ++i) ASSERT_TRUE(reader->Read(i, {}, Context()).ok());
  uint64_t before = allocations;
  EXPECT_EQ(ReadMixed(reader.get(), n, 2000, 1), 0u);
  EXPECT_EQ(allocations - before, 0u) << path;
  EXPECT_GT(reader->memory_bytes(), 2000u);
  EXPECT_LT(reader->memory_bytes(), 1u << 20);
}

TEST(DatasetProcess, ReadingAllocatesNothingInSteadyState) {
#ifdef HR_SANITIZED
  GTEST_SKIP() << "allocations are not counted under sanitizers";
#endif
  TemporaryDirectory root;
  MakeShards(root / "checked", 3, 20);
  Index(root / "checked", true);
  ExpectNoAllocations(root / "checked");
  MakeShards(root / "learned", 3, 20);
  Index(root / "learned", false);
  ExpectNoAllocations(root / "learned");
  for (int i = 0; i < 40; ++i)
    Put(Fs(), root / fmt::format("folder/{}/a-rather-long-name-of-a-file-{:04}.jpg", i % 2, i),
        std::string(2500, 'x'));
  ExpectNoAllocations(root / "folder");
}

TEST(DatasetProcess, WorksWithAFewDescriptors) {
  TemporaryDirectory root;
  MakeShards(root / "d", 120, 2);
  Index(root / "d", true);
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
  rlimit tight = old_limit;
  tight.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  auto dataset = Open(root / "d");
  std::vector<std::thread> threads;
  std::atomic<uint64_t> failed{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto reader = SampleReader::Create(dataset, ReadOptions());
      failed += ReadMixed(reader.get(), dataset->num_samples(), 2000, t);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0u);
  EXPECT_LE(NumOpenFiles().value(), 64u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
  dataset.reset();
}

TEST(DatasetProcess, DescriptorsAreGoneAfterTheDataset) {
  TemporaryDirectory root;
  MakeShards(root / "d", 10, 2);
  Index(root / "d", false);
  uint64_t before = NumOpenFiles().value();
  for (int i = 0; i < 3; ++i) {
    auto dataset = Open(root / "d");
    auto reader = SampleReader::Create(dataset, ReadOptions());
    EXPECT_EQ(ReadMixed(reader.get(), dataset->num_samples(), 100, 1), 0u);
    EXPECT_EQ(NumOpenFiles().value(), before + 10);
  }
  EXPECT_EQ(NumOpenFiles().value(), before);
}

// Another thread is in the middle of reads, and of the table of files, when the process forks.
TEST(DatasetProcess, ChildrenOfForkCanRead) {
  TemporaryDirectory root;
  MakeShards(root / "d", 40, 3);
  Index(root / "d", false);
  OpenOptions options;
  options.max_open_files = 4;  // so that the table changes all the time
  auto dataset = Dataset::Open(Fs(), root / "d", options).value();
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    auto reader = SampleReader::Create(dataset, ReadOptions());
    while (!stop) ReadMixed(reader.get(), dataset->num_samples(), 50, 7);
  });
  auto reader = SampleReader::Create(dataset, ReadOptions());
  for (int i = 0; i < 100; ++i) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(240);
      _exit(ReadMixed(reader.get(), dataset->num_samples(), 60, static_cast<uint64_t>(i)) == 0 ? 0
                                                                                               : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "child " << i;
  }
  stop = true;
  busy.join();
}

TEST(DatasetProcess, NoMemoryIsAnError) {
#ifdef HR_SANITIZED
  GTEST_SKIP() << "sanitizers cannot live with a memory limit";
#endif
  TemporaryDirectory root;
  Put(Fs(), root / "d/0.tar", MakeTar({{"a.jpg", std::string(64 << 20, 'x')}, {"a.cls", "1"}}));
  Index(root / "d", false);
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto dataset = Dataset::Open(Fs(), root / "d", OpenOptions());
    auto reader = SampleReader::Create(*dataset, ReadOptions());
    if (!reader->Locate(0).ok()) _exit(1);
    rlimit tight{uint64_t{48} << 20, uint64_t{48} << 20};
    if (setrlimit(RLIMIT_AS, &tight) != 0) _exit(2);
    Status status = reader->Read(0, {}, Context()).status();
    _exit(status.code() == Code::kResourceExhausted ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace::dataset
