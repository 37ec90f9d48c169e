// Random access to single samples by number: the map-style face of a dataset. Thread-safe, and safe
// across fork(): it keeps a spare reader behind one atomic pointer and takes no lock of its own.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/dataset.h"

namespace headrace::loader {

class SampleAccess {
 public:
  // Fails as Dataset::Open.
  static Result<std::unique_ptr<SampleAccess>> Open(const std::string& path,
                                                    uint32_t max_open_files, bool verify_checksums);
  SampleAccess(std::shared_ptr<const dataset::Dataset> dataset, bool verify_checksums);
  ~SampleAccess();

  const std::shared_ptr<const dataset::Dataset>& dataset() const { return dataset_; }

  // A sample and the reader whose memory its views lie in; the reader goes back when this is
  // destroyed. Must not outlive the SampleAccess.
  struct Sample {
    Sample() = default;
    ~Sample();
    Sample(const Sample&) = delete;
    Sample& operator=(const Sample&) = delete;
    const SampleAccess* owner = nullptr;
    std::unique_ptr<dataset::SampleReader> reader;
    dataset::SampleView view;
    std::vector<std::pair<std::string_view, Bytes>> fields;  // name, bytes
  };
  // Reads the named fields (empty = all). kNotFound when the dataset or the sample lacks one.
  Status Read(uint64_t id, const std::vector<std::string>& wanted, const Context& ctx,
              Sample* out) const;
  // The key of a sample.
  Status Key(uint64_t id, std::string* key) const;

 private:
  std::unique_ptr<dataset::SampleReader> TakeReader() const;
  void GiveReader(std::unique_ptr<dataset::SampleReader> reader) const;

  const std::shared_ptr<const dataset::Dataset> dataset_;
  const bool verify_checksums_;
  mutable std::atomic<dataset::SampleReader*> spare_{nullptr};
};

}  // namespace headrace::loader
