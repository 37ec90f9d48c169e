// A whole dataset in a bucket, read by samples and by the loader, straight and through the node's
// cache, while the server and the network do all they can: right bytes or an error that names what
// is wrong, never other bytes; and a cache in which nothing is damaged afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "headrace/cache/cache_admin.h"
#include "headrace/cache/caching_store.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/loader/loader.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/s3/s3_store.h"
#include "headrace/object/testing/fake_s3.h"
#include "headrace/object/testing/fake_surroundings.h"
#include "headrace/object/testing/patient_client.h"
#include "headrace/object/testing/quick_retry.h"

namespace headrace::loader {
namespace {

using net::Cut;
using net::Fault;
using net::ServerAnswer;
using net::ServerRequest;
using object::FakeS3;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr uint64_t kSamples = 60;  // of each of two shards, of a few blocks each

bool IsGet(const ServerRequest& request) { return request.method == "GET"; }

// By sample: "a/00000 cls=0 jpg=...", or "error: ...".
using Samples = std::map<uint64_t, std::string>;
bool IsError(const std::string& text) { return text.starts_with("error: "); }

std::string FirstError(const Samples& samples) {
  for (const auto& sample : samples)
    if (IsError(sample.second)) return sample.second;
  return "no error";
}

std::string TextOf(std::string_view key, std::string_view cls, std::string_view jpg) {
  return fmt::format("{} cls={} jpg={}", key, cls, jpg);
}

Samples ReadSamples(const dataset::Dataset& dataset, std::shared_ptr<const dataset::Dataset> own,
                    uint64_t begin, uint64_t end) {
  Samples samples;
  auto reader = dataset::SampleReader::Create(std::move(own), {});
  const dataset::FieldId cls = *dataset.FindField("cls"), jpg = *dataset.FindField("jpg");
  for (uint64_t i = begin; i < end; ++i) {
    auto sample = reader->Read(i, {}, Context());
    samples[i] = sample.ok() ? TextOf(sample->key, AsText(sample->Find(cls)->data),
                                      AsText(sample->Find(jpg)->data))
                             : "error: " + sample.status().ToString();
  }
  return samples;
}

Samples LoadEpoch(std::shared_ptr<const dataset::Dataset> dataset, Status* first_failure) {
  LoaderOptions options;
  options.global_batch = 10;
  options.threads = 3;
  options.columns = {{"cls", "", true}, {"jpg", "", true}};
  auto loader = Loader::Create(std::move(dataset), options);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  EXPECT_TRUE((*loader)->Begin(0, 0).ok());
  Samples samples;
  for (uint64_t turn = 0; turn <= 2 * kSamples; ++turn) {
    auto batch = (*loader)->Next(Context());
    if (!batch.ok()) {
      if (first_failure->ok()) *first_failure = batch.status();
      continue;  // behind the failed batch
    }
    if (!*batch) return samples;
    for (uint64_t r = 0; r < (*batch)->num_rows; ++r) {
      const BatchRow& row = (*batch)->rows[r];
      samples[row.sample_id] = TextOf(row.key, AsText(row.values[0]), AsText(row.values[1]));
    }
  }
  ADD_FAILURE() << "the epoch does not end";
  return samples;
}

// A bucket with an indexed dataset, and a reader of it.
class Bed {
 public:
  // `budget`: of the time that retries may take, which passes at once.
  explicit Bed(bool cached, std::chrono::seconds budget = std::chrono::hours(10)) {
    MakeDataset();
    auto settings = object::ReadS3Settings(fake_.Options(), world_.Get());
    bare_ = *object::OpenS3Store("bucket", *settings, object::PatientClient());
    for (const auto& [key, content] : files_of_dataset_) Put(key, content);
    object::RetryOptions retry = retry_.Options();
    retry.budget = budget;
    std::shared_ptr<object::ObjectStore> store = object::MakeRetryingStore(bare_, retry);
    if (cached) store = Cached(std::move(store));
    object::ObjectFileSystemOptions options;
    options.root = "s3://bucket";
    files_ = object::MakeObjectFileSystem(std::move(store), options);
    server().ClearRequests();
  }

