// headrace doctor --fix on a job that is simulated behind a real admin socket: each look at it is a
// window of its time.
#include "headrace/cli/doctor_fix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "headrace/base/mutex.h"
#include "headrace/doctor/testing/pipeline_simulator.h"
#include "headrace/doctor/testing/simulated_snapshots.h"
#include "headrace/env/exchange.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/net/request_reader.h"

namespace headrace::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::chrono::milliseconds kWindow{5};

// A process with 2 threads where 8 would be right.
class SimulatedJob {
 public:
  explicit SimulatedJob(uint64_t most_threads) : most_threads_(most_threads) {
    config_.threads = 2;
    config_.cpus = 8;
    config_.decode_s = 20e-3;
    config_.duration_s = 80;
    MutexLock lock(&mu_);
    Play();
    server_ = *ExchangeServer::ListenLocal(
        socket(), {}, [this](std::string_view received) { return Answer(received); });
  }

  std::string socket() const { return dir_ / "job.sock"; }
  // What it was asked to set, in order.
  std::vector<uint64_t> asked() {
    MutexLock lock(&mu_);
    return asked_;
  }
  // From now on so many threads work, whatever is asked for.
  void LetWorkOnly(int threads) {
    MutexLock lock(&mu_);
    really_ = threads;
  }
  void Refuse() {
    MutexLock lock(&mu_);
    refuses_ = true;
  }
  void OnChange(std::function<void()> call) {
    MutexLock lock(&mu_);
    on_change_ = std::move(call);
  }

 private:
  void Play() HR_REQUIRES(mu_) {
    seen_ = doctor::testing::SnapshotsOf(doctor::testing::Simulate(config_).ranks[0]);
  }

  std::optional<std::string> Answer(std::string_view received) {
    auto request = net::ReadRequest(received);
    if (!request.ok() || !*request) return std::nullopt;
    MutexLock lock(&mu_);
    if ((*request)->path == "/settings") return Change((*request)->body);
    ProcessSnapshot now = seen_[std::min(looks_++, seen_.size() - 1)];
    now.pid = 4711;
    now.settings = {{"threads", threads_, 1, most_threads_}};
    return net::WriteAnswer(200, "application/json", now.ToJson().Dump());
  }

  std::string Change(const std::string& body) HR_REQUIRES(mu_) {
    if (refuses_) return net::WriteAnswer(400, "application/json", R"({"error": "not now"})");
    threads_ = Json::Parse(body)->Find("threads")->AsUint();
    asked_.push_back(threads_);
    const int working = really_ > 0 ? really_ : static_cast<int>(threads_);
    config_.threads_changes.push_back({static_cast<double>(looks_), working});
    Play();
    if (on_change_) on_change_();
    return net::WriteAnswer(200, "application/json", "{}");
  }

  const TemporaryDirectory dir_;
  const uint64_t most_threads_;
  Mutex mu_;
  doctor::testing::PipelineConfig config_;
  std::vector<ProcessSnapshot> seen_ HR_GUARDED_BY(mu_);
  size_t looks_ HR_GUARDED_BY(mu_) = 0;
  uint64_t threads_ HR_GUARDED_BY(mu_) = 2;
  int really_ HR_GUARDED_BY(mu_) = 0;
  bool refuses_ HR_GUARDED_BY(mu_) = false;
  std::function<void()> on_change_ HR_GUARDED_BY(mu_);
  std::vector<uint64_t> asked_ HR_GUARDED_BY(mu_);
  std::unique_ptr<ExchangeServer> server_;  // last: ends first
};

class DoctorFixTest : public ::testing::Test {
 protected:
  Result<ExitCode> Fix(SimulatedJob* job, bool json, bool dry_run = false) {
    printed_.clear();
    Output output([this](Bytes data) {
      printed_ += AsText(data);
      return OkStatus();
    });
    Session session;
    session.fs = &files_;
    session.out = &output;
    session.json = json;
    session.quiet = true;
    session.ctx.cancelled = &cancelled_;
    FixOptions options;
    options.watch = {.who = job->socket(), .length = 14 * kWindow, .window = kWindow};
    options.dry_run = dry_run;
    Result<ExitCode> code = FixLiveRun(&session, options);
    EXPECT_TRUE(output.Flush().ok());
    return code;
  }

  MemoryFileSystem files_;
  std::atomic<bool> cancelled_{false};
  std::string printed_;
};

