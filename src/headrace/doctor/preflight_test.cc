#include "headrace/doctor/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace::doctor {
namespace {

using ::testing::HasSubstr;

// A machine, a data set and a job that fit each other.
Preflight Good() {
  Preflight p;
  p.machine.facts = {16, uint64_t{64} << 30, 1.25e9, 2e9, "tsc", 3000, 3600};
  p.machine.affinity_cpus = 16;
  p.machine.shm_bytes = uint64_t{8} << 30;
  p.machine.open_files = 65536;
  p.machine.map_count = 1 << 20;
  p.machine.io_uring_disabled = 0;
  p.machine.receive_buffer_bytes = 16 << 20;
  p.dataset.emplace();
  p.dataset->facts = {"s3://b/train", "tar", 256, 1'000'000, uint64_t{64} << 30, 256};
  p.dataset->by_url = true;
  p.plan.world_size = 8;
  p.plan.node_ranks = 4;
  p.plan.cache_directory = "/nvme";
  p.plan.cache_limit_bytes = uint64_t{40} << 30;
  p.plan.cache_free_bytes = uint64_t{100} << 30;
  return p;
}

std::vector<std::string> Names(const Preflight& p) {
  std::vector<std::string> names;
  for (const Finding& finding : CheckPreflight(p)) names.push_back(finding.check);
  return names;
}

TEST(Preflight, NothingIsSaidOfWhatIsWell) {
  EXPECT_EQ(Names(Good()), std::vector<std::string>{});
  EXPECT_EQ(Names({}), std::vector<std::string>{}) << "what is not known is no fault";
}

TEST(Preflight, EachFaultIsFoundAlone) {
  const std::vector<std::pair<std::string, std::function<void(Preflight*)>>> faults = {
      {"cpu-quota", [](Preflight* p) { p->machine.quota_cpus = 12; }},
      {"few-cores", [](Preflight* p) { p->machine.facts.cpus = 6; }},
      {"memory", [](Preflight* p) { p->plan.memory_bytes = uint64_t{10} << 30; }},
      {"shm", [](Preflight* p) { p->machine.shm_bytes = 64 << 20; }},
      {"descriptors", [](Preflight* p) { p->machine.open_files = 256; }},
      {"max_map_count", [](Preflight* p) { p->machine.map_count = 3000; }},
      {"tcp_rmem", [](Preflight* p) { p->machine.receive_buffer_bytes = 1 << 20; }},
      {"io_uring", [](Preflight* p) { p->machine.io_uring_disabled = 2; }},
      {"clock", [](Preflight* p) { p->machine.facts.clock_source = "hpet"; }},
      {"frequency",
       [](Preflight* p) {
         p->machine.governor = "powersave";
         p->machine.facts.mhz = 1200;
       }},
      {"few-shards",
       [](Preflight* p) { p->dataset->facts.num_shards = p->dataset->facts.present_files = 7; }},
      {"small-shards",
       [](Preflight* p) {
         p->dataset->facts.num_shards = p->dataset->facts.present_files = 50'000;
         p->machine.map_count = 1 << 30;
       }},
      {"small-files",
       [](Preflight* p) {
         p->dataset->facts.kind = "folder";
         p->dataset->facts.num_shards = 1000;
       }},
      {"no-index", [](Preflight* p) { p->dataset->has_index = false; }},
      {"sliver", [](Preflight* p) { p->dataset->facts.present_files = 30'000; }},
      {"no-cache", [](Preflight* p) { p->plan.cache_directory.clear(); }},
      {"small-cache", [](Preflight* p) { p->plan.cache_limit_bytes = uint64_t{20} << 30; }},
      {"small-cache", [](Preflight* p) { p->plan.cache_free_bytes = uint64_t{10} << 30; }},
  };
  for (const auto& [name, put_in] : faults) {
    Preflight p = Good();
    put_in(&p);
    EXPECT_EQ(Names(p), std::vector<std::string>{name});
    for (const Finding& finding : CheckPreflight(p)) {
      EXPECT_FALSE(finding.cure.empty()) << name;
      EXPECT_FALSE(finding.cause.empty()) << name;
      EXPECT_FALSE(finding.disproof.empty()) << name;
    }
  }
}

TEST(Preflight, ProblemsComeFirst) {
  Preflight p = Good();
  p.machine.facts.clock_source = "hpet";
  p.plan.memory_bytes = uint64_t{10} << 30;
  EXPECT_EQ(Names(p), (std::vector<std::string>{"memory", "clock"}));
}

TEST(Preflight, TextAndJsonHaveTheFacts) {
  Preflight p = Good();
  p.machine.quota_cpus = 12;
  p.disk = DiskSpeed{2e9, 80e-6, 100};
  const std::string text = PreflightText(p);
  EXPECT_THAT(text, HasSubstr("quota of the control group: 12"));
  EXPECT_THAT(text, HasSubstr("80 us for a small one"));
  EXPECT_THAT(text, HasSubstr("1,000,000 samples in 256 shards"));
  const Json json = PreflightJson(p);
  EXPECT_EQ(json.Find("machine")->Find("cpu_quota")->AsDouble(), 12);
  EXPECT_EQ(json.Find("dataset")->Find("shards")->AsUint(), 256u);
}

}  // namespace
}  // namespace headrace::doctor
