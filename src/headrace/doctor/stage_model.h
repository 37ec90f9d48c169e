// A model of one rank's pipeline made from what was measured: how many samples a second each of its
// resources could give, and so what taking one away would change. Pure; thread-safe once made.
//
// The pipeline's ceilings, in samples per second:
//   workers   threads / seconds of a worker's time that a sample takes, less what it waits for a
//             processor
//   cpu       processors / processor seconds of a sample
//   network   the network's limit / bytes that a sample brings over it
//   disk      the device's limit / bytes that a sample reads from it
// The consumer's: 1 / (compute + Python + save stall of a sample). The lowest one is what the job
// reaches; a ceiling whose limit is not known is left out. Where the input holds the job back the
// pipeline's ceilings are scaled so that the lowest is what was observed.
#pragma once

#include <cstdint>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/doctor/run.h"

namespace headrace::doctor {

// What a prediction takes away.
enum class Part : uint8_t { kDecode, kNetwork, kDisk, kMeta, kBackOff, kPython, kSaves };
// "decode", "network", "disk", "meta", "back-off", "python", "saves". kInvalidArgument names them.
Result<Part> ParsePart(std::string_view name);

struct Ceiling {
  std::string_view name;
  double samples_per_s = 0;
};

class StageModel {
 public:
  // `total` is the sum of a rank's windows; `compute_s` what a sample costs the consumer when no
  // rank waits for another; below 0: total.step_s / total.samples.
  StageModel(const Window& total, const MachineFacts& machine, double compute_s = -1);

  bool usable() const { return samples_ > 0 && worker_s_ > 0 && threads_ > 0; }
  double observed() const { return observed_; }
  // What the model gives for the run as it is. Beside observed() it tells how good the model is.
  Ceiling Limit() const;

  // Samples per second without a part, or with other resources. observed() when not usable().
  double Without(Part part) const;
  double WithThreads(double threads) const;
  // Without `seconds` of a worker's time for each sample, processor time if `cpu`.
  double WithoutSeconds(double seconds, bool cpu) const;
  // With all bytes from the network read from the local device instead, at its limit where known.
  double FromLocalDisk() const;
  // With a device that gives each byte a sample needs, as a cold page cache makes it.
  double WithColdDisk(double bytes_per_s) const;

  // Seconds of a worker's time that a sample takes, in all and for a part, less waiting for a
  // processor.
  double worker_s() const { return worker_s_; }
  double part_s(Part part) const;
  double compute_s() const { return compute_s_; }
  // The share of the workers' time in which they had work.
  double worker_use() const;
  // The part of a limit that is used, 0 where the limit is not known.
  double network_use() const;
  double disk_use() const;
  double cpu_use() const;

 private:
  struct Terms {
    double threads, worker_s, cpu_s, network_bytes, disk_bytes, consumer_s;
    double disk_bytes_per_s;
  };
  Terms Now() const;
  Ceiling PipelineLimit(const Terms& terms) const;
  double Predict(const Terms& terms) const;

  MachineFacts machine_;
  double samples_ = 0, observed_ = 0;
  double threads_ = 0;
  // For each sample:
  double busy_s_ = 0, worker_s_ = 0, decode_s_ = 0, fetch_s_ = 0, disk_s_ = 0, meta_s_ = 0,
         back_off_s_ = 0;
  double cpu_s_ = 0;
  double network_bytes_ = 0, disk_bytes_ = 0, read_bytes_ = 0;
  double compute_s_ = 0, python_s_ = 0, save_s_ = 0;
  double scale_ = 1;
};

}  // namespace headrace::doctor
