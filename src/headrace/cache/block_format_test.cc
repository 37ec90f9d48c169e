#include "headrace/cache/block_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "headrace/base/crc32c.h"
#include "headrace/env/file.h"

namespace headrace::cache {
namespace {

ObjectId SomeObject() { return IdentifyObject({"s3://b", "a/b", "etag", 1000}, kPageBytes); }

TEST(BlockFormat, AnObjectIsNamedByAllThatMakesItsBytes) {
  ObjectVersion version{"s3://b", "key", "etag", 1000};
  std::set<std::string> names = {IdentifyObject(version, kPageBytes).Hex()};
  for (const ObjectVersion& other :
       {ObjectVersion{"s3://c", "key", "etag", 1000}, ObjectVersion{"s3://b", "kez", "etag", 1000},
        ObjectVersion{"s3://b", "key", "etah", 1000}, ObjectVersion{"s3://b", "key", "etag", 1001},
        // No boundary between the texts can be moved.
        ObjectVersion{"s3://bk", "ey", "etag", 1000}, ObjectVersion{"s3://b", "keye", "tag", 1000}})
    EXPECT_TRUE(names.insert(IdentifyObject(other, kPageBytes).Hex()).second) << other.key;
  EXPECT_TRUE(names.insert(IdentifyObject(version, 2 * kPageBytes).Hex()).second);
  // Part of the format: what an earlier program has cached is found.
  EXPECT_EQ(IdentifyObject(version, kPageBytes).Hex().size(), 32u);
  EXPECT_EQ(*ObjectId::FromHex(SomeObject().Hex()), SomeObject());
}

TEST(BlockFormat, NamesAreReadBackAndNothingElseIs) {
  BlockId id{SomeObject(), 0x1234567890, 77};
  for (BlockFileKind kind :
       {BlockFileKind::kBlock, BlockFileKind::kTemporary, BlockFileKind::kLock}) {
    auto parsed = ParseBlockFileName(BlockFileName(id, kind));
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->id, id);
    EXPECT_EQ(parsed->kind, kind);
  }
  std::string good = BlockFileName(id, BlockFileKind::kBlock), hex = SomeObject().Hex();
  for (const std::string& bad :
       {std::string(), std::string(".blk"), hex + ".blk", hex + "-1.blk", hex + "--1.blk",
        hex + "-1-.blk", hex + "-1-0.blk", hex + "-01-1.blk", hex + "-1-01.blk", hex + "-1-G.blk",
        hex + "-1-1", hex + "-1-1.BLK", hex + "-1-10000001.blk", hex + "-1-1-1.blk",
        hex + "-11111111111111111-1.blk", "../" + good, good + "\n", " " + good,
        std::string(hex).replace(0, 1, "A") + "-1-1.blk"})
    EXPECT_EQ(ParseBlockFileName(bad).status().code(), Code::kInvalidArgument) << bad;
}

TEST(BlockFormat, BlocksCoverAnObject) {
  ObjectId object = SomeObject();
  EXPECT_EQ(BlockOf(object, 2 * kPageBytes + 1, kPageBytes, 0).length, kPageBytes);
  EXPECT_EQ(BlockOf(object, 2 * kPageBytes + 1, kPageBytes, 2).length, 1u);
  EXPECT_EQ(BlockCost(1), 8192u);
  EXPECT_EQ(BlockCost(4 << 20), (4u << 20) + 4096);
  EXPECT_EQ(BlockHeaderBytes(kMaxBlockBytes) % kHeaderAlignment, 0u);
}

TEST(BlockFormat, HeadersAreReadBack) {
  for (uint32_t length : {1u, 4095u, kPageBytes, kPageBytes + 1, 3 * kPageBytes, 80u << 20}) {
    std::string data(length, 'x');
    data.back() = 'y';
    BlockId id{SomeObject(), 9, length};
    std::string bytes = EncodeBlockHeader(id, AsBytes(data));
    ASSERT_EQ(bytes.size(), BlockHeaderBytes(length));
    auto header = ParseBlockHeader(AsBytes(bytes));
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->id, id);
    ASSERT_EQ(header->page_checksums.size(), (length + kPageBytes - 1) / kPageBytes);
    size_t last = (header->page_checksums.size() - 1) * kPageBytes;
    EXPECT_EQ(header->page_checksums.back(), Crc32c(AsBytes(data).subspan(last)));
  }
}

