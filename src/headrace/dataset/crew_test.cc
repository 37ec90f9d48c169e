#include "headrace/dataset/crew.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

namespace headrace::dataset {
namespace {

TEST(CrewTest, EachPieceIsTakenOnce) {
  for (uint64_t threads : {1, 3, 0}) {
    Crew crew("hr-test", threads, 1000);
    std::vector<std::atomic<int>> taken(1000);
    EXPECT_TRUE(crew.Run([&] {
                      while (auto piece = crew.Take()) taken[*piece].fetch_add(1);
                      return OkStatus();
                    })
                    .ok());
    for (auto& count : taken) EXPECT_EQ(count.load(), 1);
    EXPECT_FALSE(crew.stop().load());
  }
}

TEST(CrewTest, NoMoreThreadsThanPieces) {
  Crew crew("hr-test", 8, 2);
  std::atomic<int> calls{0};
  EXPECT_TRUE(crew.Run([&] { return calls.fetch_add(1), OkStatus(); }).ok());
  EXPECT_LE(calls.load(), 2);
  EXPECT_GE(calls.load(), 1);
}

TEST(CrewTest, NoPiecesIsNoWork) {
  Crew crew("hr-test", 8, 0);
  EXPECT_TRUE(crew.Run([&] {
                    EXPECT_FALSE(crew.Take().has_value());
                    return OkStatus();
                  })
                  .ok());
}

TEST(CrewTest, TheFirstFailureStopsAllAndIsReturned) {
  Crew crew("hr-test", 4, 1000);
  Status status = crew.Run([&]() -> Status {
    while (auto piece = crew.Take())
      if (*piece == 10) return Status(Code::kDataLoss, "piece 10");
    return OkStatus();
  });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_TRUE(crew.stop().load());
  EXPECT_FALSE(crew.Take().has_value());
}

TEST(CrewTest, RunningOutOfMemoryIsAFailure) {
  Crew crew("hr-test", 2, 10);
  Status status = crew.Run([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find("--threads"), std::string::npos);
}

}  // namespace
}  // namespace headrace::dataset
