// The libjpeg objects of a JpegDecoder and the way out of them on an error. Used by jpeg_*.cc only.
#pragma once

#include <array>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/jpeg_decoder.h"
#include "headrace/codec/jpeg_escape.h"
#include "headrace/codec/jpeg_library.h"
#include "headrace/codec/jpeg_memory.h"

namespace headrace::codec {

// Nothing here may have a destructor that an error's longjmp would skip: state lives outside of the
// calls into libjpeg.
struct JpegDecoder::State {
  jpeg_decompress_struct cinfo;
  JpegEscape escape;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  JpegMemory memory;
  bool created = false;
  Bytes file;
  // The failure, when `escape` was taken.
  Code code = Code::kDataLoss;
  bool memory_is_short = false;
  size_t offset = 0;
  std::array<char, JMSG_LENGTH_MAX> message{};
};

inline JpegDecoder::State* JpegStateOf(j_common_ptr cinfo) {
  return static_cast<JpegDecoder::State*>(cinfo->client_data);
}

}  // namespace headrace::codec
