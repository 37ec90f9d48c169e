// headrace bench: runs the loader over a data set as a training job would and says how fast it is,
// what each stage costs, and what the machine's own limits are, measured in the same run.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "headrace/agent/process_watch.h"
#include "headrace/agent/run_recording.h"
#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/cli/progress_line.h"
#include "headrace/dataset/dataset.h"
#include "headrace/env/process.h"
#include "headrace/loader/loader.h"
#include "headrace/loader/loader_snapshot.h"

namespace headrace::cli {
namespace {

using loader::Loader;
using loader::LoaderOptions;
using loader::LoaderStats;

// Rate of `work`, which handles `bytes` a call, over about a fifth of a second. Bytes per second.
template <typename Work>
double MeasureRate(uint64_t bytes, const Work& work) {
  constexpr uint64_t kNanos = 200'000'000;
  work();  // touch the memory once
  const uint64_t start = NowNanos();
  uint64_t calls = 0, now = start;
  for (; now - start < kNanos; now = NowNanos(), ++calls) work();
  return static_cast<double>(calls * bytes) * 1e9 / static_cast<double>(now - start);
}

struct MachineLimits {
  double copy_rate = 0, checksum_rate = 0;  // bytes per second of one thread, out of cache
};

Result<MachineLimits> MeasureLimits() {
  constexpr uint64_t kBytes = 128 << 20;
  AlignedBuffer from, to;
  if (!from.Reserve(kBytes, true) || !to.Reserve(kBytes, true))
    return Error(Code::kResourceExhausted, "no memory for the buffers of {}",
                 FormatSize(2 * kBytes));
  std::memset(from.data(), 1, kBytes);
  MachineLimits limits;
  limits.copy_rate = MeasureRate(kBytes, [&] { std::memcpy(to.data(), from.data(), kBytes); });
  uint32_t sum = 0;
  limits.checksum_rate = MeasureRate(kBytes, [&] { sum ^= Crc32c({to.data(), kBytes}, sum); });
  return limits;
}

struct PassResult {
  uint64_t samples = 0;
  double seconds = 0, cpu_seconds = 0;
};

class BenchCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  std::string TransformJson() const;
  Result<LoaderOptions> Options(const dataset::Dataset& dataset) const;
  Result<PassResult> RunPass(Session* session, Loader* loader, uint64_t epoch,
                             std::atomic<uint64_t>* samples) const;
  void PrintText(Session* session, const PassResult& pass, const LoaderStats& stats,
                 const MachineLimits& limits) const;
  Json ToJson(const PassResult& pass, const LoaderStats& stats, const MachineLimits& limits) const;

