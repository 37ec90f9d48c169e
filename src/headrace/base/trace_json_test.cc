#include "headrace/base/trace_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "headrace/base/stage_timer.h"

namespace headrace {
namespace {

constexpr uint64_t kBegin = 1'000'000;

ProcessSnapshot Job() {
  ProcessSnapshot process;
  process.job = "a \"night\"";
  process.rank = 3;
  process.pid = 77;
  process.host = "node7";
  return process;
}

TraceEvent Event(TraceKind kind, uint64_t begin, uint64_t end) {
  TraceEvent event;
  event.kind = kind;
  event.times = {kBegin + begin, 0, 0, kBegin + end};
  return event;
}

// The events of a file with one process, without those that name things.
std::vector<Json> Written(const std::vector<TraceEvent>& events) {
  TraceFile file;
  const size_t process = file.AddProcess(Job(), kBegin);
  for (const TraceEvent& event : events) file.Add(process, event);
  auto json = Json::Parse(file.Finish());
  EXPECT_TRUE(json.ok()) << json.status().ToString();
  std::vector<Json> written;
  if (!json.ok()) return written;
  for (const Json& one : json->Find("traceEvents")->items())
    if (one.Find("ph")->AsString() != "M") written.push_back(one);
  return written;
}

TEST(TraceFile, WorkIsACompleteEventInMicroseconds) {
  TraceEvent work = Event(TraceKind::kBusy, 1500, 4000);
  work.detail = static_cast<uint8_t>(Stage::kDecode);
  work.lane = 5;
  work.id = TraceBatchId(1, 23);
  work.amount = 640;
  const std::vector<Json> written = Written({work});
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].Find("ph")->AsString(), "X");
  EXPECT_EQ(written[0].Find("name")->AsString(), "decode");
  EXPECT_EQ(written[0].Find("pid")->AsInt(), 77);
  EXPECT_EQ(written[0].Find("tid")->AsInt(), 5);
  EXPECT_DOUBLE_EQ(written[0].Find("ts")->AsDouble(), 1.5);
  EXPECT_DOUBLE_EQ(written[0].Find("dur")->AsDouble(), 2.5);
  EXPECT_EQ(written[0].Find("args")->Find("batch")->AsString(), "1/23");
  EXPECT_EQ(written[0].Find("args")->Find("bytes")->AsUint(), 640u);
}

TEST(TraceFile, ABatchIsAPairWithItsPartsInside) {
  TraceEvent batch = Event(TraceKind::kBatch, 1000, 9000);
  batch.id = TraceBatchId(0, 4);
  batch.times[1] = kBegin + 2000;
  batch.times[2] = kBegin + 7000;
  const std::vector<Json> written = Written({batch});
  std::string order;
  for (const Json& one : written) {
    order += std::string(one.Find("ph")->AsString()) + " " +
             std::string(one.Find("name")->AsString()) + ", ";
    EXPECT_EQ(one.Find("id")->AsString(), written[0].Find("id")->AsString());
  }
  EXPECT_EQ(order, "b batch 0/4, b plan, e plan, b load, e load, b ready, e ready, e batch 0/4, ");
  EXPECT_DOUBLE_EQ(written[4].Find("ts")->AsDouble(), 7);
}

TEST(TraceFile, PartsWithoutAKnownBorderAreLeftOut) {
  TraceEvent batch = Event(TraceKind::kBatch, 1000, 9000);
  batch.times[2] = kBegin + 7000;
  const std::vector<Json> written = Written({batch});
  ASSERT_EQ(written.size(), 4u);
  EXPECT_EQ(written[1].Find("name")->AsString(), "ready");
}

TEST(TraceFile, IntervalsHaveNumbersOfTheirOwn) {
  const std::vector<Json> written =
      Written({Event(TraceKind::kRequest, 0, 10), Event(TraceKind::kRequest, 5, 15)});
  ASSERT_EQ(written.size(), 4u);
  EXPECT_EQ(written[0].Find("id")->AsString(), written[1].Find("id")->AsString());
  EXPECT_NE(written[0].Find("id")->AsString(), written[2].Find("id")->AsString());
}

