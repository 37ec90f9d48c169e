#include "headrace/checkpoint/pieces.h"

#include <gtest/gtest.h>

#include "headrace/checkpoint/testing/grid.h"

namespace headrace::checkpoint {
namespace {

std::vector<Box> PiecesOf(const std::vector<uint64_t>& shape, DType dtype, uint64_t bytes) {
  std::vector<Box> boxes;
  EXPECT_TRUE(ForEachPiece(shape, dtype, bytes, [&](const Box& box) {
                boxes.push_back(box);
                return OkStatus();
              }).ok());
  return boxes;
}

TEST(Pieces, FollowOneAnotherInRowMajorOrderWhateverTheShape) {
  const std::vector<std::vector<uint64_t>> shapes = {
      {}, {1}, {7}, {2, 3}, {3, 1, 5}, {2, 3, 4, 5}, {1, 64}, {64, 1}, {5, 7, 1, 1}};
  for (const auto& shape : shapes) {
    for (uint64_t bytes : {1u, 4u, 8u, 12u, 40u, 100u, 100000u}) {
      std::vector<uint64_t> places;
      for (const Box& box : PiecesOf(shape, DType::kF32, bytes)) {
        for (uint64_t place : PlacesIn(shape, box)) places.push_back(place);
        EXPECT_LE(*Volume(box.length) * 4, std::max<uint64_t>(bytes, 4));
      }
      EXPECT_EQ(places, PlacesIn(shape, Box::Whole(shape)));
    }
  }
}

TEST(Pieces, OfTypesBelowAByteAreWholeBytes) {
  for (const auto& shape : std::vector<std::vector<uint64_t>>{{48}, {16, 3}, {24, 1, 5}}) {
    for (DType dtype : {DType::kF4, DType::kF6E2M3}) {
      uint64_t bytes = 0;
      for (const Box& box : PiecesOf(shape, dtype, 1)) {
        auto piece = BytesOf(dtype, *Volume(box.length));
        ASSERT_TRUE(piece.has_value());
        bytes += *piece;
      }
      EXPECT_EQ(bytes, *BytesOf(dtype, *Volume(shape)));
    }
  }
}

TEST(Pieces, ThereAreNoneWithoutElements) {
  EXPECT_TRUE(PiecesOf({0}, DType::kF32, 100).empty());
  EXPECT_TRUE(PiecesOf({5, 0, 3}, DType::kF32, 100).empty());
}

TEST(Pieces, StopAtTheFirstFailure) {
  int visits = 0;
  const std::vector<uint64_t> shape = {10};
  Status status = ForEachPiece(shape, DType::kU8, 1, [&](const Box&) {
    return ++visits == 3 ? Status(Code::kCancelled, "enough") : OkStatus();
  });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(visits, 3);
}

}  // namespace
}  // namespace headrace::checkpoint
