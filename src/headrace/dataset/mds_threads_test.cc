// Compressed MDS shards that several threads read at once.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "headrace/dataset/dataset.h"
#include "headrace/dataset/testing/dump.h"
#include "headrace/dataset/testing/mds_folder.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::dataset {
namespace {

TEST(MdsThreads, ShareWhatIsUnpacked) {
  const std::vector<MdsTestColumn> columns = {{"image", "jpeg"}, {"label", "int", 8}};
  MemoryFileSystem fs;
  MdsFolder plain(&fs, "/plain", columns), packed(&fs, "/packed", columns);
  for (int shard = 0; shard < 5; ++shard) {
    MdsFolder::Rows rows;
    for (int i = 10 * shard; i < 10 * shard + 10; ++i)
      rows.push_back({fmt::format("picture {}", i), std::string(8, static_cast<char>(i))});
    plain.Add(rows);
    packed.Add(rows, "zstd");
  }
  const auto expected = ReadAll(Dataset::Open(&fs, "/plain", {}).value());
  ASSERT_EQ(expected.size(), 50u);
  OpenOptions options;
  options.max_unpacked_bytes = 1100;  // not all of them
  const auto dataset = Dataset::Open(&fs, "/packed", options).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(ReadAll(dataset), expected);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace headrace::dataset
