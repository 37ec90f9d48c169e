// Reading, writing, conditions, contexts and refusals.
#include <atomic>
#include <set>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/object/testing/conformance_bench.h"

namespace headrace::object {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

void ClaimsWhatItShould(const Bench& b) {
  const Abilities& claimed = b->abilities();
  EXPECT_EQ(claimed.list, b.can().list);
  EXPECT_EQ(claimed.write, b.can().write);
  EXPECT_EQ(claimed.upload, b.can().upload);
  EXPECT_EQ(claimed.put_if_absent, b.can().put_if_absent);
  EXPECT_EQ(claimed.put_if_match, b.can().put_if_match);
  EXPECT_EQ(claimed.get_if_match, b.can().get_if_match);
  EXPECT_EQ(claimed.put_mark, b.can().put_mark);
  EXPECT_EQ(claimed.ordered_list, b.can().ordered_list);
  EXPECT_EQ(claimed.strict_keys, b.can().strict_keys);
  EXPECT_EQ(claimed.min_part_bytes, b.can().min_part_bytes);
  EXPECT_FALSE(b->name().empty());
}

void NothingIsThere(const Bench& b) {
  Status missing = b->Head("none/such", Context()).status();
  EXPECT_CODE(missing, kNotFound);
  EXPECT_THAT(missing.ToString(), HasSubstr("none/such"));
  EXPECT_THAT(missing.ToString(), HasSubstr(b->name()));
  EXPECT_CODE(b.ReadRange("none/such", 0, 1).status(), kNotFound);
  EXPECT_CODE(b.ReadRange("none/such", 0, 0).status(), kNotFound);
}

void ReadsBackWhatWasWritten(const Bench& b) {
  for (size_t bytes : {0, 1, 4096, 3'000'001}) {
    std::string content = Pattern(bytes, 7);
    std::string key = "o" + std::to_string(bytes);
    b.Write(key, content);
    EXPECT_TRUE(b.Read(key) == content) << bytes;
  }
}

void GetsRanges(const Bench& b) {
  std::string content = Pattern(100'000, 3);
  b.Write("dir/object", content);
  for (auto [offset, bytes] : std::vector<std::pair<uint64_t, size_t>>{{0, 1},
                                                                       {0, 100'000},
                                                                       {1, 99'999},
                                                                       {99'999, 1},
                                                                       {4095, 2},
                                                                       {50'000, 0},
                                                                       {12'345, 70'001}}) {
    auto got = b.ReadRange("dir/object", offset, bytes);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_TRUE(*got == content.substr(offset, bytes)) << offset << " " << bytes;
  }
  std::string one(1, '?');
  auto info =
      b->Get({.key = "dir/object", .offset = 5, .out = Writable(&one), .if_match = {}}, Context());
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->key, "dir/object");
  EXPECT_THAT(info->size_bytes, AnyOf(100'000u, 0u)) << "the object's size, not the range's";
}

void RangesOutsideAreRefused(const Bench& b) {
  b.Write("object", "0123456789");
  for (auto [offset, bytes] : std::vector<std::pair<uint64_t, size_t>>{
           {10, 1}, {9, 2}, {0, 11}, {1'000'000, 5}, {uint64_t{1} << 62, 1}}) {
    Status got = b.ReadRange("object", offset, bytes).status();
    EXPECT_CODE(got, kOutOfRange);
    EXPECT_THAT(got.ToString(), HasSubstr("10")) << "names the size";
    EXPECT_THAT(got.ToString(), HasSubstr("object"));
  }
  b.Write("empty", "");
  EXPECT_CODE(b.ReadRange("empty", 0, 1).status(), kOutOfRange);
  EXPECT_TRUE(b.ReadRange("empty", 0, 0).ok());
}

// One batch: parts that can be had and parts that cannot, each answered once and for itself.
void GetsManyAtOnce(const Bench& b) {
  constexpr size_t kRequests = 400;
  std::string content = Pattern(64 << 10, 11);
  b.Write("object", content);
  std::vector<std::string> outs(kRequests);
  std::vector<GetRequest> requests;
  std::vector<ObjectStore::GetDone> dones;
  Mutex mu;
  CondVar finished;
  size_t num_done = 0;
  std::vector<std::vector<Code>> codes(kRequests);
  auto offset_of = [](size_t i) { return i * 97 % (60 << 10); };
  for (size_t i = 0; i < kRequests; ++i) {
    outs[i].assign(1 + i * 7 % 4000, '?');
    requests.push_back({.key = i % 50 == 49 ? "missing" : "object",
                        .offset = i % 50 == 48 ? content.size() : offset_of(i),
                        .out = Writable(&outs[i]),
                        .if_match = {}});
    dones.emplace_back([&, i](const Result<ObjectInfo>& result) {
      MutexLock lock(&mu);
      codes[i].push_back(result.status().code());
      if (++num_done == kRequests) finished.NotifyOne();
    });
  }
  b->SubmitGets(std::move(requests), std::move(dones), Context());
  {
    MutexLock lock(&mu);
    while (num_done < kRequests) finished.Wait(&mu);
  }
  for (size_t i = 0; i < kRequests; ++i) {
    Code expected = i % 50 == 49 ? Code::kNotFound : i % 50 == 48 ? Code::kOutOfRange : Code::kOk;
    ASSERT_EQ(codes[i], std::vector<Code>{expected}) << i;
    if (expected == Code::kOk) {
      ASSERT_TRUE(outs[i] == content.substr(offset_of(i), outs[i].size())) << i;
    }
  }
  b->SubmitGets({}, {}, Context());
}

void GetsFromManyThreads(const Bench& b) {
  std::string content = Pattern(300'000, 5);
  b.Write("object", content);
  std::atomic<int> wrong{0};
  RunInThreads(b.options().num_threads, [&](uint32_t thread) {
    for (uint32_t i = 0; i < 40; ++i) {
      uint64_t offset = (thread * 7919 + i * 104'729) % 290'000;
      auto got = b.ReadRange("object", offset, 1 + i * 97);
      if (!got.ok() || *got != content.substr(offset, 1 + i * 97)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

void HeadTells(const Bench& b) {
  std::string etag = b.Write("a/key", "twelve bytes");
  auto info = b->Head("a/key", Context());
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->key, "a/key");
  EXPECT_EQ(info->size_bytes, 12u);
  if (b.options().has_etags) {
    EXPECT_NE(info->etag, "");
  }
  if (b.can().write) {
    EXPECT_EQ(info->etag, etag);
  }
  EXPECT_EQ(info->etag.find('"'), std::string::npos);
  auto again = b->Head("a/key", Context());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->etag, info->etag);
  if (!b.can().list) return;
  auto page = b->List({.prefix = "a/", .delimiter = {}, .after = {}, .token = {}}, Context());
  ASSERT_TRUE(page.ok()) << page.status().ToString();
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].size_bytes, 12u);
  EXPECT_EQ(page->objects[0].etag, info->etag);
}

void Overwrites(const Bench& b) {
  std::string first = b.Write("object", "one");
  std::string second = b.Write("object", "two");
  EXPECT_EQ(b.Read("object"), "two");
  std::string longer = b.Write("object", "a longer text");
  EXPECT_EQ(b.Read("object"), "a longer text");
  if (!b.can().write || !b.options().has_etags) return;
  EXPECT_NE(first, second);
  EXPECT_NE(second, longer);
}

void ReadersSeeOneOrTheOther(const Bench& b) {
  const std::string one = Pattern(200'000, 1), two = Pattern(200'000, 2);
  b.Write("object", one);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  RunInThreads(3, [&](uint32_t thread) {
    if (thread == 0) {
      for (int i = 0; i < 30; ++i) b.Write("object", i % 2 == 0 ? two : one);
      stop = true;
      return;
    }
    while (!stop) {
      auto got = b.ReadRange("object", 0, one.size());
      if (!got.ok() || (*got != one && *got != two)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

void DeletesObjects(const Bench& b) {
  b.Write("a/b", "x");
  b.Write("a/c", "y");
  EXPECT_TRUE(b->Delete("a/b", Context()).ok());
  EXPECT_EQ(b.Read("a/b"), "error: not found");
  EXPECT_EQ(b.Read("a/c"), "y");
  EXPECT_TRUE(b->Delete("a/b", Context()).ok());
  EXPECT_TRUE(b->Delete("never/was", Context()).ok());
  EXPECT_TRUE(b->Delete("a", Context()).ok()) << "no object has the key 'a'";
  EXPECT_EQ(b.Read("a/c"), "y");
  b.Write("a/b", "again");
  EXPECT_EQ(b.Read("a/b"), "again");
}

void PutsIfAbsent(const Bench& b) {
  PutOptions absent{.if_absent = true, .if_match = {}};
  auto etag = b->Put("key", AsBytes("first"), absent, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  EXPECT_EQ(b->Head("key", Context())->etag, *etag);
  Status taken = b->Put("key", AsBytes("second"), absent, Context()).status();
  EXPECT_CODE(taken, kAlreadyExists);
  EXPECT_THAT(taken.ToString(), HasSubstr("key"));
  EXPECT_CODE(b->Put("key", AsBytes("first"), absent, Context()).status(), kAlreadyExists);
  EXPECT_EQ(b.Read("key"), "first");
  ASSERT_TRUE(b->Delete("key", Context()).ok());
  EXPECT_TRUE(b->Put("key", AsBytes("third"), absent, Context()).ok());
  EXPECT_EQ(b.Read("key"), "third");
}

void OneWriterWinsAnAbsentKey(const Bench& b) {
  const uint32_t writers = b.options().num_threads;
  for (int round = 0; round < 8; ++round) {
    std::string key = "race/" + std::to_string(round);
    std::vector<Status> results(writers);
    RunInThreads(writers, [&](uint32_t i) {
      results[i] =
          b->Put(key, AsBytes(std::to_string(i)), {.if_absent = true, .if_match = {}}, Context())
              .status();
    });
    std::vector<std::string> winners;
    for (uint32_t i = 0; i < writers; ++i) {
      if (results[i].ok())
        winners.push_back(std::to_string(i));
      else
        EXPECT_CODE(results[i], kAlreadyExists);
    }
    ASSERT_EQ(winners.size(), 1u) << key;
    EXPECT_EQ(b.Read(key), winners[0]);
  }
}

void PutsIfMatch(const Bench& b) {
  std::string first = b.Write("key", "first");
  auto second =
      b->Put("key", AsBytes("second"), {.if_absent = false, .if_match = first}, Context());
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_NE(*second, first);
  EXPECT_EQ(b->Head("key", Context())->etag, *second);
  PutOptions stale{.if_absent = false, .if_match = first};
  EXPECT_CODE(b->Put("key", AsBytes("third"), stale, Context()).status(), kFailedPrecondition);
  EXPECT_EQ(b.Read("key"), "second");
  ASSERT_TRUE(b->Delete("key", Context()).ok());
  PutOptions gone{.if_absent = false, .if_match = *second};
  EXPECT_CODE(b->Put("key", AsBytes("third"), gone, Context()).status(), kFailedPrecondition);
  EXPECT_EQ(b.Read("key"), "error: not found");
}

void OneWriterWinsAMatch(const Bench& b) {
  const uint32_t writers = b.options().num_threads;
  std::string etag = b.Write("key", "start");
  for (int round = 0; round < 8; ++round) {
    std::vector<Status> results(writers);
    RunInThreads(writers, [&](uint32_t i) {
      std::string content = std::to_string(round) + " by " + std::to_string(i);
      results[i] =
          b->Put("key", AsBytes(content), {.if_absent = false, .if_match = etag}, Context())
              .status();
    });
    int winners = 0;
    for (const Status& result : results) {
      if (result.ok())
        ++winners;
      else
        EXPECT_CODE(result, kFailedPrecondition);
    }
    ASSERT_EQ(winners, 1) << round;
    etag = b->Head("key", Context())->etag;
  }
}

void GetsIfMatch(const Bench& b) {
  b.Write("key", "0123456789");
  std::string etag = b->Head("key", Context())->etag;
  ASSERT_NE(etag, "");
  auto got = b.ReadRange("key", 2, 3, etag);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, "234");
  EXPECT_TRUE(b.ReadRange("key", 0, 0, etag).ok());
  b.Write("key", "abcdefghij");
  Status replaced = b.ReadRange("key", 2, 3, etag).status();
  EXPECT_CODE(replaced, kFailedPrecondition);
  EXPECT_THAT(replaced.ToString(), HasSubstr("key"));
  EXPECT_CODE(b.ReadRange("key", 0, 0, etag).status(), kFailedPrecondition);
  ASSERT_TRUE(b.Remove("key").ok());
  EXPECT_CODE(b.ReadRange("key", 2, 3, etag).status(), kNotFound);
}

// Each call, with a context that has ended: refused, and nothing is changed.
void CheckEnded(const Bench& b, const Context& ctx, Code code) {
  auto expect = [code](const Status& got) {
    EXPECT_EQ(CodeName(got.code()), CodeName(code)) << got.ToString();
  };
  std::string out(1, '?');
  expect(b->Head("key", ctx).status());
  expect(b->Get({.key = "key", .offset = 0, .out = Writable(&out), .if_match = {}}, ctx).status());
  if (b.can().write) {
    expect(b->Put("key", AsBytes("new"), {}, ctx).status());
    expect(b->Delete("key", ctx));
  }
  if (b.can().list) expect(b->List({}, ctx).status());
  if (b.can().upload) {
    expect(b->StartUpload("other", ctx).status());
    expect(b->ListUploads("", ctx).status());
  }
  EXPECT_EQ(b.Read("key"), "old");
}

void HonorsItsContext(const Bench& b) {
  b.Write("key", "old");
  Context late;
  late.deadline = Context::Clock::now() - std::chrono::seconds(1);
  CheckEnded(b, late, Code::kDeadlineExceeded);
  std::atomic<bool> flag{true};
  Context cancelled;
  cancelled.cancelled = &flag;
  CheckEnded(b, cancelled, Code::kCancelled);
  flag = false;
  EXPECT_TRUE(b->Head("key", cancelled).ok());
}

void RefusesWhatItCannotDo(const Bench& b) {
  const Abilities& can = b.can();
  if (!can.list) EXPECT_CODE(b->List({}, Context()).status(), kUnimplemented);
  if (!can.write) {
    EXPECT_CODE(b->Put("key", AsBytes("x"), {}, Context()).status(), kUnimplemented);
    EXPECT_CODE(b->Delete("key", Context()), kUnimplemented);
  }
  if (!can.put_if_absent) {
    PutOptions absent{.if_absent = true, .if_match = {}};
    EXPECT_CODE(b->Put("key", AsBytes("x"), absent, Context()).status(), kUnimplemented);
  }
  if (!can.put_if_match) {
    PutOptions match{.if_absent = false, .if_match = "e"};
    EXPECT_CODE(b->Put("key", AsBytes("x"), match, Context()).status(), kUnimplemented);
  }
  if (!can.get_if_match) {
    b.Write("object", "x");
    EXPECT_CODE(b.ReadRange("object", 0, 1, "e").status(), kUnimplemented);
  }
  if (!can.upload) {
    EXPECT_CODE(b->StartUpload("key", Context()).status(), kUnimplemented);
    EXPECT_CODE(b->ListUploads("", Context()).status(), kUnimplemented);
    EXPECT_CODE(b->AbortUpload({.key = "key", .id = "1"}, Context()), kUnimplemented);
  }
  EXPECT_EQ(b.Read("key"), "error: not found");
}

// Of two writes of the same bytes one can tell which is there.
void KeepsTheMark(const Bench& b) {
  auto mark_of = [&](const std::string& key) {
    auto info = b->Head(key, Context());
    return info.ok() ? info->mark : info.status().ToString();
  };
  std::string etag;
  auto put = [&](const std::string& mark, bool if_match) {
    PutOptions options{.if_absent = false, .if_match = if_match ? etag : "", .mark = mark};
    auto made = b->Put("key", AsBytes("content"), options, Context());
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    etag = *made;
  };
  put("", false);
  EXPECT_EQ(mark_of("key"), "");
  put("0a1b-2C", b.can().put_if_match);
  EXPECT_EQ(mark_of("key"), "0a1b-2C");
  put("of-another", b.can().put_if_match);
  EXPECT_EQ(mark_of("key"), "of-another");
  EXPECT_EQ(b.Read("key"), "content");
  put("", false);
  EXPECT_EQ(mark_of("key"), "") << "that of an older write";
}

bool CanWrite(const Abilities& can) { return can.write; }
bool CanPutMark(const Abilities& can) { return can.put_mark; }
bool CanPutIfAbsent(const Abilities& can) { return can.put_if_absent; }
bool CanPutIfMatch(const Abilities& can) { return can.put_if_match; }
bool CanGetIfMatch(const Abilities& can) { return can.get_if_match; }

#define HR_TEST_ROW_(function, applies) {#function, function, applies}
constexpr NamedTest kTests[] = {
    HR_TEST_ROW_(ClaimsWhatItShould, nullptr),
    HR_TEST_ROW_(NothingIsThere, nullptr),
    HR_TEST_ROW_(ReadsBackWhatWasWritten, nullptr),
    HR_TEST_ROW_(GetsRanges, nullptr),
    HR_TEST_ROW_(RangesOutsideAreRefused, nullptr),
    HR_TEST_ROW_(GetsManyAtOnce, nullptr),
    HR_TEST_ROW_(GetsFromManyThreads, nullptr),
    HR_TEST_ROW_(HeadTells, nullptr),
    HR_TEST_ROW_(Overwrites, nullptr),
    HR_TEST_ROW_(ReadersSeeOneOrTheOther, CanWrite),
    HR_TEST_ROW_(DeletesObjects, CanWrite),
    HR_TEST_ROW_(PutsIfAbsent, CanPutIfAbsent),
    HR_TEST_ROW_(OneWriterWinsAnAbsentKey, CanPutIfAbsent),
    HR_TEST_ROW_(PutsIfMatch, CanPutIfMatch),
    HR_TEST_ROW_(OneWriterWinsAMatch, CanPutIfMatch),
    HR_TEST_ROW_(GetsIfMatch, CanGetIfMatch),
    HR_TEST_ROW_(KeepsTheMark, CanPutMark),
    HR_TEST_ROW_(HonorsItsContext, nullptr),
    HR_TEST_ROW_(RefusesWhatItCannotDo, nullptr),
};

}  // namespace

std::span<const NamedTest> ReadAndWriteTests() { return kTests; }

}  // namespace headrace::object
