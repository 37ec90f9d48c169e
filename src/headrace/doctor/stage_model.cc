#include "headrace/doctor/stage_model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "headrace/base/text.h"

namespace headrace::doctor {
namespace {

constexpr std::array<std::pair<std::string_view, Part>, 7> kParts{{{"decode", Part::kDecode},
                                                                   {"network", Part::kNetwork},
                                                                   {"disk", Part::kDisk},
                                                                   {"meta", Part::kMeta},
                                                                   {"back-off", Part::kBackOff},
                                                                   {"python", Part::kPython},
                                                                   {"saves", Part::kSaves}}};
// Below this stall the consumer, not the pipeline, sets the pace, and the pipeline's ceilings
// cannot be told from the observed speed.
constexpr double kPipelineSetsThePace = 0.02;
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

Result<Part> ParsePart(std::string_view name) {
  for (const auto& [known, part] : kParts)
    if (known == name) return part;
  return Error(Code::kInvalidArgument,
               "there is no part '{}' to take away: expected decode, network, disk, meta, "
               "back-off, python or saves",
               EscapeText(name));
}

StageModel::StageModel(const Window& total, const MachineFacts& machine, double compute_s)
    : machine_(machine),
      samples_(static_cast<double>(total.samples)),
      observed_(total.samples_per_s()),
      threads_(total.threads) {
  if (samples_ == 0) return;
  auto each = [this](double sum) { return sum / samples_; };
  for (Stage stage : {Stage::kPlan, Stage::kMeta, Stage::kFetch, Stage::kCache, Stage::kRead,
                      Stage::kChecksum, Stage::kDecode, Stage::kTransform, Stage::kCollate})
    busy_s_ += each(total.busy_s(stage));
  // Waiting for a processor is the processors' limit, not the workers': it is counted there.
  const double decode = each(total.busy_s(Stage::kDecode) + total.busy_s(Stage::kTransform));
  const double delay = std::min(each(total.run_delay_s), decode);
  worker_s_ = busy_s_ - delay;
  decode_s_ = decode - delay;
  back_off_s_ = each(total.back_off_s);
  fetch_s_ = each(total.busy_s(Stage::kFetch));
  disk_s_ = each(total.busy_s(Stage::kRead) + total.busy_s(Stage::kCache));
  meta_s_ = each(total.busy_s(Stage::kMeta));
  cpu_s_ = each(total.cpu_s);
  network_bytes_ = each(static_cast<double>(total.origin_bytes));
  read_bytes_ =
      each(static_cast<double>(total.stage(Stage::kRead).bytes + total.stage(Stage::kCache).bytes));
  disk_bytes_ = total.knows_device ? each(static_cast<double>(total.device_bytes)) : 0;
  compute_s_ = compute_s >= 0 ? compute_s : each(total.step_s);
  python_s_ = each(total.python_s);
  save_s_ = each(total.save_stall_s);
  const double limit = PipelineLimit(Now()).samples_per_s;
  const double stall = Ratio(total.input_wait_s, total.seconds);
  if (stall >= kPipelineSetsThePace && limit < kUnlimited && limit > 0) scale_ = observed_ / limit;
}

StageModel::Terms StageModel::Now() const {
  return {threads_,
          worker_s_,
          cpu_s_,
          network_bytes_,
          disk_bytes_,
          compute_s_ + python_s_ + save_s_,
          machine_.disk_bytes_per_s};
}

Ceiling StageModel::PipelineLimit(const Terms& terms) const {
  // Workers that wait for a full network or disk look busy, so that both ceilings are met at once;
  // then the limit is the resource's.
  constexpr double kAtOnce = 1.1;
  Ceiling lowest{"workers", terms.worker_s > 0 ? terms.threads / terms.worker_s : kUnlimited};
  auto consider = [&lowest](std::string_view name, double limit, double need) {
    if (limit <= 0 || need <= 0) return;
    const double ceiling = limit / need;
    const double border = lowest.samples_per_s * (lowest.name == "workers" ? kAtOnce : 1);
    if (ceiling < border) lowest = {name, std::min(ceiling, lowest.samples_per_s)};
  };
  consider("cpu", machine_.cpus, terms.cpu_s);
  consider("network", machine_.network_bytes_per_s, terms.network_bytes);
  consider("disk", terms.disk_bytes_per_s, terms.disk_bytes);
  return lowest;
}

double StageModel::Predict(const Terms& terms) const {
  if (!usable()) return observed_;
  const double consumer = terms.consumer_s > 0 ? 1 / terms.consumer_s : kUnlimited;
  const double predicted = std::min(PipelineLimit(terms).samples_per_s * scale_, consumer);
  return predicted < kUnlimited ? predicted : observed_;
}

Ceiling StageModel::Limit() const {
  const Terms terms = Now();
  Ceiling limit = PipelineLimit(terms);
  limit.samples_per_s *= scale_;
  const double consumer = terms.consumer_s > 0 ? 1 / terms.consumer_s : kUnlimited;
  if (consumer <= limit.samples_per_s) limit = {"consumer", consumer};
  return limit;
}

double StageModel::part_s(Part part) const {
  switch (part) {
    case Part::kDecode:
      return decode_s_;
    case Part::kNetwork:
      return fetch_s_;
    case Part::kDisk:
      return disk_s_;
    case Part::kMeta:
      return meta_s_;
    case Part::kBackOff:
      return back_off_s_;
    case Part::kPython:
      return python_s_;
    case Part::kSaves:
      return save_s_;
  }
  return 0;
}

double StageModel::Without(Part part) const {
  Terms terms = Now();
  if (part == Part::kPython || part == Part::kSaves) {
    terms.consumer_s -= part_s(part);
    if (part == Part::kPython) terms.cpu_s = std::max(0.0, terms.cpu_s - python_s_);
    return Predict(terms);
  }
  terms.worker_s = std::max(0.0, terms.worker_s - part_s(part));
  if (part == Part::kNetwork) terms.network_bytes = 0;
  if (part == Part::kDisk) terms.disk_bytes = 0;
  if (part == Part::kDecode) terms.cpu_s = std::max(0.0, terms.cpu_s - decode_s_);
  return Predict(terms);
}

double StageModel::WithThreads(double threads) const {
  Terms terms = Now();
  terms.threads = threads;
  return Predict(terms);
}

double StageModel::WithoutSeconds(double seconds, bool cpu) const {
  Terms terms = Now();
  terms.worker_s = std::max(0.0, terms.worker_s - seconds);
  if (cpu) terms.cpu_s = std::max(0.0, terms.cpu_s - seconds);
  return Predict(terms);
}

double StageModel::FromLocalDisk() const {
  Terms terms = Now();
  terms.worker_s = std::max(0.0, terms.worker_s - fetch_s_);
  terms.worker_s += Ratio(network_bytes_, machine_.disk_bytes_per_s);
  terms.disk_bytes += terms.network_bytes;
  terms.network_bytes = 0;
  return Predict(terms);
}

double StageModel::WithColdDisk(double bytes_per_s) const {
  Terms terms = Now();
  terms.disk_bytes = read_bytes_;
  terms.disk_bytes_per_s = bytes_per_s;
  return std::min(observed_, Predict(terms));
}

double StageModel::worker_use() const { return Ratio(observed_ * busy_s_, threads_); }
double StageModel::network_use() const {
  return Ratio(observed_ * network_bytes_, machine_.network_bytes_per_s);
}
double StageModel::disk_use() const {
  return Ratio(observed_ * disk_bytes_, machine_.disk_bytes_per_s);
}
double StageModel::cpu_use() const { return Ratio(observed_ * cpu_s_, machine_.cpus); }

}  // namespace headrace::doctor