  std::string path_, record_, mode_ = "train", dtype_ = "float32", layout_ = "NCHW",
                              image_field_ = "jpg";
  uint64_t batch_ = 64, threads_ = 0, size_ = 224, passes_ = 2, seed_ = 0;
  uint64_t memory_bytes_ = uint64_t{128} << 20;
  bool no_verify_ = false;
};

void BenchCommand::Declare(Arguments* arguments) {
  arguments->Text("dataset", &path_, "The data set, by path or URL");
  arguments->Choice("--mode", &mode_, {"train", "eval", "raw"},
                    "train: random crop and flip; eval: center crop; raw: bytes as they are");
  arguments->Text("--image-field", &image_field_, "The field that holds the image");
  arguments->Count("--size", &size_, "Side of the square output in pixels");
  arguments->Choice("--dtype", &dtype_, {"uint8", "float16", "bfloat16", "float32"},
                    "Type of the output");
  arguments->Choice("--layout", &layout_, {"NCHW", "NHWC"}, "Layout of the output");
  arguments->Count("-b,--batch-size", &batch_, "Samples of a batch");
  arguments->Count("--threads", &threads_, "Worker threads; 0 for one per processor");
  arguments->Size("--memory", &memory_bytes_, "Limit for batches under way");
  arguments->Count("--passes", &passes_, "Passes over the data; the last is reported");
  arguments->Count("--seed", &seed_, "Seed of the order and of the random draws");
  arguments->Text("--record", &record_,
                  "Keep the record of the run in this folder, for doctor, report and compare");
  arguments->Flag("--no-verify", &no_verify_, "Do not check checksums");
  arguments->Example("headrace bench photos.hr", "The train pipeline at 224 x 224, float32");
  arguments->Example("headrace bench photos.hr --mode raw --threads 1", "Bytes only, one thread");
}

std::string BenchCommand::TransformJson() const {
  Json size = Json::MakeArray().Append(size_).Append(size_);
  Json ops = Json::MakeArray();
  if (mode_ == "train") {
    ops.Append(Json::MakeObject().Set("op", "random_resized_crop").Set("size", size));
    ops.Append(Json::MakeObject().Set("op", "random_horizontal_flip"));
  } else {
    ops.Append(Json::MakeObject().Set("op", "resize").Set("short_side", size_ * 8 / 7));
    ops.Append(Json::MakeObject().Set("op", "center_crop").Set("size", size));
  }
  if (dtype_ != "uint8") {
    ops.Append(Json::MakeObject()
                   .Set("op", "normalize")
                   .Set("mean", Json::MakeArray().Append(0.485).Append(0.456).Append(0.406))
                   .Set("std", Json::MakeArray().Append(0.229).Append(0.224).Append(0.225)));
  }
  Json json;
  json.Set("type", "image").Set("ops", ops).Set("dtype", dtype_).Set("layout", layout_);
  return json.Dump();
}

Result<LoaderOptions> BenchCommand::Options(const dataset::Dataset& dataset) const {
  LoaderOptions options;
  options.order.seed = seed_;
  options.global_batch = batch_;
  options.threads =
      threads_ == 0 ? AvailableCpus() : static_cast<int>(std::min(threads_, uint64_t{1024}));
  options.memory_bytes = memory_bytes_;
  options.tail = loader::Tail::kUneven;
  options.verify_checksums = !no_verify_;
  if (mode_ == "raw") {
    for (const std::string& field : dataset.fields()) options.columns.push_back({field, "", false});
  } else {
    options.columns.push_back({image_field_, TransformJson(), true});
  }
  return options;
}

// Counts the samples in `samples`, too.
Result<PassResult> BenchCommand::RunPass(Session* session, Loader* loader, uint64_t epoch,
                                         std::atomic<uint64_t>* samples) const {
  const uint64_t start = NowNanos();
  const double cpu = ProcessCpuSeconds();
  PassResult pass;
  HR_RETURN_IF_ERROR(loader->Begin(epoch, 0));
  while (true) {
    HR_ASSIGN_OR_RETURN(std::shared_ptr<loader::Batch> batch, loader->Next(session->ctx));
    if (!batch) break;
    pass.samples += batch->num_rows;
    *samples += batch->num_rows;
  }
  pass.seconds = static_cast<double>(NowNanos() - start) * 1e-9;
  pass.cpu_seconds = ProcessCpuSeconds() - cpu;
  return pass;
}

Result<ExitCode> BenchCommand::Run(Session* session) {
  if (passes_ == 0) return Status(Code::kInvalidArgument, "--passes must be at least 1");
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, path_));
  HR_ASSIGN_OR_RETURN(auto dataset, dataset::Dataset::Open(place.fs, place.path, {}));
  HR_ASSIGN_OR_RETURN(LoaderOptions options, Options(*dataset));
  // Short, since a pass may be.
  constexpr std::chrono::milliseconds kRecordInterval{500};
  agent::ProcessWatch* watch = &agent::ProcessWatch::OfThisProcess();
  PassResult pass;
  LoaderStats stats;
  // A loader of its own for each pass, so that none works ahead for the next one on this one's
  // time.
  std::unique_ptr<agent::RunRecording> recording;
  for (uint64_t p = 0; p < passes_; ++p) {
    HR_ASSIGN_OR_RETURN(auto loader, Loader::Create(dataset, options));
    auto watched = watch->Add(
        [&loader](ProcessSnapshot* snapshot) { loader::AddToSnapshot(*loader, snapshot); });
    if (!record_.empty() && !recording) {
      agent::RunRecording::Options record;
      record.directory = record_;
      record.interval = kRecordInterval;
      HR_ASSIGN_OR_RETURN(recording, agent::RunRecording::Start(session->fs, watch, record));
    }
    std::atomic<uint64_t> samples{0};
    Result<PassResult> passed = [&] {
      ProgressLine line(fmt::format("pass {} of {}", p + 1, passes_), *session,
                        [&samples, total = dataset->num_samples()] {
                          return ProgressFigures{samples, total, 0, 0};
                        });
      return RunPass(session, loader.get(), p, &samples);
    }();
    HR_ASSIGN_OR_RETURN(pass, std::move(passed));
    stats = loader->stats();
    Note(*session, fmt::format("pass {} of {}: {:.0f} samples/s", p + 1, passes_,
                               static_cast<double>(pass.samples) / pass.seconds));
  }
  HR_ASSIGN_OR_RETURN(MachineLimits limits, MeasureLimits());
  if (session->json)
    session->out->Print(ToJson(pass, stats, limits));
  else
    PrintText(session, pass, stats, limits);
  return ExitCode::kOk;
}

