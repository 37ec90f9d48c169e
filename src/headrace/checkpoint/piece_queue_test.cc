#include "headrace/checkpoint/piece_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <utility>

namespace headrace::checkpoint {
namespace {

using Kind = PieceQueue::Turn::Kind;

class PieceQueueTest : public ::testing::Test {
 protected:
  // What there is to do now; kCancelled when there is nothing.
  Result<PieceQueue::Turn> Now(PieceQueue* queue) {
    Context ctx;
    ctx.cancelled = &always_;
    return queue->Take(ctx);
  }
  const std::atomic<bool> always_{true};
};

TEST_F(PieceQueueTest, BoundsWhatIsUnderWayAndChecksFirst) {
  PieceQueue queue(3, 2);
  for (size_t piece : {0, 1}) {
    auto turn = Now(&queue);
    ASSERT_TRUE(turn.ok());
    EXPECT_EQ(turn->kind, Kind::kRead);
    EXPECT_EQ(turn->piece, piece);
    EXPECT_EQ(turn->memory, nullptr);
  }
  EXPECT_EQ(Now(&queue).status().code(), Code::kCancelled);
  DirectMemory memory = AllocateDirectMemory(4096);
  const std::byte* where = memory.get();
  queue.Read(1, std::move(memory), Error(Code::kIoError, "broken"));
  auto check = Now(&queue);
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->kind, Kind::kCheck);
  EXPECT_EQ(check->piece, 1u);
  EXPECT_EQ(check->read.code(), Code::kIoError);
  // It is still under way.
  EXPECT_EQ(Now(&queue).status().code(), Code::kCancelled);
  queue.Done(std::move(check->memory));
  auto last = Now(&queue);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->kind, Kind::kRead);
  EXPECT_EQ(last->piece, 2u);
  EXPECT_EQ(last->memory.get(), where);
  queue.Done(nullptr);
  EXPECT_EQ(Now(&queue).status().code(), Code::kCancelled);
  queue.Done(std::move(last->memory));
  auto end = Now(&queue);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->kind, Kind::kEnd);
}

TEST_F(PieceQueueTest, EndsAtOnceWhenItIsStopped) {
  PieceQueue queue(3, 2);
  ASSERT_TRUE(Now(&queue).ok());
  queue.Stop();
  queue.Read(0, nullptr, OkStatus());
  auto end = Now(&queue);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->kind, Kind::kEnd);
}

TEST_F(PieceQueueTest, OfNothingIsAtItsEnd) {
  PieceQueue queue(0, 2);
  auto end = Now(&queue);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->kind, Kind::kEnd);
}

}  // namespace
}  // namespace headrace::checkpoint
