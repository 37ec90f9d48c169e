// Memory for libjpeg that is kept from image to image, so that decoding the next picture of a like
// size allocates nothing. Not thread-safe: one owner at a time. Used inside the codec only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/codec/jpeg_library.h"

namespace headrace::codec {

// Replaces the small and large object methods of a decompressor's memory manager. What is allocated
// from then on lives until Reset(), whatever pool libjpeg asks for; the caller must therefore clear
// the table pointers of the decompressor with each Reset (they would be "permanent" else).
// Whole-image coefficient arrays (progressive files) stay with libjpeg: malloc and free an image.
class JpegMemory {
 public:
  JpegMemory() = default;
  ~JpegMemory();
  JpegMemory(const JpegMemory&) = delete;
  JpegMemory& operator=(const JpegMemory&) = delete;

  // Takes over `cinfo`, which must have been created and must not outlive this. client_data of
  // `cinfo` stays the caller's.
  void Attach(j_decompress_ptr cinfo);
  // Makes all memory free again, in one piece.
  void Reset();
  uint64_t memory_bytes() const { return total_bytes_; }

  // Used by the methods; null when memory is short.
  void* Allocate(size_t bytes);

 private:
  struct Chunk {
    Chunk* next;
    size_t capacity, used;
  };
  Chunk* AddChunk(size_t bytes);
  void FreeAll();

  Chunk* head_ = nullptr;
  uint64_t total_bytes_ = 0;
};

}  // namespace headrace::codec