void BenchCommand::PrintText(Session* session, const PassResult& pass, const LoaderStats& stats,
                             const MachineLimits& limits) const {
  Output* out = session->out;
  const auto samples = static_cast<double>(pass.samples);
  out->Print("{} samples in {:.2f} s: {:.0f} samples/s, {:.0f} per CPU-second\n",
             FormatCount(pass.samples), pass.seconds, samples / pass.seconds,
             samples / pass.cpu_seconds);
  out->Print("first batch after {:.1f} ms; the loader held at most {}\n\n",
             static_cast<double>(stats.first_batch_ns) * 1e-6, FormatSize(stats.peak_memory_bytes));
  out->Print("{:<12}{:>10}{:>12}{:>12}{:>12}{:>14}\n", "stage", "count", "busy s", "us each",
             "p99 us", "bytes/s");
  for (size_t i = 0; i < kNumStages; ++i) {
    const StageTotals& stage = stats.stages[i];
    if (stage.count == 0) continue;
    const auto count = static_cast<double>(stage.count);
    const double busy = static_cast<double>(stage.busy_ns) * 1e-9;
    const auto rate =
        static_cast<uint64_t>(static_cast<double>(stage.bytes) / std::max(busy, 1e-9));
    out->Print("{:<12}{:>10}{:>12.3f}{:>12.1f}{:>12.1f}{:>14}\n", StageName(static_cast<Stage>(i)),
               stage.count, busy, busy * 1e6 / count,
               static_cast<double>(stage.Percentile(0.99)) * 1e-3,
               stage.bytes == 0 ? "" : FormatSize(rate));
  }
  out->Print("\nthis machine, one thread: copy {}/s, CRC32C {}/s\n",
             FormatSize(static_cast<uint64_t>(limits.copy_rate)),
             FormatSize(static_cast<uint64_t>(limits.checksum_rate)));
}

Json BenchCommand::ToJson(const PassResult& pass, const LoaderStats& stats,
                          const MachineLimits& limits) const {
  Json stages = Json::MakeObject();
  for (size_t i = 0; i < kNumStages; ++i) {
    const StageTotals& stage = stats.stages[i];
    if (stage.count == 0 && stage.wait_ns == 0) continue;
    stages.Set(std::string(StageName(static_cast<Stage>(i))),
               Json::MakeObject()
                   .Set("busy_ns", stage.busy_ns)
                   .Set("wait_ns", stage.wait_ns)
                   .Set("bytes", stage.bytes)
                   .Set("count", stage.count)
                   .Set("p50_ns", stage.Percentile(0.5))
                   .Set("p99_ns", stage.Percentile(0.99)));
  }
  const auto samples = static_cast<double>(pass.samples);
  return Json::MakeObject()
      .Set("mode", mode_)
      .Set("dtype", dtype_)
      .Set("samples", pass.samples)
      .Set("seconds", pass.seconds)
      .Set("cpu_seconds", pass.cpu_seconds)
      .Set("samples_per_second", samples / pass.seconds)
      .Set("samples_per_cpu_second", samples / pass.cpu_seconds)
      .Set("first_batch_ns", stats.first_batch_ns)
      .Set("peak_memory_bytes", stats.peak_memory_bytes)
      .Set("stages", stages)
      .Set("copy_bytes_per_second", limits.copy_rate)
      .Set("checksum_bytes_per_second", limits.checksum_rate);
}

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace headrace::cli
