#include "headrace/checkpoint/chunk_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/keyed_random.h"

namespace headrace::checkpoint {
namespace {

constexpr Hash128 kName{7, 9};

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  KeyedRandom random(size);
  for (char& c : bytes) c = static_cast<char>(random.Next());
  return bytes;
}

ChunkSums SumsOf(std::string_view bytes, size_t piece = SIZE_MAX) {
  ChunkSums::Builder builder;
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view part = bytes.substr(at, piece);
    builder.Append(AsBytes(part));
    at += part.size();
  }
  return builder.Finish(kName);
}

TEST(ChunkSums, OfFilesOfAllKindsOfSizes) {
  for (size_t size : {0, 1, 65535, 65536, 65537, 200000}) {
    const std::string bytes = RandomBytes(size);
    const ChunkSums sums = SumsOf(bytes, 1000);
    EXPECT_EQ(sums.file_bytes(), size);
    EXPECT_EQ(sums.num_chunks(), (size + 65535) / 65536);
    EXPECT_EQ(sums.WholeFile(), Crc32c(AsBytes(bytes)));
    EXPECT_TRUE(sums.Check(0, AsBytes(bytes), "f").ok());
    const std::string coded = sums.Encode();
    EXPECT_EQ(coded.size(), ChunkSumsBytes(size));
    auto read = ChunkSums::Decode(AsBytes(coded), kName, "f.crc");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->Encode(), coded);
  }
}

TEST(ChunkSums, NoticesEachFlippedBit) {
  std::string bytes = RandomBytes(150000);
  const ChunkSums sums = SumsOf(bytes);
  for (size_t at : {0, 65535, 65536, 131071, 131072, 149999}) {
    bytes[at] ^= 4;
    const Status status = sums.Check(0, AsBytes(bytes), "f");
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_EQ(status.location().offset, at / 65536 * 65536);
    bytes[at] ^= 4;
  }
  EXPECT_TRUE(sums.Check(65536, AsBytes(bytes).subspan(65536, 65536), "f").ok());
  EXPECT_TRUE(sums.Check(131072, AsBytes(bytes).subspan(131072), "f").ok());
}

TEST(ChunkSums, RefusesPartsOfChunks) {
  const std::string bytes = RandomBytes(150000);
  const ChunkSums sums = SumsOf(bytes);
  EXPECT_EQ(sums.Check(1, AsBytes(bytes).subspan(1, 65535), "f").code(), Code::kInvalidArgument);
  EXPECT_EQ(sums.Check(0, AsBytes(bytes).first(65535), "f").code(), Code::kInvalidArgument);
  EXPECT_EQ(sums.Check(65536, AsBytes(bytes), "f").code(), Code::kInvalidArgument);
  EXPECT_EQ(sums.Check(UINT64_MAX / 65536 * 65536, AsBytes(bytes), "f").code(),
            Code::kInvalidArgument);
}

TEST(ChunkSums, CoverIsTheLeastOfWholeChunks) {
  const ChunkSums sums = SumsOf(RandomBytes(150000));
  auto cover = [&sums](uint64_t offset, uint64_t bytes) {
    const auto c = sums.CoverOf(offset, bytes);
    return std::make_pair(c.offset, c.bytes);
  };
  EXPECT_EQ(cover(0, 1), std::make_pair(uint64_t{0}, uint64_t{65536}));
  EXPECT_EQ(cover(65535, 2), std::make_pair(uint64_t{0}, uint64_t{131072}));
  EXPECT_EQ(cover(65536, 65536), std::make_pair(uint64_t{65536}, uint64_t{65536}));
  EXPECT_EQ(cover(140000, 1), std::make_pair(uint64_t{131072}, uint64_t{18928}));
}

TEST(ChunkSums, ADamagedFileIsRefused) {
  const std::string coded = SumsOf(RandomBytes(70000)).Encode();
  for (size_t bit = 0; bit < coded.size() * 8; ++bit) {
    std::string wrong = coded;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(ChunkSums::Decode(AsBytes(wrong), kName, "f.crc").status().code(), Code::kDataLoss);
  }
  for (size_t size = 0; size < coded.size(); ++size)
    EXPECT_EQ(ChunkSums::Decode(AsBytes(coded).first(size), kName, "f.crc").status().code(),
              Code::kDataLoss);
  EXPECT_EQ(ChunkSums::Decode(AsBytes(coded), Hash128{7, 8}, "f.crc").status().code(),
            Code::kDataLoss);
}

TEST(ChunkSums, ANewerVersionIsRefusedAsSuch) {
  std::string coded = SumsOf("abc").Encode();
  StoreLittle<uint32_t>(&coded[8], 2);
  StoreLittle<uint32_t>(&coded[coded.size() - 4], Crc32c(AsBytes(coded).first(coded.size() - 4)));
  EXPECT_EQ(ChunkSums::Decode(AsBytes(coded), kName, "f.crc").status().code(),
            Code::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace::checkpoint
