#include "headrace/checkpoint/memory_files.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "headrace/checkpoint/memory_index.h"
#include "headrace/checkpoint/testing/random_state.h"

namespace headrace::checkpoint {
namespace {

TEST(MemoryFilesTest, AnyPartOfAFileIsThatOfItsPartsBehindEachOther) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<Bytes> parts;
    std::vector<std::byte> whole;
    for (size_t i = 0; i < random() % 6; ++i) {
      memory.push_back(RandomBytes(random() % 40, &random));
      whole.insert(whole.end(), memory.back().begin(), memory.back().end());
    }
    for (const auto& part : memory) parts.push_back(part);
    MemoryFiles files({});
    ASSERT_TRUE(files.Write("a", parts, {}).ok());
    memory.clear();  // nothing was kept: all of it was copied
    auto file = files.Open("a", whole.size(), {});
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    for (int read = 0; read < 20; ++read) {
      const size_t from = random() % (whole.size() + 1);
      const size_t bytes = random() % (whole.size() - from + 1);
      std::vector<std::byte> out(bytes);
      ASSERT_TRUE((*file)->Read(from, out, {}).ok());
      EXPECT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + static_cast<long>(from)));
    }
    std::vector<std::byte> more(whole.size() + 1);
    EXPECT_EQ((*file)->Read(0, more, {}).code(), Code::kDataLoss);
  }
}

TEST(MemoryFilesTest, WhatLiesInTheArenaIsNotCopied) {
  std::vector<std::byte> arena(100);
  MemoryFiles files(arena);
  const std::string header = "header";
  const std::vector<Bytes> parts{AsBytes(header), Bytes(arena).subspan(10, 20)};
  ASSERT_TRUE(files.Write("data/x.safetensors", parts, {}).ok());
  EXPECT_FALSE(files.Write("data/x.safetensors", parts, {}).value());
  auto file = files.PartsOf("data/x.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->bytes, 26u);
  EXPECT_NE(file->parts[0].data(), AsBytes(header).data());
  EXPECT_EQ(file->parts[1].data(), arena.data() + 10);
  EXPECT_EQ(files.Open("data/y.safetensors", 1, {}).status().code(), Code::kNotFound);
  EXPECT_EQ(files.Open("data/x.safetensors", 25, {}).status().code(), Code::kDataLoss);
}

class MemoryIndexTest : public ::testing::Test {
 protected:
  MemoryIndexTest() : arena_(200) {
    std::mt19937_64 random(2);
    arena_ = RandomBytes(200, &random);
    auto save = std::make_shared<KeptSave>();
    save->files = std::make_unique<MemoryFiles>(arena_);
    const std::string header = "header";
    const std::vector<Bytes> parts{AsBytes(header), Bytes(arena_).subspan(64, 100)};
    EXPECT_TRUE(save->files->Write("data/x.safetensors", parts, {}).ok());
    save->manifest = "the manifest";
    save->entry.id = {5, 2, 1};
    save->entry.data_bytes = 100;
    saves_.push_back(save);
    auto index = WriteMemoryIndex(saves_, arena_);
    EXPECT_TRUE(index.ok()) << index.status().ToString();
    index_ = *index;
  }

  std::vector<std::byte> arena_;
  std::vector<std::shared_ptr<const KeptSave>> saves_;
  std::string index_;
};

TEST_F(MemoryIndexTest, TellsWhatIsThere) {
  auto content = ReadMemoryIndex(AsBytes(index_), arena_);
  ASSERT_TRUE(content.ok()) << content.status().ToString();
  ASSERT_EQ(content->checkpoints.size(), 1u);
  EXPECT_EQ(content->checkpoints[0].entry.id, (SaveId{5, 2, 1}));
  EXPECT_EQ(content->checkpoints[0].manifest, "the manifest");
  auto file = content->files->Open("data/x.safetensors", 106, {});
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  std::vector<std::byte> out(106);
  ASSERT_TRUE((*file)->Read(0, out, {}).ok());
  EXPECT_EQ(AsText(Bytes(out).first(6)), "header");
  EXPECT_TRUE(std::equal(out.begin() + 6, out.end(), arena_.begin() + 64));
}

TEST_F(MemoryIndexTest, WhatIsDamagedIsRefusedOrStaysInside) {
  for (size_t bytes = 0; bytes < index_.size(); ++bytes)
    EXPECT_FALSE(ReadMemoryIndex(AsBytes(std::string_view(index_).substr(0, bytes)), arena_).ok());
  for (size_t i = 0; i < index_.size(); ++i) {
    for (char change : {'\x01', '\x08', '\x40'}) {
      std::string damaged = index_;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      (void)ReadMemoryIndex(AsBytes(damaged), arena_);  // the sanitizer sees what reads outside
    }
  }
  EXPECT_FALSE(ReadMemoryIndex(AsBytes(index_), Bytes(arena_).first(100)).ok());
}

}  // namespace
}  // namespace headrace::checkpoint
