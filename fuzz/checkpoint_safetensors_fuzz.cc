// Any bytes as a safetensors file: what is accepted holds together, and is written and read again
// as the same.
#include "dataset_bytes_file.h"
#include "headrace/checkpoint/safetensors.h"

using namespace headrace;              // NOLINT
using namespace headrace::checkpoint;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file(reinterpret_cast<const std::byte*>(data), size);
  auto header = ParseSafetensors(file, size, "input");
  if (!header.ok()) return 0;
  uint64_t at = header->data_start;
  std::vector<SafetensorsSpec> specs;
  for (const SafetensorsEntry& entry : header->entries) {
    FuzzCheck(entry.offset == at);
    at += entry.bytes;
    specs.push_back({entry.name, entry.dtype, entry.shape});
  }
  FuzzCheck(at == size);
  auto written = WriteSafetensorsHeader(specs, header->metadata);
  FuzzCheck(written.ok());
  auto again = ParseSafetensors(AsBytes(written->bytes), written->file_bytes, "written");
  FuzzCheck(again.ok() && again->entries.size() == specs.size());
  FuzzCheck(again->metadata == header->metadata);
  FuzzCheck(written->file_bytes - again->data_start == size - header->data_start);
  return 0;
}
