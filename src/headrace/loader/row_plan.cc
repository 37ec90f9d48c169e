#include "headrace/loader/row_plan.h"

#include <utility>
#include <vector>

namespace headrace::loader {

Result<std::shared_ptr<RowPlan>> MakeRowPlan(std::shared_ptr<const dataset::Dataset> dataset,
                                             const LoaderOptions& options) {
  auto plan = std::make_shared<RowPlan>();
  for (const LoaderOptions::Column& column : options.columns) {
    HR_ASSIGN_OR_RETURN(dataset::FieldId field, dataset->FindField(column.field));
    ColumnSpec spec{column.field, nullptr};
    if (!column.transform_json.empty()) {
      HR_ASSIGN_OR_RETURN(spec.transform, codec::CreateTransform(column.transform_json));
    }
    plan->columns.push_back(std::move(spec));
    plan->column_fields.push_back(field);
    plan->required.push_back(column.required);
  }
  std::vector<uint64_t> sizes;
  for (const dataset::ShardInfo& shard : dataset->shards()) sizes.push_back(shard.num_samples);
  HR_ASSIGN_OR_RETURN(Order order, Order::Create(sizes, dataset->version(), options.order));
  plan->order = std::make_shared<const Order>(std::move(order));
  plan->on_error = options.on_error;
  plan->read.verify_checksums = options.verify_checksums;
  plan->read.seek_points = true;
  plan->read.learn_seek_points = std::make_shared<dataset::SeekPointCounters>();
  plan->dataset = std::move(dataset);
  return plan;
}

}  // namespace headrace::loader
