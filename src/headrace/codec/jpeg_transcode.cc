#include "headrace/codec/jpeg_transcode.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "headrace/codec/image.h"
#include "headrace/codec/jpeg_escape.h"

namespace headrace::codec {
namespace {

// A decompressor over bytes in memory.
struct Source {
  jpeg_decompress_struct cinfo{};
  JpegEscape escape{};
  bool several_scans = false;

  ~Source() { jpeg_destroy_decompress(&cinfo); }
  // Call after setjmp.
  void Open(Bytes file) {
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    for (int marker = 0; marker < 16; ++marker)
      jpeg_save_markers(&cinfo, JPEG_APP0 + marker, 0xffff);
    jpeg_save_markers(&cinfo, JPEG_COM, 0xffff);
    jpeg_read_header(&cinfo, TRUE);
  }
};

struct Target {
  jpeg_compress_struct cinfo{};
  JpegSink file;

  ~Target() { jpeg_destroy_compress(&cinfo); }
  Bytes bytes() const { return {reinterpret_cast<const std::byte*>(file.data()), file.size()}; }
};

bool IsMarker(const jpeg_marker_struct& marker, int code, std::string_view head) {
  return marker.marker == code && marker.data_length >= head.size() &&
         std::memcmp(marker.data, head.data(), head.size()) == 0;
}

// Copies what the file carries beside its image, but for what libjpeg writes itself.
void CopyMarkers(const jpeg_decompress_struct& from, j_compress_ptr to) {
  for (jpeg_saved_marker_ptr marker = from.marker_list; marker; marker = marker->next) {
    bool jfif = IsMarker(*marker, JPEG_APP0, {"JFIF\0", 5});
    bool adobe = IsMarker(*marker, JPEG_APP0 + 14, "Adobe");
    if ((jfif && to->write_JFIF_header) || (adobe && to->write_Adobe_marker)) continue;
    jpeg_write_marker(to, marker->marker, marker->data, marker->data_length);
  }
}

enum class Step : uint8_t { kDone, kNothingToDo, kFailed };

// Reads the coefficients of `file` and writes them anew.
Step Rewrite(Bytes file, JpegTranscode mode, uint64_t max_pixels, Source* source, Target* target) {
  source->cinfo.err = source->escape.Install();
  target->cinfo.err = &source->escape.errors;
  if (setjmp(source->escape.jump) != 0) return Step::kFailed;
  source->Open(file);
  j_decompress_ptr in = &source->cinfo;
  if (uint64_t{in->image_width} * in->image_height > max_pixels) return Step::kFailed;
  source->several_scans = jpeg_has_multiple_scans(in) != FALSE;
  if (mode == JpegTranscode::kSequential && !source->several_scans) return Step::kNothingToDo;
  jvirt_barray_ptr* coefficients = jpeg_read_coefficients(in);
  // What is damaged would be mended by guesses.
  if (source->escape.errors.num_warnings != 0) return Step::kFailed;
  jpeg_create_compress(&target->cinfo);
  j_compress_ptr out = &target->cinfo;
  target->file.Attach(out);
  jpeg_copy_critical_parameters(in, out);
  out->optimize_coding = TRUE;
  if (!source->several_scans) out->restart_interval = in->restart_interval;
  jpeg_write_coefficients(out, coefficients);
  CopyMarkers(*in, out);
  jpeg_finish_compress(out);
  jpeg_finish_decompress(in);
  // Bytes behind the end belong to someone.
  return in->src->bytes_in_buffer == 0 ? Step::kDone : Step::kFailed;
}

bool StartDecode(Bytes file, Source* source) {
  source->cinfo.err = source->escape.Install();
  if (setjmp(source->escape.jump) != 0) return false;
  source->Open(file);
  return jpeg_start_decompress(&source->cinfo) != FALSE;
}

bool ReadRow(Source* source, unsigned char* row) {
  if (setjmp(source->escape.jump) != 0) return false;
  return jpeg_read_scanlines(&source->cinfo, &row, 1) == 1;
}

// True when both files decode to the same pixels.
bool SamePixels(Bytes a, Bytes b) {
  Source first, second;
  if (!StartDecode(a, &first) || !StartDecode(b, &second)) return false;
  const jpeg_decompress_struct &x = first.cinfo, &y = second.cinfo;
  if (x.output_width != y.output_width || x.output_height != y.output_height ||
      x.output_components != y.output_components || x.out_color_space != y.out_color_space)
    return false;
  const size_t row_bytes = size_t{x.output_width} * static_cast<size_t>(x.output_components);
  std::vector<unsigned char> row(row_bytes), other(row_bytes);
  while (x.output_scanline < x.output_height) {
    if (!ReadRow(&first, row.data()) || !ReadRow(&second, other.data())) return false;
    if (row != other) return false;
  }
  return true;
}

}  // namespace

std::string_view TranscodeResultName(TranscodeResult result) {
  constexpr std::array<std::string_view, kNumTranscodeResults> kNames = {
      "not_jpeg", "unchanged", "rewritten", "cannot", "not_identical"};
  return kNames[static_cast<size_t>(result)];
}

TranscodeResult TranscodeJpeg(Bytes file, JpegTranscode mode, uint64_t max_pixels,
                              std::string* out) {
  out->clear();
  if (DetectImageFormat(file) != ImageFormat::kJpeg) return TranscodeResult::kNotJpeg;
  if (mode == JpegTranscode::kKeep) return TranscodeResult::kUnchanged;
  Target target;
  bool several_scans = false;
  {
    Source source;
    Step step = Rewrite(file, mode, max_pixels, &source, &target);
    if (step == Step::kNothingToDo) return TranscodeResult::kUnchanged;
    if (step == Step::kFailed) return TranscodeResult::kCannot;
    several_scans = source.several_scans;
  }
  if (!several_scans && target.file.size() >= file.size()) return TranscodeResult::kUnchanged;
  if (!SamePixels(file, target.bytes())) return TranscodeResult::kNotIdentical;
  out->assign(AsText(target.bytes()));
  return TranscodeResult::kRewritten;
}

}  // namespace headrace::codec
