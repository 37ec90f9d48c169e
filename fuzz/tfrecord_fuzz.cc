// Any bytes as a TFRecord: the walk ends, places lie inside the file, and an index built of them is
// one that the reader accepts. Checksums would stop most inputs at the door, so those of frames
// whose lengths fit are made right first (unless the last byte is 0xff).
#include "dataset_bytes_file.h"
#include "headrace/base/crc32c.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/tfrecord.h"

using namespace headrace;  // NOLINT

static void MakeChecksumsRight(std::string* bytes) {
  for (size_t at = 0; at + 16 <= bytes->size();) {
    char* header = &(*bytes)[at];
    uint64_t length = LoadLittle<uint64_t>(header) & 0xffff;
    if (length > bytes->size() - at - 16) length = bytes->size() - at - 16;
    StoreLittle(header, length);
    StoreLittle(header + 8, dataset::MaskCrc32c(Crc32c(AsBytes(*bytes).subspan(at, 8))));
    StoreLittle(header + 12 + length,
                dataset::MaskCrc32c(Crc32c(AsBytes(*bytes).subspan(at + 12, length))));
    at += 16 + length;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[size - 1] != 0xff) MakeChecksumsRight(&bytes);
  BytesFile file(AsBytes(bytes));
  dataset::BuildOptions options;
  (void)dataset::BuildTfRecordIndex(file, "input", options, Context());
  options.allow_damage = true;
  options.checksums = true;
  auto built = dataset::BuildTfRecordIndex(file, "input", options, Context());
  if (!built.ok()) return 0;
  auto reader = dataset::IndexReader::FromBytes(built->bytes, "built");
  FuzzCheck(reader.ok() && (*reader)->VerifyAll().ok());
  FuzzCheck((*reader)->num_samples() + built->num_skipped <= built->scan.num_members);
  dataset::IndexSample sample;
  std::string npy;
  for (uint64_t i = 0; i < (*reader)->num_samples(); ++i) {
    FuzzCheck((*reader)->Get(i, &sample).ok());
    const dataset::RecordRange& record = sample.record;
    FuzzCheck(record.length <= size && record.offset <= size - record.length);
    for (const dataset::IndexField& field : sample.fields) {
      if (field.in_index) continue;
      FuzzCheck(field.offset >= record.offset && field.length <= record.length);
      FuzzCheck(field.offset + field.length <= record.offset + record.length);
      if (!field.is_array) continue;
      dataset::ArrayForm form;
      FuzzCheck(dataset::ArrayForm::Parse(field.value, &form));
      npy.resize(dataset::NpyBytes(form));
      FuzzCheck(dataset::WriteNpy(form, AsBytes(bytes).subspan(field.offset, field.length),
                                  {reinterpret_cast<std::byte*>(npy.data()), npy.size()})
                    .ok());
    }
  }
  return 0;
}