  net::FaultServer& server() { return fake_.server(); }
  const Samples& expected() const { return expected_; }
  void Put(const std::string& key, const std::string& content) {
    ASSERT_TRUE(bare_->Put(key, AsBytes(content), {}, Context()).ok());
  }
  void Delete(const std::string& key) { ASSERT_TRUE(bare_->Delete(key, Context()).ok()); }
  Result<std::shared_ptr<const dataset::Dataset>> Open() {
    return dataset::Dataset::Open(files_.get(), "s3://bucket/d", {});
  }
  // All samples; one error for all of them when the dataset cannot be opened.
  Samples Read() {
    auto dataset = Open();
    if (!dataset.ok()) return {{0, "error: " + dataset.status().ToString()}};
    return ReadSamples(**dataset, *dataset, 0, 2 * kSamples);
  }
  // Does `fault` to every third request.
  void InjectOften(const Fault& fault) {
    std::atomic<uint64_t>* count = &requests_;
    server().Inject(fault, UINT64_MAX, [count](const ServerRequest&) { return ++*count % 3 == 0; });
  }
  // No damaged block, and none of a version that is not there.
  void ExpectCleanCache() {
    if (!cache_) return;
    auto admin = cache::CacheAdmin::Open(&cache_files_, "/cache");
    ASSERT_TRUE(admin.ok()) << admin.status().ToString();
    cache::CacheVerifyReport report;
    ASSERT_TRUE((*admin)->Verify(&report, Context()).ok());
    EXPECT_EQ(report.damaged, 0u);
  }

 private:
  void MakeDataset() {
    MemoryFileSystem local;
    dataset::Put(&local, "/d/0.tar", dataset::MakeTar(dataset::MakeSamples("a/", kSamples, 3000)));
    dataset::Put(&local, "/d/1.tar", dataset::MakeTar(dataset::MakeSamples("b/", kSamples, 3000)));
    dataset::IndexOptions options;
    options.build.checksums = true;
    std::vector<std::string> paths = {"/d"};
    ASSERT_TRUE(dataset::IndexDataset(&local, paths, options, Context()).ok());
    auto entries = local.List("/d");
    for (const DirectoryEntry& entry : *entries)
      files_of_dataset_["d/" + entry.name] = *local.ReadWhole("/d/" + entry.name, 1 << 30);
    auto dataset = *dataset::Dataset::Open(&local, "/d", {});
    expected_ = ReadSamples(*dataset, dataset, 0, 2 * kSamples);
    for (const auto& [id, text] : expected_) ASSERT_FALSE(IsError(text)) << text;
  }
  std::shared_ptr<object::ObjectStore> Cached(std::shared_ptr<object::ObjectStore> origin) {
    cache::BlockCacheOptions options;
    options.fs = &cache_files_;
    options.node.directory = "/cache";
    options.node.limit_bytes = 1 << 30;
    options.node.free_floor_bytes = 1;
    options.memory_bytes = 0;
    options.threads = 2;
    options.hedge = false;
    cache_ = *cache::ProcessCache::Create(options);
    return *cache::CachingStore::Create(std::move(origin), cache_,
                                        {.identity = "", .block_bytes = cache::kPageBytes});
  }

  std::map<std::string, std::string> files_of_dataset_;
  Samples expected_;
  std::atomic<uint64_t> requests_{0};
  MemoryFileSystem cache_files_;
  object::QuickRetry retry_;
  object::FakeSurroundings world_;
  FakeS3 fake_;
  std::shared_ptr<object::ObjectStore> bare_;
  std::shared_ptr<cache::ProcessCache> cache_;
  std::shared_ptr<FileSystem> files_;  // last: what it reads through uses the rest
};

class RemoteFaults : public ::testing::TestWithParam<bool> {
 protected:
  // Each sample is right or an error.
  static void ExpectNothingWrong(const Samples& found, const Samples& expected) {
    for (const auto& [id, text] : found) {
      if (IsError(text)) continue;
      EXPECT_TRUE(text == expected.at(id)) << "sample " << id;
    }
  }

