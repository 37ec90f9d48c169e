// Makes what the row loaders of one loader share. Any thread.
#pragma once

#include <memory>

#include "headrace/base/status.h"
#include "headrace/dataset/dataset.h"
#include "headrace/loader/loader.h"
#include "headrace/loader/row_loader.h"

namespace headrace::loader {

// kNotFound: a column names a field that the dataset does not have. kInvalidArgument: a transform
// or an order that makes no sense.
Result<std::shared_ptr<RowPlan>> MakeRowPlan(std::shared_ptr<const dataset::Dataset> dataset,
                                             const LoaderOptions& options);

}  // namespace headrace::loader
