#include "headrace/codec/jpeg_memory.h"

#include <algorithm>
#include <cstdlib>

#include "headrace/codec/jpeg_library.h"
#include "headrace/codec/jpeg_state.h"

namespace headrace::codec {
namespace {

constexpr size_t kAlign = 64;  // twice the 32 bytes that libjpeg-turbo's SIMD code counts on
constexpr size_t kFirstChunk = 256 << 10;

constexpr size_t RoundUp(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

void* AllocateOrFail(j_common_ptr cinfo, size_t bytes) {
  void* p = JpegStateOf(cinfo)->memory.Allocate(bytes);
  if (!p) {
    cinfo->err->msg_code = JERR_OUT_OF_MEMORY;
    cinfo->err->msg_parm.i[0] = 0;
    cinfo->err->error_exit(cinfo);
  }
  return p;
}

void* AllocObject(j_common_ptr cinfo, int, size_t bytes) { return AllocateOrFail(cinfo, bytes); }

JSAMPARRAY AllocSamples(j_common_ptr cinfo, int, JDIMENSION per_row, JDIMENSION rows) {
  size_t stride = RoundUp(size_t{per_row} * sizeof(JSAMPLE));
  auto* table = static_cast<JSAMPARRAY>(AllocateOrFail(cinfo, size_t{rows} * sizeof(JSAMPROW)));
  auto* data = static_cast<JSAMPLE*>(AllocateOrFail(cinfo, stride * rows));
  for (JDIMENSION i = 0; i < rows; ++i) table[i] = data + i * stride;
  return table;
}

JBLOCKARRAY AllocBlocks(j_common_ptr cinfo, int, JDIMENSION per_row, JDIMENSION rows) {
  auto* table = static_cast<JBLOCKARRAY>(AllocateOrFail(cinfo, size_t{rows} * sizeof(JBLOCKROW)));
  auto* data = static_cast<JBLOCK*>(AllocateOrFail(cinfo, size_t{per_row} * rows * sizeof(JBLOCK)));
  for (JDIMENSION i = 0; i < rows; ++i) table[i] = data + size_t{i} * per_row;
  return table;
}

}  // namespace

JpegMemory::~JpegMemory() { FreeAll(); }

void JpegMemory::FreeAll() {
  while (head_) {
    Chunk* next = head_->next;
    std::free(head_);
    head_ = next;
  }
  total_bytes_ = 0;
}

JpegMemory::Chunk* JpegMemory::AddChunk(size_t bytes) {
  size_t capacity = std::max(RoundUp(bytes), kFirstChunk);
  auto* chunk = static_cast<Chunk*>(std::aligned_alloc(kAlign, kAlign + capacity));
  if (!chunk) return nullptr;
  *chunk = {head_, capacity, 0};
  total_bytes_ += kAlign + capacity;
  return head_ = chunk;
}

void* JpegMemory::Allocate(size_t bytes) {
  bytes = RoundUp(bytes);
  if (!head_ || head_->capacity - head_->used < bytes)
    if (!AddChunk(bytes)) return nullptr;
  void* p = reinterpret_cast<char*>(head_) + kAlign + head_->used;
  head_->used += bytes;
  return p;
}

void JpegMemory::Reset() {
  if (!head_) return;
  if (!head_->next) {
    head_->used = 0;
    return;
  }
  size_t total = total_bytes_;
  FreeAll();
  AddChunk(total);
}

void JpegMemory::Attach(j_decompress_ptr cinfo) {
  cinfo->mem->alloc_small = AllocObject;
  cinfo->mem->alloc_large = AllocObject;
  cinfo->mem->alloc_sarray = AllocSamples;
  cinfo->mem->alloc_barray = AllocBlocks;
  cinfo->mem->max_memory_to_use = 0;  // not what the environment variable JPEGMEM says
}

}  // namespace headrace::codec
