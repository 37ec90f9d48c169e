// The model against runs from which the stage was really taken.
#include "headrace/doctor/stage_model.h"

#include <gtest/gtest.h>

#include "headrace/doctor/diagnose.h"
#include "headrace/doctor/testing/pipeline_simulator.h"

namespace headrace::doctor {
namespace {

using testing::PipelineConfig;
using testing::Simulate;
using testing::SpeedOf;

double Predicted(const PipelineConfig& config, Part part) {
  auto prediction = PredictWithout(Simulate(config), part);
  EXPECT_TRUE(prediction.ok());
  return prediction.ok() ? prediction->without : 0;
}

// A job whose loop could take ten times of what comes.
PipelineConfig Starved() {
  PipelineConfig c;
  c.compute_s = 5e-3;
  return c;
}

TEST(StageModel, WithoutDecodeTheDiskIsWhatIsLeft) {
  PipelineConfig c = Starved();
  c.disk_bytes_per_s = 100e6;
  const double predicted = Predicted(c, Part::kDecode);
  c.decode_s = 1e-9;
  EXPECT_NEAR(predicted / SpeedOf(Simulate(c)), 1, 0.2);
}

TEST(StageModel, WithoutTheNetworkDecodeIsWhatIsLeft) {
  PipelineConfig c = Starved();
  c.origin_share = 1;
  c.network_bytes_per_s = 20e6;
  const double predicted = Predicted(c, Part::kNetwork);
  c.network_bytes_per_s = 1e15;
  c.network_latency_s = 0;
  EXPECT_NEAR(predicted / SpeedOf(Simulate(c)), 1, 0.2);
}

TEST(StageModel, WithoutTheDisk) {
  PipelineConfig c = Starved();
  c.disk_bytes_per_s = 20e6;
  c.disk_latency_s = 2e-3;
  const double predicted = Predicted(c, Part::kDisk);
  c.disk_bytes_per_s = 1e15;
  c.disk_latency_s = 0;
  EXPECT_NEAR(predicted / SpeedOf(Simulate(c)), 1, 0.2);
}

TEST(StageModel, TakingAwayWhatDoesNotHoldGainsNothing) {
  PipelineConfig c;  // healthy: the loop sets the pace
  const double now = SpeedOf(Simulate(c));
  for (Part part : {Part::kDecode, Part::kNetwork, Part::kDisk, Part::kMeta})
    EXPECT_NEAR(Predicted(c, part) / now, 1, 0.03);
}

TEST(StageModel, LimitNamesTheLowestCeiling) {
  PipelineConfig c;
  const auto limit_of = [](const PipelineConfig& config) {
    return Diagnose(Simulate(config)).limit;
  };
  EXPECT_EQ(limit_of(c), "consumer");
  c = Starved();
  c.cpus = 8;
  EXPECT_EQ(limit_of(c), "workers");
  c.threads = 16;
  EXPECT_EQ(limit_of(c), "cpu");
  c = Starved();
  c.origin_share = 1;
  c.threads = 16;
  c.cpus = 16;
  c.network_bytes_per_s = 20e6;
  EXPECT_EQ(limit_of(c), "network");
}

TEST(StageModel, PartsAreNamed) {
  for (const char* name : {"decode", "network", "disk", "meta", "back-off", "python", "saves"})
    EXPECT_TRUE(ParsePart(name).ok()) << name;
  EXPECT_EQ(ParsePart("gpu").status().code(), Code::kInvalidArgument);
}

TEST(StageModel, EmptyRunIsNotUsable) {
  const StageModel model(Window{}, MachineFacts{});
  EXPECT_FALSE(model.usable());
  EXPECT_EQ(model.Without(Part::kDecode), 0);
}

}  // namespace
}  // namespace headrace::doctor