TEST(TraceFile, WhatBeganBeforeTheWindowIsCutOff) {
  TraceEvent early = Event(TraceKind::kSave, 0, 2000);
  early.id = 40;
  early.times[0] = kBegin - 900;
  early.times[1] = kBegin - 300;
  early.times[2] = kBegin + 1000;
  TraceEvent gone = Event(TraceKind::kSave, 0, 0);
  gone.times = {kBegin - 500, 0, 0, kBegin - 1};
  const std::vector<Json> written = Written({early, gone});
  ASSERT_EQ(written.size(), 8u);
  EXPECT_EQ(written[0].Find("name")->AsString(), "step 40");
  EXPECT_DOUBLE_EQ(written[0].Find("ts")->AsDouble(), 0);
  EXPECT_DOUBLE_EQ(written[3].Find("ts")->AsDouble(), 0);  // the write's begin
}

TEST(TraceFile, NamesProcessAndThreadsAndTellsWhatIsLost) {
  TraceFile file;
  const size_t process = file.AddProcess(Job(), kBegin);
  TraceEvent work = Event(TraceKind::kWait, 0, 10);
  work.lane = 9;
  work.pool = TracePool::kConsumer;
  file.Add(process, work);
  file.Add(process, work);
  file.AddLost(12);
  EXPECT_EQ(file.num_events(), 2u);
  auto json = Json::Parse(file.Finish());
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ(json->Find("otherData")->Find("lost_events")->AsUint(), 12u);
  std::vector<std::string> names;
  for (const Json& one : json->Find("traceEvents")->items())
    if (one.Find("ph")->AsString() == "M")
      names.emplace_back(one.Find("args")->Find("name")->AsString());
  EXPECT_EQ(names, (std::vector<std::string>{"a \"night\" rank 3 (node7)",
                                             "batches, requests, saves", "consumer 9"}));
}

TEST(TraceChunk, GoesOverTheSocketUnchanged) {
  TraceChunk chunk;
  chunk.next = 12;
  chunk.lost = 3;
  for (uint64_t n = 0; n < kNumTraceKinds; ++n) {
    TraceEvent event = Event(static_cast<TraceKind>(n), n, n + 5);
    event.detail = static_cast<uint8_t>(n);
    event.lane = static_cast<uint32_t>(n * 2);
    event.pool = TracePool::kLoader;
    event.amount = n;
    chunk.events.push_back(event);
  }
  auto read = TraceChunkFrom(TraceChunkText(chunk));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->next, 12u);
  EXPECT_EQ(read->lost, 3u);
  ASSERT_EQ(read->events.size(), chunk.events.size());
  for (size_t i = 0; i < chunk.events.size(); ++i) {
    EXPECT_EQ(read->events[i].kind, chunk.events[i].kind);
    EXPECT_EQ(read->events[i].id, kNoTraceId);
    EXPECT_EQ(read->events[i].lane, chunk.events[i].lane);
    EXPECT_EQ(read->events[i].pool, chunk.events[i].pool);
    EXPECT_EQ(read->events[i].times, chunk.events[i].times);
  }
}

TEST(TraceChunk, WhatIsNoneIsRefusedAndWhatIsNewIsSkipped) {
  for (const char* text :
       {"", "[]", "{}", R"({"next": 1, "lost": 0, "events": 5})", R"({"events": []})",
        R"({"next": 1, "lost": 0, "events": [["busy", 1]]})",
        R"({"next": 1, "lost": 0, "events": [["busy",0,0,1,0,0,9,0,0,5]]})"})
    EXPECT_FALSE(TraceChunkFrom(text).ok()) << text;
  auto read = TraceChunkFrom(R"({"next": 1, "lost": 0, "events": [["newer",0,0,1,0,0,5,0,0,9]]})");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->events.empty());
}

}  // namespace
}  // namespace headrace
