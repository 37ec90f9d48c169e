// Any bytes as an MDS dataset: the first line is index.json, the rest the first shard's file. What
// is indexed lies inside the file, and the index is one that the reader accepts. So that inputs get
// past the door, the shard's size and number of samples are made those of the file (unless the last
// byte is 0xff).
#include "dataset_bytes_file.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/mds_content.h"
#include "headrace/dataset/unpack.h"

using namespace headrace;  // NOLINT

static void UnpackAnything(const dataset::MdsShard& shard, Bytes bytes) {
  std::string out(std::min<uint64_t>(shard.raw.bytes, 1 << 16), '\0');
  (void)dataset::Unpack(shard.compression, bytes,
                        {reinterpret_cast<std::byte*>(out.data()), out.size()});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), size);
  auto index = dataset::MdsIndex::FromJson(input.substr(0, line), "input");
  if (!index.ok() || index->shards.empty()) return 0;
  dataset::MdsShard& shard = index->shards[0];
  (void)shard.Identity();
  const Bytes bytes = AsBytes(input.substr(std::min(line + 1, size)));
  UnpackAnything(shard, bytes);
  BytesFile file(bytes);
  if (size > 0 && data[size - 1] != 0xff) {
    shard.raw.bytes = bytes.size();
    if (bytes.size() >= 4) shard.samples = LoadLittle<uint32_t>(bytes.data());
  }
  dataset::BuildOptions options;
  options.checksums = true;
  auto built = dataset::BuildMdsIndex(file, shard, options, Context());
  if (!built.ok()) return 0;
  auto reader = dataset::IndexReader::FromBytes(built->bytes, "built");
  FuzzCheck(reader.ok() && (*reader)->VerifyAll().ok() && (*reader)->fully_checksummed());
  dataset::IndexSample sample;
  std::string npy;
  for (uint64_t i = 0; i < (*reader)->num_samples(); ++i) {
    FuzzCheck((*reader)->Get(i, &sample).ok());
    for (const dataset::IndexField& field : sample.fields) {
      FuzzCheck(field.length <= bytes.size() && field.offset <= bytes.size() - field.length);
      if (!field.is_array) continue;
      dataset::ArrayForm form;
      FuzzCheck(dataset::ArrayForm::Parse(field.value, &form));
      npy.resize(dataset::NpyBytes(form));
      FuzzCheck(dataset::WriteNpy(form, bytes.subspan(field.offset, field.length),
                                  {reinterpret_cast<std::byte*>(npy.data()), npy.size()})
                    .ok());
    }
  }
  return 0;
}
