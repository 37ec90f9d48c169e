// headrace order: prints the stream that the loader will give, so that anyone can check it, and
// measures how well it is mixed. Uses the very code of the loader's plan.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/dataset/dataset.h"
#include "headrace/loader/plan/batch_plan.h"
#include "headrace/loader/plan/order.h"
#include "headrace/loader/plan/permutation.h"
#include "headrace/loader/plan/shuffle_quality.h"

namespace headrace::cli {
namespace {

using loader::BatchPlan;
using loader::EpochOrder;
using loader::Order;
using loader::ShuffleQuality;

// How often a long loop looks whether it is still wanted.
constexpr uint64_t kCheckEvery = 4096;

class OrderCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  // The batches asked for: [first, last).
  struct Range {
    uint64_t first = 0, last = 0;
  };

  Status CheckOptions() const;
  Result<Order> MakeOrder() const;
  Result<BatchPlan> MakePlan() const;
  Result<Range> FindRange(const BatchPlan& plan) const;
  Json Settings(const Order& order) const;

  Status PrintBatches(Session* session, const BatchPlan& plan, Range range);
  Status PrintJson(Session* session, const Order& order, const BatchPlan& plan, Range range);
  // Calls put(name) for each row of the batch, in the loader's sequence.
  template <typename Put>
  Status ForEachRow(const BatchPlan& plan, uint64_t batch, const Put& put);

  Status PrintStats(Session* session, const Order& order, const BatchPlan& plan, Range range);
  Result<std::vector<uint32_t>> ReadClasses(Session* session);
  template <typename SampleAt>
  ShuffleQuality Measure(const BatchPlan& plan, Range range, const std::vector<uint32_t>& classes,
                         const SampleAt& sample_at) const;

  std::string path_, tail_ = "drop", class_field_ = "cls";
  uint64_t seed_ = 0, epoch_ = 0, world_size_ = 1, from_batch_ = 0;
  uint64_t lanes_ = 0, window_ = 0;
  std::optional<uint64_t> given_batch_, rank_, batches_;
  uint64_t global_batch_ = 0;  // given_batch_, once it was checked
  bool no_shuffle_ = false, stats_ = false, ids_ = false;