TEST_F(DoctorFixTest, SetsWhatIsFoundAndMeasuresTheGain) {
  SimulatedJob job(8);
  auto code = Fix(&job, /*json=*/true);
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  EXPECT_EQ(*code, ExitCode::kOk) << printed_;
  EXPECT_THAT(job.asked(), ElementsAre(8u));
  auto json = Json::Parse(printed_);
  ASSERT_TRUE(json.ok()) << printed_;
  ASSERT_EQ(json->Find("changes")->items().size(), 1u);
  const Json& change = json->Find("changes")->items()[0];
  EXPECT_EQ(change.Find("check")->AsString(), "decode-bound");
  EXPECT_EQ(change.Find("from")->AsUint(), 2u);
  EXPECT_EQ(change.Find("to")->AsUint(), 8u);
  EXPECT_EQ(json->Find("verdict")->AsString(), "faster");
  EXPECT_FALSE(json->Find("set_back")->AsBool());
  const double predicted = change.Find("predicted_gain")->AsDouble();
  EXPECT_NEAR((1 + json->Find("measured_gain")->AsDouble()) / (1 + predicted), 1, 0.2);
}

TEST_F(DoctorFixTest, SaysSoInWords) {
  SimulatedJob job(4);
  auto code = Fix(&job, /*json=*/false);
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  EXPECT_EQ(*code, ExitCode::kProblemFound) << "4 threads are not enough";
  EXPECT_THAT(job.asked(), ElementsAre(4u));
  EXPECT_THAT(printed_, HasSubstr("set process 4711: threads from 2 to 4, for decode-bound"));
  EXPECT_THAT(printed_, HasSubstr("8 would be more of the cure, but the job was given 1 to 4"));
  EXPECT_THAT(printed_, HasSubstr("it stays"));
}

TEST_F(DoctorFixTest, SetsBackWhatMadeItSlower) {
  SimulatedJob job(8);
  job.LetWorkOnly(1);
  auto code = Fix(&job, /*json=*/true);
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  EXPECT_EQ(*code, ExitCode::kProblemFound);
  EXPECT_THAT(job.asked(), ElementsAre(8u, 2u));
  auto json = Json::Parse(printed_);
  ASSERT_TRUE(json.ok()) << printed_;
  EXPECT_EQ(json->Find("verdict")->AsString(), "slower");
  EXPECT_TRUE(json->Find("set_back")->AsBool());
  EXPECT_LT(json->Find("measured_gain")->AsDouble(), -0.3);
}

TEST_F(DoctorFixTest, DryRunOnlySays) {
  SimulatedJob job(8);
  auto code = Fix(&job, /*json=*/false, /*dry_run=*/true);
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  EXPECT_EQ(*code, ExitCode::kProblemFound);
  EXPECT_THAT(job.asked(), IsEmpty());
  EXPECT_THAT(printed_, HasSubstr("would set process 4711: threads from 2 to 8"));
  EXPECT_THAT(printed_, Not(HasSubstr("measured:")));
}

TEST_F(DoctorFixTest, NeverLeavesTheBudget) {
  SimulatedJob job(2);
  auto code = Fix(&job, /*json=*/false);
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  EXPECT_EQ(*code, ExitCode::kProblemFound);
  EXPECT_THAT(job.asked(), IsEmpty());
  EXPECT_THAT(printed_, HasSubstr("left alone: process 4711: decode-bound: threads is 2 already"));
  EXPECT_THAT(printed_, HasSubstr("There is nothing that --fix can set."));
}

TEST_F(DoctorFixTest, RefusalIsTold) {
  SimulatedJob job(8);
  job.Refuse();
  auto code = Fix(&job, /*json=*/true);
  ASSERT_FALSE(code.ok());
  EXPECT_THAT(code.status().ToString(), HasSubstr("process 4711: not now"));
  EXPECT_EQ(printed_, "");
}

TEST_F(DoctorFixTest, AnInterruptSetsBack) {
  SimulatedJob job(8);
  job.OnChange([this] { cancelled_ = true; });
  auto code = Fix(&job, /*json=*/true);
  EXPECT_EQ(code.status().code(), Code::kCancelled);
  EXPECT_THAT(job.asked(), ElementsAre(8u, 2u));
}

}  // namespace
}  // namespace headrace::cli