  std::atomic<uint64_t> reads_{0};
};

std::vector<std::pair<const char*, Fault>> PassingFaults() {
  return {{"503", net::StatusFault(503)},
          {"429 that asks to wait", net::StatusFault(429, "2")},
          {"reset in the body", net::CutFault(1000, Cut::kReset)},
          {"closed in the body", net::CutFault(0, Cut::kClose)},
          {"a body that is too short", net::ShortBodyFault(7)},
          {"no answer", net::DropFault(Cut::kReset)},
          {"a slow first byte", net::SlowFirstByteFault(milliseconds(3))},
          {"a slow drip", net::DripFault(16 << 10, milliseconds(1))}};
}

TEST_P(RemoteFaults, WhatPassesIsNotSeen) {
  for (const auto& [name, fault] : PassingFaults()) {
    SCOPED_TRACE(name);
    Bed bed(GetParam());
    bed.InjectOften(fault);
    EXPECT_TRUE(bed.Read() == bed.expected());
    bed.ExpectCleanCache();
  }
}

TEST_P(RemoteFaults, WhatPassesIsNotSeenByTheLoader) {
  for (const auto& [name, fault] : PassingFaults()) {
    SCOPED_TRACE(name);
    Bed bed(GetParam());
    bed.InjectOften(fault);
    auto dataset = bed.Open();
    ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
    Status failure;
    EXPECT_TRUE(LoadEpoch(*dataset, &failure) == bed.expected());
    EXPECT_TRUE(failure.ok()) << failure.ToString();
    bed.ExpectCleanCache();
  }
}

Fault WithoutItsLast(size_t bytes) {
  return [bytes](const ServerRequest&, ServerAnswer& answer) {
    answer.body.resize(answer.body.size() - std::min(bytes, answer.body.size()));
  };
}

TEST_P(RemoteFaults, WhatIsWrongIsAnErrorAndIsForgotten) {
  const std::vector<std::pair<const char*, Fault>> faults = {
      {"another range", net::WrongRangeFault(3)},
      {"fewer bytes, told truly", WithoutItsLast(5)},
      {"the whole for a part",
       [](const auto&, ServerAnswer& answer) {
         answer.status = 200;
         answer.body += answer.body;
       }},
      {"503 for ever", net::StatusFault(503)},
      {"not allowed",
       [](const auto&, ServerAnswer& answer) { answer = FakeS3::Failure(403, "AccessDenied"); }},
  };
  for (const auto& [name, fault] : faults) {
    SCOPED_TRACE(name);
    Bed bed(GetParam(), std::chrono::seconds(2));
    auto dataset = bed.Open();
    ASSERT_TRUE(dataset.ok());
    bed.server().Inject(fault, UINT64_MAX, IsGet);
    Samples found = ReadSamples(**dataset, *dataset, 0, 2 * kSamples);
    EXPECT_TRUE(IsError(found.at(0))) << "the fault was seen";
    for (const auto& [id, text] : found) {
      if (IsError(text)) {
        EXPECT_THAT(text, HasSubstr(id < kSamples ? "0.tar" : "1.tar"));
      }
    }
    ExpectNothingWrong(found, bed.expected());
    Status failure;
    ExpectNothingWrong(LoadEpoch(*dataset, &failure), bed.expected());
    EXPECT_FALSE(failure.ok());
    bed.server().Heal();
    bed.ExpectCleanCache();
    EXPECT_TRUE(bed.Read() == bed.expected()) << "nothing of it stays";
  }
}

TEST_P(RemoteFaults, BytesThatChangeOnTheWayAreFoundBySample) {
  Bed bed(GetParam());
  auto dataset = bed.Open();
  ASSERT_TRUE(dataset.ok());
  bed.server().Inject(
      [](const auto&, ServerAnswer& answer) {
        for (size_t at = 777; at < answer.body.size(); at += 1000) answer.body[at] ^= 1;
      },
      UINT64_MAX, IsGet);
  Samples found = ReadSamples(**dataset, *dataset, 0, 2 * kSamples);
  ExpectNothingWrong(found, bed.expected());
  EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                          [](const auto& sample) { return IsError(sample.second); }));
  Status failure;
  ExpectNothingWrong(LoadEpoch(*dataset, &failure), bed.expected());
  EXPECT_FALSE(failure.ok());
  EXPECT_NE(failure.location().file, "");
}