  std::shared_ptr<const dataset::Dataset> dataset_;
  std::unique_ptr<dataset::SampleReader> reader_;
  std::vector<uint64_t> shard_samples_;
  std::optional<EpochOrder> stream_;
};

void OrderCommand::Declare(Arguments* arguments) {
  arguments->Text("dataset", &path_, "The data set, by path or URL");
  arguments->Count("--seed", &seed_, "The loader's seed");
  arguments->Count("--epoch", &epoch_, "The epoch, from 0");
  arguments->Count("-b,--global-batch-size", &given_batch_,
                   "Samples of a batch over all ranks; always needed");
  arguments->Count("--world-size", &world_size_, "Number of ranks");
  arguments->Count("--rank", &rank_, "Print this rank's rows; without it those of all ranks");
  arguments->Count("--from-batch", &from_batch_, "First batch to print");
  arguments->Count("--batches", &batches_, "Number of batches to print; all without it");
  arguments->Flag("--no-shuffle", &no_shuffle_, "The order of a loader with shuffle=False");
  arguments->Count("--lanes", &lanes_, "Number of lanes; 0 for the default");
  arguments->Count("--window", &window_,
                   "Shards of a lane that are mixed with each other; 0 for the default");
  arguments->Choice("--tail", &tail_, {"drop", "pad", "uneven"},
                    "What happens to the samples after the last full batch");
  arguments->Flag("--ids", &ids_, "Print sample numbers and not keys");
  arguments->Flag("--stats", &stats_,
                  "Measure how well the batches are mixed, against a full random permutation");
  arguments->Text("--class-field", &class_field_, "The field that holds the class, for --stats");
  arguments->Note(
      "One batch a line, keys separated by tabs; control characters and bytes that are not UTF-8 "
      "are "
      "\nwritten as \\t, \\n, \\\\ or \\xHH. docs/formats/order.md defines the order.");
  arguments->Example("headrace order packed/ --seed 1 --global-batch-size 256 --batches 3",
                     "The first three global batches of epoch 0");
  arguments->Example(
      "headrace order packed/ --seed 1 -b 256 --world-size 4 --rank 2 --from-batch 90",
      "What rank 2 of 4 gets from batch 90 on");
  arguments->Example("headrace order packed/ --seed 1 -b 256 --stats", "How well it is mixed");
}

Status OrderCommand::CheckOptions() const {
  if (given_batch_.value_or(0) == 0) {
    return Status(
        Code::kInvalidArgument,
        "--global-batch-size is needed, 1 or more: the samples of a batch over all ranks");
  }
  if (stats_ && rank_) {
    return Status(Code::kInvalidArgument,
                  "--stats measures the stream of all ranks; leave out --rank");
  }
  for (const auto& [name, value] :
       {std::pair("--world-size", world_size_), std::pair("--rank", rank_.value_or(0)),
        std::pair("--lanes", lanes_), std::pair("--window", window_)}) {
    if (value > UINT32_MAX) {
      return Error(Code::kInvalidArgument, "{} must be at most {}, found {}", name, UINT32_MAX,
                   value);
    }
  }
  return OkStatus();
}

Result<Order> OrderCommand::MakeOrder() const {
  loader::OrderOptions options;
  options.seed = seed_;
  options.shuffle = !no_shuffle_;
  options.lanes = static_cast<uint32_t>(lanes_);
  options.window_shards = static_cast<uint32_t>(window_);
  return Order::Create(shard_samples_, dataset_->version(), options);
}

// The plan of the rank, or of one rank that takes everything: the union of all ranks.
Result<BatchPlan> OrderCommand::MakePlan() const {
  HR_ASSIGN_OR_RETURN(const loader::Tail tail, loader::ParseTail(tail_));
  const auto world = static_cast<uint32_t>(world_size_);
  HR_ASSIGN_OR_RETURN(BatchPlan plan,
                      BatchPlan::Create(dataset_->num_samples(), global_batch_, world,
                                        static_cast<uint32_t>(rank_.value_or(0)), tail));
  if (rank_) return plan;
  return BatchPlan::Create(dataset_->num_samples(), global_batch_, 1, 0, tail);
}

Result<OrderCommand::Range> OrderCommand::FindRange(const BatchPlan& plan) const {
  const uint64_t end = plan.num_batches();
  if (from_batch_ > end) {
    return Error(Code::kInvalidArgument,
                 "--from-batch {} is beyond the end: the epoch has {} batches", from_batch_, end);
  }
  return Range{from_batch_, from_batch_ + std::min(end - from_batch_, batches_.value_or(end))};
}

Result<ExitCode> OrderCommand::Run(Session* session) {
  HR_RETURN_IF_ERROR(CheckOptions());
  global_batch_ = *given_batch_;
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, path_));
  HR_ASSIGN_OR_RETURN(dataset_, dataset::Dataset::Open(place.fs, place.path, {}));
  for (const auto& shard : dataset_->shards()) shard_samples_.push_back(shard.num_samples);
  HR_ASSIGN_OR_RETURN(const Order order, MakeOrder());
  HR_ASSIGN_OR_RETURN(const BatchPlan plan, MakePlan());
  HR_ASSIGN_OR_RETURN(const Range range, FindRange(plan));
  stream_ = order.ForEpoch(epoch_);
  reader_ = dataset::SampleReader::Create(dataset_, {});
  if (stats_) {
    HR_RETURN_IF_ERROR(PrintStats(session, order, plan, range));
  } else if (session->json) {
    HR_RETURN_IF_ERROR(PrintJson(session, order, plan, range));
  } else {
    HR_RETURN_IF_ERROR(PrintBatches(session, plan, range));
  }
  return ExitCode::kOk;
}