TEST(BlockFormat, AFlippedBitOrACutOfAHeaderIsFound) {
  std::string data(3 * kPageBytes, 'x');
  std::string good =
      EncodeBlockHeader({SomeObject(), 9, static_cast<uint32_t>(data.size())}, AsBytes(data));
  constexpr size_t kUsed = 64 + 4 * 3 + 4;
  for (size_t bit = 0; bit < kUsed * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(ParseBlockHeader(AsBytes(bad)).status().code(), Code::kDataLoss) << bit;
  }
  for (size_t size : {size_t{0}, size_t{7}, size_t{64}, good.size() - 1})
    EXPECT_EQ(ParseBlockHeader(AsBytes(good).first(size)).status().code(), Code::kDataLoss);
}

TEST(BlockFormat, DescriptorsHoldAnyKey) {
  ObjectDescriptor descriptor{{"s3://b", std::string("/a//../\0\xff~ %\n", 12), "e\"tag", 1 << 20},
                              kPageBytes};
  auto back = ParseDescriptor(EncodeDescriptor(descriptor));
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->version.key, descriptor.version.key);
  EXPECT_EQ(back->version.etag, descriptor.version.etag);
  EXPECT_EQ(back->version.store, "s3://b");
  EXPECT_EQ(back->version.size_bytes, 1u << 20);
  EXPECT_EQ(back->block_bytes, kPageBytes);
  for (std::string_view bad : {"", "{", "[]", "{}", "{\"headrace_cached_object\": 2}",
                               "{\"headrace_cached_object\": 1, \"store\": 3}"})
    EXPECT_EQ(ParseDescriptor(bad).status().code(), Code::kDataLoss) << bad;
}

TEST(BlockFormat, BlockSizesAreChecked) {
  EXPECT_TRUE(CheckBlockBytes(kPageBytes).ok());
  EXPECT_TRUE(CheckBlockBytes(kMaxBlockBytes).ok());
  for (uint64_t bad : {uint64_t{0}, uint64_t{1}, uint64_t{kPageBytes} + 1,
                       uint64_t{kMaxBlockBytes} + kPageBytes, UINT64_MAX})
    EXPECT_EQ(CheckBlockBytes(bad).code(), Code::kInvalidArgument) << bad;
}

// A block file written by an earlier program (tests/compat/cache/make_golden.py).
TEST(BlockFormat, TheGoldenBlockIsReadAndWrittenAlike) {
  const std::string folder = HEADRACE_GOLDEN_DIR;
  const std::string path = JoinPath(folder, "8d7a0d2b0e3c1f5a6b7c8d9e0f102132-5-12345.blk");
  auto golden = PosixFileSystem()->ReadWhole(path, 1 << 20);
  ASSERT_TRUE(golden.ok()) << golden.status().ToString();
  auto name = ParseBlockFileName(BaseName(path));
  ASSERT_TRUE(name.ok());
  auto header = ParseBlockHeader(AsBytes(*golden));
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->id, name->id);
  Bytes data = AsBytes(*golden).subspan(BlockHeaderBytes(name->id.length));
  EXPECT_EQ(data.size(), name->id.length);
  EXPECT_EQ(EncodeBlockHeader(name->id, data), golden->substr(0, golden->size() - data.size()));
  auto identity = PosixFileSystem()->ReadWhole(JoinPath(folder, "identity.txt"), 100);
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(IdentifyObject({"s3://bucket", "train/000.tar", "abc", 123456}, 4 << 20).Hex() + "\n",
            *identity);
}

}  // namespace
}  // namespace headrace::cache
