// Every fault that the doctor names, put into a simulated job with strengths drawn by a seed: it is
// found, its neighbours are quiet, and the predicted gain is what the cure really gains.
#include "headrace/doctor/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "headrace/base/keyed_random.h"
#include "headrace/doctor/check.h"
#include "headrace/doctor/testing/pipeline_simulator.h"

namespace headrace::doctor {
namespace {

using testing::PipelineConfig;
using testing::Simulate;
using testing::SpeedOf;

constexpr uint64_t kSeeds = 4;
// What the training loop of the simulated job takes when nothing holds it back.
double Demand(const PipelineConfig& c) { return c.batch / c.compute_s; }

class Draws {
 public:
  Draws(uint64_t seed, uint64_t what) : random_(HashKey(seed, what)) {}
  double Between(double low, double high) { return low + (high - low) * random_.NextDouble(); }

 private:
  KeyedRandom random_;
};

// A job that needs 55 to 80 % of what its pipeline can give.
PipelineConfig Healthy(uint64_t seed) {
  Draws draws(seed, 0);
  PipelineConfig c;
  c.seed = seed;
  c.decode_s = draws.Between(4e-3, 8e-3);
  const double capacity = c.threads / (c.decode_s + 0.2e-3);
  c.compute_s = c.batch / (capacity * draws.Between(0.55, 0.8));
  c.dataset = {"packed", "tar", 64, 100'000, 12'000'000'000, 66};
  c.machine.memory_bytes = 64'000'000'000;
  return c;
}

// Seconds of a worker for each sample with which the pipeline gives the share `x` of the demand.
double WorkerSeconds(const PipelineConfig& c, double x) { return c.threads / (Demand(c) * x); }

struct Fault {
  const char* check;  // that must find it
  std::function<void(PipelineConfig*, Draws*)> put_in;
  // Takes it away as the cure says. Null: the cure does not change the speed of a simulated job.
  std::function<void(PipelineConfig*)> cure;
  bool bound = false;  // the prediction is the most that can be gained
};

// Long because it is a table.
std::vector<Fault> AllFaults() {
  // The pipeline gives less than this share of what the loop takes: the rest is stall. Above 0.6 of
  // it decoding would be half of the workers' time in any case.
  auto share = [](Draws* draws) { return draws->Between(0.4, 0.6); };
  return {
      {"small-files",
       [=](PipelineConfig* c, Draws* draws) {
         c->meta_s = WorkerSeconds(*c, share(draws)) - c->decode_s;
         c->dataset.kind = "folder";
       },
       [](PipelineConfig* c) { c->meta_s = 0; }},
      {"network-full",
       [=](PipelineConfig* c, Draws* draws) {
         c->origin_share = 1;
         c->network_bytes_per_s = Demand(*c) * share(draws) * c->sample_bytes;
       },
       [](PipelineConfig* c) { c->origin_share = 0; }},
      {"small-cache",
       [=](PipelineConfig* c, Draws* draws) {
         c->job.has_cache = true;
         c->job.epoch_bytes = c->dataset.bytes;
         const double fits = draws->Between(0.3, 0.7);
         c->job.cache_limit_bytes =
             static_cast<uint64_t>(fits * static_cast<double>(c->dataset.bytes));
         c->origin_share = 1 - fits;
         c->network_bytes_per_s = Demand(*c) * share(draws) * c->sample_bytes * c->origin_share;
       },
       [](PipelineConfig* c) { c->origin_share = 0; }},
      {"throttled",
       [=](PipelineConfig* c, Draws* draws) {
         c->origin_share = 1;
         c->refused_share = draws->Between(0.05, 0.3);
         c->back_off_s = (WorkerSeconds(*c, share(draws)) - c->decode_s) / c->refused_share;
       },
       [](PipelineConfig* c) { c->refused_share = 0; }, true},
      {"decode-bound",
       [=](PipelineConfig* c, Draws* draws) {
         c->decode_s = WorkerSeconds(*c, draws->Between(0.55, 0.9));
         c->cpus = 8;
       },
       [](PipelineConfig* c) { c->threads = 8; }},
      {"decode-bound",
       [=](PipelineConfig* c, Draws* draws) {
         c->decode_s = WorkerSeconds(*c, draws->Between(0.4, 0.9));
       },
       [](PipelineConfig* c) { c->decode_s *= 0.6; }, true},
      {"slow-samples",
       [=](PipelineConfig* c, Draws* draws) {
         c->slow_factor = draws->Between(35, 60);
         const double mean = WorkerSeconds(*c, draws->Between(0.5, 0.75));
         c->slow_share = (mean / c->decode_s - 1) / (c->slow_factor - 1);
       },
       [](PipelineConfig* c) { c->slow_share = 0; }},
      {"too-many-threads",
       [=](PipelineConfig* c, Draws* draws) {
         const double slower = WorkerSeconds(*c, draws->Between(0.5, 0.8)) / c->decode_s;
         c->contention = (slower - 1) / 2;
         c->threads_changes = {{6, 12}};
       },
       [](PipelineConfig* c) { c->threads_changes.clear(); }},
      {"python-transform",
       [](PipelineConfig* c, Draws* draws) { c->python_s = c->compute_s * draws->Between(0.2, 1); },
       [](PipelineConfig* c) { c->python_s = 0; }},
      {"save-stutter",
       [](PipelineConfig* c, Draws* draws) {
         c->save_every_s = 5;
         c->save_stall_s = draws->Between(0.3, 2);
       },
       [](PipelineConfig* c) { c->save_stall_s = 0; }},
      {"save-stutter",
       [](PipelineConfig* c, Draws* draws) {
         c->save_every_s = 6;
         c->save_writes_s = 2.5;
         c->save_slows_reads = draws->Between(300, 600);
       },
       nullptr},
      {"slow-node",
       [=](PipelineConfig* c, Draws* draws) {
         c->ranks = 4;
         c->slow_rank = 2;
         const double read = c->sample_bytes / c->disk_bytes_per_s + c->disk_latency_s;
         c->slow_rank_factor = (WorkerSeconds(*c, draws->Between(0.5, 0.8)) - c->decode_s) / read;
       },
       [](PipelineConfig* c) { c->slow_rank = -1; }},
      {"few-shards",
       [](PipelineConfig* c, Draws* draws) {
         c->job.world_size = 16;
         c->dataset.num_shards = static_cast<uint64_t>(draws->Between(1, 15));
         c->dataset.present_files = c->dataset.num_shards;
       },
       nullptr},
      {"sliver",
       [](PipelineConfig* c, Draws* draws) {
         c->dataset.present_files = static_cast<uint64_t>(
             static_cast<double>(c->dataset.num_shards) * draws->Between(11, 500));
       },
       nullptr},
      {"page-cache-luck",
       [](PipelineConfig* c, Draws* draws) {
         c->page_cache_share = draws->Between(0.96, 1);
         c->disk_bytes_per_s = Demand(*c) * c->sample_bytes * draws->Between(0.3, 0.7);
         c->dataset.bytes = 200'000'000'000;
       },
       [](PipelineConfig* c) { c->page_cache_share = 0; }},
      {"clock",
       [](PipelineConfig* c, Draws* draws) {
         c->clock_jump_at_s = draws->Between(8, 25);
         c->clock_jump_s = draws->Between(-30, -1);
       },
       nullptr},
      {"clock",
       [](PipelineConfig* c, Draws* draws) {
         c->machine.max_mhz = 3600;
         c->machine.mhz = draws->Between(900, 2400);
       },
       nullptr},
  };
}

std::set<std::string> Names(const Diagnosis& diagnosis) {
  std::set<std::string> names;
  for (const Finding& finding : diagnosis.findings) names.insert(finding.check);
  return names;
}

const Finding* Find(const Diagnosis& diagnosis, const std::string& check) {
  for (const Finding& finding : diagnosis.findings)
    if (finding.check == check) return &finding;
  return nullptr;
}

std::string Tell(const Diagnosis& diagnosis) {
  std::string text;
  for (const Finding& finding : diagnosis.findings) text += FindingText(finding);
  return text;
}

TEST(Diagnose, HealthyRunHasNoFinding) {
  for (uint64_t seed = 1; seed <= 3 * kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Draws draws(seed, 1);
    PipelineConfig c = Healthy(seed);
    if (seed % 2 == 0) c.ranks = 3;
    if (seed % 3 == 0) {  // a cache that is warm, in front of a quick network
      c.job.has_cache = true;
      c.job.epoch_bytes = c.dataset.bytes;
      c.job.cache_limit_bytes = 2 * c.dataset.bytes;
      c.origin_share = draws.Between(0, 0.3);
    }
    if (seed % 3 == 1) c.page_cache_share = draws.Between(0, 1);
    if (seed % 4 == 0) {  // saves in the background
      c.save_every_s = 5;
      c.save_stall_s = 0.02;
      c.save_writes_s = 2;
      c.save_slows_reads = 1.5;
    }
    const Diagnosis diagnosis = Diagnose(Simulate(c));
    ASSERT_TRUE(diagnosis.has_samples);
    EXPECT_LT(diagnosis.input_stall, 0.05);
    EXPECT_TRUE(diagnosis.findings.empty()) << Tell(diagnosis);
  }
}

class EachFault : public ::testing::TestWithParam<size_t> {};

TEST_P(EachFault, IsFoundAloneAndItsGainIsPredicted) {
  const Fault fault = AllFaults()[GetParam()];
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    PipelineConfig c = Healthy(seed);
    Draws draws(seed, 100 + GetParam());
    fault.put_in(&c, &draws);
    const JobRun run = Simulate(c);
    const Diagnosis diagnosis = Diagnose(run);
    ASSERT_EQ(Names(diagnosis), std::set<std::string>{fault.check}) << Tell(diagnosis);
    const Finding& finding = diagnosis.findings.front();
    EXPECT_GE(finding.confidence, 0.3);
    EXPECT_LE(finding.confidence, 0.95);
    EXPECT_FALSE(finding.evidence.empty());
    if (!fault.cure) continue;
    ASSERT_TRUE(finding.gain.has_value());
    double before = SpeedOf(run);
    if (!c.threads_changes.empty()) {  // the speed since the change is what the cure is held to
      PipelineConfig crowded = c;
      crowded.threads = c.threads_changes.back().threads;
      crowded.threads_changes.clear();
      before = SpeedOf(Simulate(crowded));
    }
    fault.cure(&c);
    const double after = SpeedOf(Simulate(c));
    const double predicted = before * (1 + *finding.gain);
    if (fault.bound) {
      EXPECT_TRUE(finding.gain_at_most);
      EXPECT_GE(predicted, 0.95 * after) << Tell(diagnosis);
      EXPECT_GT(predicted, 1.03 * before) << Tell(diagnosis);
    } else {
      EXPECT_NEAR(predicted / after, 1, 0.2) << Tell(diagnosis);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, EachFault, ::testing::Range<size_t>(0, AllFaults().size()),
                         [](const auto& info) {
                           std::string name = AllFaults()[info.param].check;
                           for (char& letter : name)
                             if (letter == '-') letter = '_';
                           return name + "_" + std::to_string(info.param);
                         });

TEST(Diagnose, EveryCheckHasItsFault) {
  std::set<std::string> proved, known;
  for (const Fault& fault : AllFaults()) proved.insert(fault.check);
  for (const CheckEntry& entry : AllChecks()) {
    EXPECT_TRUE(known.insert(std::string(entry.name)).second) << entry.name << " comes twice";
    EXPECT_FALSE(entry.thresholds.empty()) << entry.name;
    for (const Threshold& threshold : entry.thresholds)
      EXPECT_FALSE(threshold.reason.empty()) << entry.name << ": " << threshold.what;
  }
  EXPECT_EQ(proved, known);
}

// One fault of the input, one of the loop and one of the facts at once.
TEST(Diagnose, SeveralFaultsAtOnceAreAllFound) {
  for (uint64_t seed = 1; seed <= 2 * kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    PipelineConfig c = Healthy(seed);
    Draws draws(seed, 2);
    std::set<std::string> expected;
    const double worker_s = WorkerSeconds(c, draws.Between(0.3, 0.45));
    if (seed % 2 == 0) {
      c.meta_s = worker_s - c.decode_s;
      expected.insert("small-files");
    } else {
      c.origin_share = 1;
      c.network_bytes_per_s = c.threads / worker_s * c.sample_bytes;
      expected.insert("network-full");
    }
    if (seed % 3 != 0) {
      c.python_s = c.compute_s * draws.Between(0.4, 0.6);
      expected.insert("python-transform");
    }
    if (seed % 3 != 1) {
      c.save_every_s = 6;
      c.save_stall_s = draws.Between(0.3, 0.6);
      expected.insert("save-stutter");
    }
    if (seed % 4 < 2) {
      c.job.world_size = 16;
      c.dataset.num_shards = 5;
      c.dataset.present_files = 5;
      expected.insert("few-shards");
    } else {
      c.clock_jump_at_s = 12;
      c.clock_jump_s = 7;
      expected.insert("clock");
    }
    const Diagnosis diagnosis = Diagnose(Simulate(c));
    EXPECT_EQ(Names(diagnosis), expected) << Tell(diagnosis);
    EXPECT_EQ(diagnosis.findings.front().severity, Severity::kProblem);
  }
}

TEST(Diagnose, TwoFaultsOfTheInputAtOnce) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    PipelineConfig c = Healthy(seed);
    Draws draws(seed, 3);
    const double more = WorkerSeconds(c, draws.Between(0.25, 0.35)) - c.decode_s;
    c.meta_s = 0.55 * more;
    c.origin_share = 1;
    c.refused_share = 0.15;
    c.back_off_s = 0.45 * more / c.refused_share;
    const Diagnosis diagnosis = Diagnose(Simulate(c));
    EXPECT_EQ(Names(diagnosis), (std::set<std::string>{"small-files", "throttled"}))
        << Tell(diagnosis);
  }
}

TEST(Diagnose, MoreThreadsOnSharedCoresGainAtMostAsMuch) {
  PipelineConfig c = Healthy(1);
  c.decode_s = WorkerSeconds(c, 0.6);
  c.cpus = 8;
  for (bool shared : {false, true}) {
    c.machine.shares_cores = shared;
    const Diagnosis diagnosis = Diagnose(Simulate(c));
    const Finding* finding = Find(diagnosis, "decode-bound");
    ASSERT_NE(finding, nullptr) << Tell(diagnosis);
    EXPECT_EQ(finding->gain_at_most, shared);
  }
}

TEST(Diagnose, OneSlowDiskOfSeveralIsNamed) {
  PipelineConfig c = Healthy(1);
  c.disk_latency_s = WorkerSeconds(c, 0.6) - c.decode_s;
  c.sample_bytes = 1e6;  // not small files
  JobRun run = Simulate(c);
  for (Window& window : run.ranks[0].windows) {
    const uint64_t reads = window.stage(Stage::kRead).count;
    const uint64_t each = reads / 3;
    const auto number = static_cast<double>(each);
    window.sources = {{"/disk1", each, 0, 0.001 * number},
                      {"/disk2", each, 0, 0.001 * number},
                      {"/disk3", each, 0, 0.03 * number}};
  }
  const Diagnosis diagnosis = Diagnose(run);
  const Finding* finding = Find(diagnosis, "slow-node");
  ASSERT_NE(finding, nullptr) << Tell(diagnosis);
  EXPECT_THAT(finding->symptom, ::testing::HasSubstr("/disk3"));
}

// Each step saves for longer than a window, and a save tells its time when it ends.
TEST(Diagnose, AJobThatAlwaysSavesHasSamples) {
  JobRun run;
  run.ranks.emplace_back();
  for (int i = 0; i < 30; ++i) {
    Window window;
    window.start_s = 0.1 * i;
    window.seconds = 0.1;
    window.threads = 1;
    if (i % 3 == 2) {
      window.samples = window.batches = 1;
      window.step_s = 0.01;
      window.save_stall_s = window.saving_s = 0.09;
    }
    run.ranks[0].windows.push_back(window);
  }
  const Diagnosis diagnosis = Diagnose(run);
  EXPECT_TRUE(diagnosis.has_samples);
  EXPECT_NE(Find(diagnosis, "save-stutter"), nullptr) << Tell(diagnosis);
}

TEST(Diagnose, NothingIsSaidOfNothing) {
  EXPECT_FALSE(Diagnose({}).has_samples);
  JobRun run;
  run.ranks.emplace_back();
  run.ranks[0].windows.resize(5);  // a job that waits for its first batch
  const Diagnosis diagnosis = Diagnose(run);
  EXPECT_FALSE(diagnosis.has_samples);
  EXPECT_TRUE(diagnosis.findings.empty());
  EXPECT_EQ(PredictWithout(run, Part::kDecode).status().code(), Code::kFailedPrecondition);
}

// A job that was looked at with no facts of its machine: no limit, so no check that needs one.
TEST(Diagnose, UnknownLimitsGiveNoFindings) {
  PipelineConfig c = Healthy(2);
  c.origin_share = 1;
  c.network_bytes_per_s = Demand(c) * 0.5 * c.sample_bytes;
  JobRun run = Simulate(c);
  run.ranks[0].machine = {};
  EXPECT_EQ(Names(Diagnose(run)), std::set<std::string>{});
}

TEST(Diagnose, JsonHasAllOfAFinding) {
  PipelineConfig c = Healthy(3);
  c.python_s = c.compute_s;
  const Json json = DiagnosisJson(Diagnose(Simulate(c)));
  ASSERT_EQ(json.Find("findings")->items().size(), 1u);
  const Json& finding = json.Find("findings")->items()[0];
  for (const char* name : {"check", "severity", "symptom", "cause", "evidence", "confidence",
                           "cure", "command", "gain", "disproof"})
    EXPECT_NE(finding.Find(name), nullptr) << name;
  EXPECT_EQ(finding.Find("check")->AsString(), "python-transform");
}

}  // namespace
}  // namespace headrace::doctor
