// Decoding from seek points: on any file and record no crash and no undefined behavior; and where
// the builder gives a file seek points, the pixels of libjpeg-turbo, whatever the settings.
//
// Input: number of changes, that many of {u16 place, u8 xor} for the record, then the file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/codec/image.h"
#include "headrace/codec/transform.h"

namespace {

using headrace::Bytes;
using namespace headrace::codec;

constexpr uint64_t kMaxPixels = 1 << 18;
// Of a record: where its own CRC32C lies.
constexpr size_t kAtRecordCrc = 28, kHeadBytes = 32;

std::shared_ptr<const Transform> Make(const std::string& settings, const std::string& ops) {
  auto transform = CreateTransform(R"({"type": "image", "max_pixels": 262144, )" + settings +
                                   R"(, "ops": [)" + ops + "]}");
  if (!transform.ok()) std::abort();
  return *transform;
}

const std::vector<std::shared_ptr<const Transform>>& Transforms() {
  const std::string crop = R"({"op": "random_resized_crop", "size": [20, 24]})";
  const std::string center =
      R"({"op": "resize", "short_side": 12}, {"op": "center_crop", "size": [11, 30]})";
  static const std::vector<std::shared_ptr<const Transform>> transforms = {
      Make(R"("quality": "exact")", crop), Make(R"("quality": "fast")", crop),
      Make(R"("quality": "fast", "dct_scaling": true)", center),
      Make(R"("channels": 1, "dct_scaling": true)", center)};
  return transforms;
}

struct Outcome {
  bool ok = false;
  std::vector<std::byte> pixels;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Run(const Transform& transform, Bytes file, const DecodeHints& hints, Scratch* scratch) {
  Outcome outcome;
  outcome.pixels.resize(transform.output().bytes());
  outcome.ok = transform.Apply(file, hints, {1, 2, file.size()}, scratch, outcome.pixels).ok();
  if (!outcome.ok) outcome.pixels.clear();
  return outcome;
}

// Applies the changes and makes the record's own CRC32C right again, so that they are met.
void Change(const uint8_t* changes, size_t count, std::string* record) {
  for (size_t i = 0; i < count && !record->empty(); ++i, changes += 3) {
    size_t at = (changes[0] | changes[1] << 8u) % record->size();
    (*record)[at] = static_cast<char>((*record)[at] ^ changes[2]);
  }
  if (record->size() < kHeadBytes) return;
  Bytes bytes = headrace::AsBytes(*record);
  uint32_t crc =
      headrace::Crc32c(bytes.subspan(kHeadBytes), headrace::Crc32c(bytes.first(kAtRecordCrc)));
  std::memcpy(record->data() + kAtRecordCrc, &crc, sizeof(crc));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scratch seek, plain;
  static SeekPointBuilder builder;
  if (size == 0) return 0;
  size_t count = std::min<size_t>(data[0], (size - 1) / 3);
  const uint8_t* changes = data + 1;
  size_t head = 1 + 3 * count;
  Bytes file(reinterpret_cast<const std::byte*>(data) + head, size - head);
  auto info = ReadImageInfo(file, kMaxPixels, &plain);
  std::string record;
  uint32_t crc = headrace::Crc32c(file);
  bool points = builder.Build(file, crc, 4 << (size & 1), &record) == SeekRefusal::kNone;
  if (points && !info.ok() && info.status().code() != headrace::Code::kResourceExhausted)
    std::abort();
  const std::string truth = record;
  Change(changes, count, &record);
  uint32_t claimed = crc;  // a changed CRC32C must not keep the record out
  if (record.size() >= kHeadBytes) std::memcpy(&claimed, record.data() + 8, sizeof(claimed));
  DecodeHints lies{headrace::AsBytes(record), claimed}, hints{headrace::AsBytes(truth), crc};
  for (const auto& transform : Transforms()) {
    if (count > 0) Run(*transform, file, lies, &seek);
    if (Run(*transform, file, hints, &seek) != Run(*transform, file, {}, &plain)) std::abort();
  }
  return 0;
}