// What came wrong once is asked for again, and does not stay in the cache.
TEST_P(RemoteFaults, BytesThatChangeOnTheWayOnceAreReadAnew) {
  Bed bed(GetParam());
  auto dataset = bed.Open();
  ASSERT_TRUE(dataset.ok());
  ASSERT_TRUE(ReadSamples(**dataset, *dataset, 0, 1) == Samples({{0, bed.expected().at(0)}}));
  std::atomic<uint64_t>* count = &reads_;
  bed.server().Inject(
      [](const auto&, ServerAnswer& answer) {
        for (size_t at = 777; at < answer.body.size(); at += 1000) answer.body[at] ^= 1;
      },
      UINT64_MAX,
      [count](const ServerRequest& request) {
        return IsGet(request) && request.path().ends_with("0.tar") && ++*count % 2 == 1;
      });
  EXPECT_TRUE(ReadSamples(**dataset, *dataset, 0, kSamples) ==
              Samples(bed.expected().begin(), bed.expected().find(kSamples)));
  bed.server().Heal();
  EXPECT_TRUE(bed.Read() == bed.expected());
  bed.ExpectCleanCache();
}

// Never a mix of two versions, and never the new one where the old one was opened.
TEST_P(RemoteFaults, AShardReplacedInTheMiddleIsOldOrAnError) {
  Bed bed(GetParam());
  auto dataset = bed.Open();
  ASSERT_TRUE(dataset.ok());
  Samples found = ReadSamples(**dataset, *dataset, 0, kSamples / 3);
  EXPECT_FALSE(IsError(found.at(0)));
  bed.Put("d/0.tar", dataset::MakeTar(dataset::MakeSamples("a/", kSamples, 3001)));
  found.merge(ReadSamples(**dataset, *dataset, kSamples / 3, 2 * kSamples));
  ExpectNothingWrong(found, bed.expected());
  EXPECT_THAT(FirstError(found), HasSubstr("replaced"));
  EXPECT_THAT(FirstError(found), HasSubstr("0.tar"));
  EXPECT_FALSE(IsError(found.at(2 * kSamples - 1))) << "the other shard goes on";
  bed.ExpectCleanCache();
}

TEST_P(RemoteFaults, AShardDeletedInTheMiddleIsNamed) {
  Bed bed(GetParam());
  auto dataset = bed.Open();
  ASSERT_TRUE(dataset.ok());
  Samples found = ReadSamples(**dataset, *dataset, 0, kSamples / 3);
  bed.Delete("d/0.tar");
  found.merge(ReadSamples(**dataset, *dataset, kSamples / 3, 2 * kSamples));
  ExpectNothingWrong(found, bed.expected());
  EXPECT_THAT(FirstError(found), HasSubstr("not found"));
  EXPECT_THAT(FirstError(found), HasSubstr("0.tar"));
  EXPECT_FALSE(IsError(found.at(2 * kSamples - 1)));
  bed.ExpectCleanCache();
}

// An answer that drips a byte a second never stalls; a second request overtakes it.
TEST(RemoteHedge, AnAnswerThatDripsIsOvertaken) {
  constexpr uint64_t kBlocks = 130;  // so many tell what is late
  std::string content(kBlocks * cache::kPageBytes, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 >> 5);
  object::FakeSurroundings world;
  FakeS3 fake;
  std::shared_ptr<object::ObjectStore> bare = *object::OpenS3Store(
      "bucket", *object::ReadS3Settings(fake.Options(), world.Get()), object::PatientClient());
  ASSERT_TRUE(bare->Put("large", AsBytes(content), {}, Context()).ok());
  MemoryFileSystem files;
  cache::BlockCacheOptions options;
  options.fs = &files;
  options.node.directory = "/cache";
  options.node.limit_bytes = 1 << 30;
  options.node.free_floor_bytes = 1;
  auto process_cache = *cache::ProcessCache::Create(options);
  auto store = *cache::CachingStore::Create(bare, process_cache,
                                            {.identity = "", .block_bytes = cache::kPageBytes});
  for (uint64_t block = 0; block < kBlocks; ++block) {
    if (block == kBlocks - 1)
      fake.server().Inject(net::DripFault(1, std::chrono::seconds(1)), 1, IsGet);
    std::string out(1000, '?');
    auto got = store->Get({.key = "large",
                           .offset = block * cache::kPageBytes,
                           .out = std::as_writable_bytes(std::span(out)),
                           .if_match = {}},
                          Context());
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(out, content.substr(block * cache::kPageBytes, 1000));
  }
  EXPECT_GE(process_cache->Get()->counters().hedges, 1u);
}

INSTANTIATE_TEST_SUITE_P(Ways, RemoteFaults, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "ThroughTheCache" : "Straight");
});

}  // namespace
}  // namespace headrace::loader
