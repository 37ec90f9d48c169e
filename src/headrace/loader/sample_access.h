// Random access to single samples by number: the map-style face of a dataset. Thread-safe, and safe
// across fork(): it keeps a spare reader (and a decoder) behind an atomic pointer each and takes no
// lock of its own.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"
#include "headrace/dataset/dataset.h"
#include "headrace/object/url_settings.h"

namespace headrace::loader {

class SampleAccess {
 public:
  // Opens what a path or a URL names; `storage` is how URLs are reached. Fails as object::LocateUrl
  // and Dataset::Open.
  static Result<std::unique_ptr<SampleAccess>> Open(const std::string& url,
                                                    const object::UrlSettings& storage,
                                                    const dataset::OpenOptions& options,
                                                    bool verify_checksums);
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
  // Decoded pixels, interleaved, 8 bits, rows without gaps.
  struct Pixels {
    AlignedBuffer memory;
    uint32_t width = 0, height = 0, channels = 0;
  };
  // Decodes a region of an image, upright as Exif says, from its seek points when it has some.
  // `channels` 1 or 3. kNotFound as Read; kInvalidArgument: not inside the image; else as
  // Transform::Apply, with the place.
  Status ReadRegion(uint64_t id, const std::string& field, const codec::Rect& region,
                    uint32_t channels, const Context& ctx, Pixels* out) const;
  // The key of a sample.
  Status Key(uint64_t id, std::string* key) const;

 private:
  std::unique_ptr<dataset::SampleReader> TakeReader() const;
  void GiveReader(std::unique_ptr<dataset::SampleReader> reader) const;

  // What decoding a region takes; kept for the next one.
  struct Decoder {
    std::unique_ptr<dataset::SampleReader> reader;
    codec::Scratch scratch;
  };
  std::unique_ptr<Decoder> TakeDecoder() const;
  Status DecodeField(Decoder* decoder, uint64_t id, dataset::FieldId field,
                     const codec::Rect& region, uint32_t channels, const Context& ctx,
                     Pixels* out) const;

  const std::shared_ptr<const dataset::Dataset> dataset_;
  const bool verify_checksums_;
  mutable std::atomic<dataset::SampleReader*> spare_{nullptr};
  mutable std::atomic<Decoder*> spare_decoder_{nullptr};
};

}  // namespace headrace::loader