template <typename Put>
Status OrderCommand::ForEachRow(const BatchPlan& plan, uint64_t batch, const Put& put) {
  const uint64_t rows = plan.NumRows(batch);
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t id = stream_->SampleAt(plan.PositionOf(batch, row));
    if (ids_) {
      put(row, id, std::string_view());
      continue;
    }
    HR_ASSIGN_OR_RETURN(const dataset::SampleView sample, reader_->Locate(id));
    put(row, id, sample.key);
  }
  return OkStatus();
}

Status OrderCommand::PrintBatches(Session* session, const BatchPlan& plan, Range range) {
  std::string line;
  for (uint64_t batch = range.first; batch < range.last && !session->out->closed(); ++batch) {
    HR_RETURN_IF_ERROR(session->ctx.Check());
    line.clear();
    HR_RETURN_IF_ERROR(
        ForEachRow(plan, batch, [&](uint64_t row, uint64_t id, std::string_view key) {
          if (row > 0) line += '\t';
          line += ids_ ? std::to_string(id) : EscapeText(key);
        }));
    line += '\n';
    session->out->Write(AsBytes(line));
  }
  return OkStatus();
}

Json OrderCommand::Settings(const Order& order) const {
  const loader::OrderOptions& used = order.options();
  Json json = Json::MakeObject()
                  .Set("dataset_version", dataset_->version())
                  .Set("order_version", loader::kOrderVersion)
                  .Set("samples", order.num_samples())
                  .Set("seed", seed_)
                  .Set("epoch", epoch_)
                  .Set("shuffle", used.shuffle)
                  .Set("lanes", used.lanes)
                  .Set("window_shards", used.window_shards)
                  .Set("global_batch", global_batch_)
                  .Set("tail", tail_)
                  .Set("world_size", world_size_);
  if (rank_) json.Set("rank", *rank_);
  return json;
}

// One JSON object, a batch a line, written as it is made. When a fault ends it early, it is closed
// with "complete": false before the fault is reported.
Status OrderCommand::PrintJson(Session* session, const Order& order, const BatchPlan& plan,
                               Range range) {
  Output* out = session->out;
  out->Print("{{\"settings\": {},\n\"num_batches\": {},\n\"batches\": [", Settings(order).Dump(),
             plan.num_batches());
  Status status;
  for (uint64_t batch = range.first; batch < range.last && !out->closed(); ++batch) {
    Json rows = Json::MakeArray();
    status = session->ctx.Check();
    if (status.ok()) {
      status = ForEachRow(plan, batch, [&](uint64_t, uint64_t id, std::string_view key) {
        rows.Append(ids_ ? Json(id) : Json(EscapeText(key)));
      });
    }
    if (!status.ok()) break;
    Json entry = Json::MakeObject().Set("batch", batch).Set(ids_ ? "ids" : "keys", std::move(rows));
    out->Print("{}\n{}", batch == range.first ? "" : ",", entry.Dump());
  }
  out->Print("\n],\n\"complete\": {}}}\n", status.ok());
  return status;
}

// The class of each sample as a number, in the sequence in which the classes are met; empty when
// the data set has no such field. A sample without the field has the empty class.
Result<std::vector<uint32_t>> OrderCommand::ReadClasses(Session* session) {
  std::vector<uint32_t> classes;
  const auto field = dataset_->FindField(class_field_);
  if (!field.ok()) {
    Note(*session, fmt::format("no field '{}': the mixing of classes is not measured",
                               EscapeText(class_field_)));
    return classes;
  }
  std::unordered_map<std::string, uint32_t> numbers;
  classes.reserve(dataset_->num_samples());
  const dataset::FieldId wanted[] = {*field};
  for (uint64_t id = 0; id < dataset_->num_samples(); ++id) {
    if (id % kCheckEvery == 0) HR_RETURN_IF_ERROR(session->ctx.Check());
    HR_ASSIGN_OR_RETURN(const dataset::SampleView sample, reader_->Read(id, wanted, session->ctx));
    const dataset::FieldView* found = sample.Find(*field);
    std::string value(found == nullptr ? std::string_view() : AsText(found->data));
    classes.push_back(
        numbers.emplace(std::move(value), static_cast<uint32_t>(numbers.size())).first->second);
  }
  return classes;
}

