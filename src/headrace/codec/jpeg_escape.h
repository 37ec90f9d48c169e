// The way out of libjpeg's errors, and a place for what it writes. Used by jpeg_*.cc,
// pixel_check.cc and image_encoder.cc only.
#pragma once

#include <csetjmp>
#include <cstdlib>

#include "headrace/codec/jpeg_library.h"

namespace headrace::codec {

// Where an error leads: `if (setjmp(escape.jump) != 0) ...`. Between setjmp and the end of the
// calls no object with a destructor may be made. Warnings are counted in errors.num_warnings.
struct JpegEscape {
  jpeg_error_mgr errors;
  std::jmp_buf jump;

  // The error manager for cinfo.err.
  jpeg_error_mgr* Install() {
    jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr cinfo) {
      std::longjmp(reinterpret_cast<JpegEscape*>(cinfo->err)->jump, 1);
    };
    errors.output_message = [](j_common_ptr) {};
    return &errors;
  }
  // Whether the error is that memory is short, which says nothing of the file.
  bool memory_is_short() const {
    return errors.msg_code == JERR_OUT_OF_MEMORY || errors.msg_code == JERR_NO_BACKING_STORE;
  }
};

// The bytes of a file that libjpeg writes; they outlive an error. Must not move while in use.
class JpegSink {
 public:
  JpegSink() = default;
  ~JpegSink() { std::free(bytes_); }
  JpegSink(const JpegSink&) = delete;
  JpegSink& operator=(const JpegSink&) = delete;

  // Makes this the destination of `cinfo`, which has been created.
  void Attach(j_compress_ptr cinfo) {
    manager_.init_destination = [](j_compress_ptr c) { Of(c)->Grow(c); };
    manager_.empty_output_buffer = [](j_compress_ptr c) -> boolean {
      Of(c)->manager_.free_in_buffer = 0;
      Of(c)->Grow(c);
      return TRUE;
    };
    manager_.term_destination = [](j_compress_ptr) {};
    cinfo->dest = &manager_;
  }
  const unsigned char* data() const { return bytes_; }
  size_t size() const { return capacity_ - manager_.free_in_buffer; }

 private:
  static JpegSink* Of(j_compress_ptr cinfo) { return reinterpret_cast<JpegSink*>(cinfo->dest); }
  void Grow(j_compress_ptr cinfo) {
    const size_t used = size(), wanted = capacity_ == 0 ? 64 << 10 : capacity_ * 2;
    void* grown = std::realloc(bytes_, wanted);
    if (grown == nullptr) ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
    bytes_ = static_cast<unsigned char*>(grown);
    capacity_ = wanted;
    manager_.next_output_byte = bytes_ + used;
    manager_.free_in_buffer = capacity_ - used;
  }

  jpeg_destination_mgr manager_{};  // first: libjpeg's pointer to it is this object's
  unsigned char* bytes_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace headrace::codec