template <typename SampleAt>
ShuffleQuality OrderCommand::Measure(const BatchPlan& plan, Range range,
                                     const std::vector<uint32_t>& classes,
                                     const SampleAt& sample_at) const {
  loader::ShuffleMeter meter(shard_samples_, classes, global_batch_);
  for (uint64_t batch = range.first; batch < range.last; ++batch) {
    const uint64_t rows = plan.NumRows(batch);
    for (uint64_t row = 0; row < rows; ++row) meter.Add(sample_at(plan.PositionOf(batch, row)));
  }
  return meter.Quality();
}

Json QualityJson(const ShuffleQuality& quality) {
  return Json::MakeObject()
      .Set("samples", quality.samples)
      .Set("full_batches", quality.batches)
      .Set("serial_correlation", quality.serial_correlation)
      .Set("mean_jump", quality.mean_jump)
      .Set("same_shard_rate", quality.same_shard_rate)
      .Set("shards_per_batch", quality.shards_per_batch)
      .Set("classes_per_batch", quality.classes_per_batch)
      .Set("class_imbalance", quality.class_imbalance);
}

Status OrderCommand::PrintStats(Session* session, const Order& order, const BatchPlan& plan,
                                Range range) {
  HR_ASSIGN_OR_RETURN(const std::vector<uint32_t> classes, ReadClasses(session));
  const ShuffleQuality own =
      Measure(plan, range, classes, [this](uint64_t p) { return stream_->SampleAt(p); });
  const ShuffleQuality full = Measure(
      plan, range, classes, loader::KeyedPermutation(order.num_samples(), HashKey(seed_, epoch_)));
  const ShuffleQuality expected =
      loader::ExpectedOfRandomPermutation(shard_samples_, classes, global_batch_);
  Output* out = session->out;
  if (session->json) {
    out->Print(Json::MakeObject()
                   .Set("settings", Settings(order))
                   .Set("order", QualityJson(own))
                   .Set("full_permutation", QualityJson(full))
                   .Set("expected_of_random", QualityJson(expected)));
    return OkStatus();
  }
  out->Print("{} samples in {} full batches of {}; {} lanes, windows of {} shards\n\n",
             FormatCount(own.samples), FormatCount(own.batches), FormatCount(global_batch_),
             order.options().lanes, order.options().window_shards);
  out->Print("{:<32}{:>12}{:>18}{:>12}\n", "", "this order", "full permutation", "expected");
  const auto row = [&](const char* name, double ShuffleQuality::* figure) {
    out->Print("{:<32}{:>12.4f}{:>18.4f}{:>12.4f}\n", name, own.*figure, full.*figure,
               expected.*figure);
  };
  row("serial correlation", &ShuffleQuality::serial_correlation);
  row("mean jump / samples", &ShuffleQuality::mean_jump);
  row("neighbors from one shard", &ShuffleQuality::same_shard_rate);
  row("shards in a batch", &ShuffleQuality::shards_per_batch);
  if (classes.empty()) return OkStatus();
  row("classes in a batch", &ShuffleQuality::classes_per_batch);
  row("class imbalance", &ShuffleQuality::class_imbalance);
  return OkStatus();
}

}  // namespace

std::unique_ptr<Command> MakeOrderCommand() { return std::make_unique<OrderCommand>(); }

}  // namespace headrace::cli
