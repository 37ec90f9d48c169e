// libjpeg reports errors by a call that must not return; ours jumps to the setjmp of the guarded
// functions below. So between a setjmp and the calls into libjpeg there are only plain functions
// whose locals have no destructors.
#include "headrace/codec/jpeg_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/codec/jpeg_library.h"
#include "headrace/codec/jpeg_state.h"
#include "headrace/codec/pixel_conversion.h"

namespace headrace::codec {
namespace {

using State = JpegDecoder::State;

// More scans than any encoder writes; each one costs a pass over the whole image.
constexpr int kMaxScans = 100;

// Rows of pixels begin this far from a multiple of 64: libjpeg-turbo writes to rows aligned to 32
// bytes past the caches, and the resize would have to fetch them again (measured: 15 % of a
// decode).
constexpr size_t kRowOffset = 16;

size_t InputOffset(const State& s) {
  return s.source.next_input_byte
             ? static_cast<size_t>(s.source.next_input_byte -
                                   reinterpret_cast<const JOCTET*>(s.file.data()))
             : 0;
}

[[noreturn]] void Fail(State* s, Code code, const char* message, bool memory_is_short = false) {
  s->code = code;
  s->memory_is_short = memory_is_short;
  s->offset = InputOffset(*s);
  if (message != s->message.data())
    std::snprintf(s->message.data(), s->message.size(), "%s", message);
  std::longjmp(s->escape.jump, 1);
}

Code CodeOf(int libjpeg_error) {
  switch (libjpeg_error) {
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
      return Code::kUnimplemented;
    case JERR_IMAGE_TOO_BIG:
    case JERR_NO_BACKING_STORE:
    case JERR_OUT_OF_MEMORY:
    case JERR_WIDTH_OVERFLOW:
      return Code::kResourceExhausted;
    default:
      return Code::kDataLoss;
  }
}

[[noreturn]] void OnError(j_common_ptr cinfo) {
  State* s = JpegStateOf(cinfo);
  Code code = CodeOf(cinfo->err->msg_code);
  cinfo->err->format_message(cinfo, s->message.data());
  Fail(s, code, s->message.data(), s->escape.memory_is_short());
}

bool IsDamage(const jpeg_error_mgr& err) {
  switch (err.msg_code) {
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
      return true;
    case JWRN_EXTRANEOUS_DATA:  // filler before a header or the end is harmless, before RSTn it is
                                // not
      return err.msg_parm.i[1] >= 0xd0 && err.msg_parm.i[1] <= 0xd7;
    default:
      return false;
  }
}

void OnMessage(j_common_ptr cinfo, int level) {
  if (level < 0 && IsDamage(*cinfo->err)) OnError(cinfo);
}

// The whole file is one buffer, so asking for more means that it ended too early.
boolean OnInputEnd(j_decompress_ptr cinfo) {
  Fail(JpegStateOf(reinterpret_cast<j_common_ptr>(cinfo)), Code::kDataLoss,
       "the file is truncated");
}

void OnSkip(j_decompress_ptr cinfo, long bytes) {
  if (bytes <= 0) return;
  State* s = JpegStateOf(reinterpret_cast<j_common_ptr>(cinfo));
  if (static_cast<size_t>(bytes) > s->source.bytes_in_buffer) OnInputEnd(cinfo);
  s->source.next_input_byte += bytes;
  s->source.bytes_in_buffer -= static_cast<size_t>(bytes);
}

void OnProgress(j_common_ptr cinfo) {
  if (reinterpret_cast<j_decompress_ptr>(cinfo)->input_scan_number > kMaxScans)
    Fail(JpegStateOf(cinfo), Code::kUnimplemented, "more than 100 scans");
}

void Create(State* s) {
  s->cinfo.err = s->escape.Install();
  s->escape.errors.error_exit = OnError;
  s->escape.errors.emit_message = OnMessage;
  s->cinfo.client_data = s;
  jpeg_create_decompress(&s->cinfo);
  s->created = true;
  s->memory.Attach(&s->cinfo);
  s->source.init_source = [](j_decompress_ptr) {};
  s->source.fill_input_buffer = OnInputEnd;
  s->source.skip_input_data = OnSkip;
  s->source.resync_to_restart = jpeg_resync_to_restart;
  s->source.term_source = [](j_decompress_ptr) {};
  s->cinfo.src = &s->source;
  s->progress.progress_monitor = OnProgress;
  s->cinfo.progress = &s->progress;
}

// Forgets the last image with all its tables: what one file leaves out, another never fills in.
void Reset(State* s) {
  if (!s->created) return;
  jpeg_abort_decompress(&s->cinfo);
  std::fill_n(s->cinfo.quant_tbl_ptrs, NUM_QUANT_TBLS, nullptr);
  std::fill_n(s->cinfo.dc_huff_tbl_ptrs, NUM_HUFF_TBLS, nullptr);
  std::fill_n(s->cinfo.ac_huff_tbl_ptrs, NUM_HUFF_TBLS, nullptr);
  s->memory.Reset();
}

// Every whole file holds an end marker somewhere behind its first scan's header. (Looked for from
// the end, where it is; trailing bytes of other programs are common and harmless.)
bool HasEndMarker(const State& s) {
  const JOCTET* begin = s.source.next_input_byte;
  for (const JOCTET* p = begin + s.source.bytes_in_buffer; p - begin >= 2; --p)
    if (p[-1] == JPEG_EOI && p[-2] == 0xff) return true;
  return false;
}

void CheckHeader(State* s, uint64_t max_pixels) {
  const jpeg_decompress_struct& c = s->cinfo;
  if (uint64_t{c.image_width} * c.image_height > max_pixels) {
    std::snprintf(s->message.data(), s->message.size(),
                  "%u x %u pixels are more than the limit of %llu", c.image_width, c.image_height,
                  static_cast<unsigned long long>(max_pixels));
    Fail(s, Code::kResourceExhausted, s->message.data());
  }
  if (c.num_components != 1 && c.num_components != 3 && c.num_components != 4)
    Fail(s, Code::kUnimplemented, "only 1, 3 or 4 components are supported");
  if (!HasEndMarker(*s)) {
    s->source.next_input_byte += s->source.bytes_in_buffer;
    Fail(s, Code::kDataLoss, "the file is truncated (it has no end marker)");
  }
}

bool OpenGuarded(State* s, Bytes file, uint64_t max_pixels) {
  s->file = file;
  s->source.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
  s->source.bytes_in_buffer = file.size();
  if (setjmp(s->escape.jump) != 0) {
    Reset(s);
    return false;
  }
  if (!s->created) Create(s);
  Reset(s);
  jpeg_read_header(&s->cinfo, TRUE);
  CheckHeader(s, max_pixels);
  return true;
}

struct DecodeTask {
  Rect region;
  uint32_t reduction;
  bool luma;
  AlignedBuffer* pixels;
  AlignedBuffer* row;
  PixelView view;
};

// Columns to decode so that those of the region are right: fancy upsampling looks one chroma sample
// to each side, and libjpeg takes the edge of a crop for the edge of the image.
void CropColumns(jpeg_decompress_struct* c, const Rect& region, JDIMENSION* first,
                 JDIMENSION* width) {
  JDIMENSION max_h = static_cast<JDIMENSION>(c->max_h_samp_factor);
  JDIMENSION mcu = max_h * static_cast<JDIMENSION>(c->min_DCT_scaled_size);
  JDIMENSION begin = region.x / mcu * mcu;
  if (region.x - begin < max_h && begin > 0) begin -= mcu;
  JDIMENSION end = (region.x + region.width + max_h - 1) / max_h * max_h + max_h;
  *first = begin;
  *width = std::min(end, c->output_width) - begin;
  if (begin > 0 || *width < c->output_width) jpeg_crop_scanline(c, first, width);
}

// False when libjpeg would smooth block borders of an incomplete progressive file: that looks at
// blocks outside of a crop. And when a component is reduced less than others but still upsampled:
// libjpeg-turbo takes too few of its columns for a crop.
bool CropIsExact(const jpeg_decompress_struct& c) {
  for (int i = 0; i < c.num_components; ++i) {
    const jpeg_component_info& info = c.comp_info[i];
    if (info.DCT_scaled_size > c.min_DCT_scaled_size &&
        info.h_samp_factor * info.DCT_scaled_size < c.max_h_samp_factor * c.min_DCT_scaled_size)
      return false;
  }
  if (!c.progressive_mode || !c.coef_bits) return true;
  for (int i = 0; i < c.num_components; ++i)
    for (int k = 0; k < DCTSIZE2; ++k)
      if (c.coef_bits[i][k] != 0) return false;
  return true;
}

void StartDecoding(jpeg_decompress_struct* c, uint32_t reduction, bool luma) {
  switch (c->jpeg_color_space) {
    case JCS_GRAYSCALE:
      c->out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      c->out_color_space = JCS_CMYK;
      break;
    default:
      c->out_color_space = luma && c->jpeg_color_space == JCS_YCbCr ? JCS_GRAYSCALE : JCS_RGB;
  }
  c->dct_method = JDCT_ISLOW;
  c->do_fancy_upsampling = TRUE;
  c->scale_num = 1;
  c->scale_denom = reduction;
  jpeg_start_decompress(c);
}

// Reads the next `rows` lines into `dst` with `stride`.
void ReadRows(jpeg_decompress_struct* c, JDIMENSION rows, uint8_t* dst, size_t stride) {
  JSAMPROW lines[16];
  for (JDIMENSION done = 0; done < rows;) {
    JDIMENSION n = std::min<JDIMENSION>(rows - done, 16);
    for (JDIMENSION i = 0; i < n; ++i) lines[i] = dst + (done + i) * stride;
    done += jpeg_read_scanlines(c, lines, n);
  }
}

void DecodeRows(State* s, DecodeTask* task) {
  jpeg_decompress_struct* c = &s->cinfo;
  const Rect& r = task->region;
  StartDecoding(c, task->reduction, task->luma);
  JDIMENSION first = 0, width = c->output_width, skipped = 0;
  if (CropIsExact(*c)) {
    CropColumns(c, r, &first, &width);
    if (r.y > 0) skipped = jpeg_skip_scanlines(c, r.y);
  }
  uint32_t stored = static_cast<uint32_t>(c->output_components);
  uint32_t channels = stored == 1 || task->luma ? 1 : 3;
  size_t stride = (size_t{width} * channels + 63) / 64 * 64;
  if (!task->pixels->Reserve(kRowOffset + stride * r.height) ||
      !task->row->Reserve(size_t{width} * stored))
    Fail(s, Code::kResourceExhausted, "no memory for the pixels", true);
  auto* pixels = reinterpret_cast<uint8_t*>(task->pixels->data()) + kRowOffset;
  auto* row = reinterpret_cast<uint8_t*>(task->row->data());
  for (; skipped < r.y; ++skipped) ReadRows(c, 1, row, 0);
  if (stored == channels) ReadRows(c, r.height, pixels, stride);
  for (uint32_t y = 0; stored != channels && y < r.height; ++y) {
    ReadRows(c, 1, row, 0);
    uint8_t* rgb = stored == 4 && channels == 1 ? row : pixels + y * stride;
    if (stored == 4) InvertedCmykToRgb(row, width, rgb);
    if (channels == 1) RgbToLuma(stored == 4 ? rgb : row, width, pixels + y * stride);
  }
  task->view = {pixels + size_t{r.x - first} * channels, stride, r.width, r.height, channels};
}

uint32_t Unsigned(int value) { return static_cast<uint32_t>(value); }

struct SamplesTask {
  Rect region;
  uint32_t reduction;
  AlignedBuffer* buffer;
  YccPlanes planes;
};

// Lays out the planes of the rows of MCUs [first, end) and one more for rows that nobody wants.
void ReserveSamples(State* s, uint32_t first, uint32_t end, SamplesTask* task) {
  const jpeg_decompress_struct& c = s->cinfo;
  std::array<size_t, 4> offsets{};
  for (size_t i = 0; i < 3; ++i) {
    const jpeg_component_info& info = c.comp_info[i];
    uint32_t side = Unsigned(info.DCT_scaled_size), v = Unsigned(info.v_samp_factor);
    SamplePlane& plane = task->planes[i];
    plane.y = first * v * side;
    plane.width = info.width_in_blocks * side;
    plane.height = (end - first) * v * side;
    plane.stride = (size_t{plane.width} + 127) / 64 * 64;
    plane.step_x = Unsigned(c.max_h_samp_factor) * 8 / (Unsigned(info.h_samp_factor) * side);
    plane.step_y = Unsigned(c.max_v_samp_factor) * 8 / (v * side);
    offsets[i + 1] = offsets[i] + plane.stride * (size_t{plane.height} + 1) + 64;
  }
  if (!task->buffer->Reserve(offsets[3]))
    Fail(s, Code::kResourceExhausted, "no memory for the pixels", true);
  for (size_t i = 0; i < 3; ++i)
    task->planes[i].first = reinterpret_cast<uint8_t*>(task->buffer->data()) + offsets[i];
}

void DecodePlanes(State* s, SamplesTask* task) {
  jpeg_decompress_struct* c = &s->cinfo;
  c->raw_data_out = TRUE;
  StartDecoding(c, task->reduction, /*luma=*/false);
  uint32_t pixels = Unsigned(c->max_v_samp_factor) * 8, first = task->region.y / pixels;
  uint32_t end = (task->region.y + task->region.height + pixels - 1) / pixels;
  ReserveSamples(s, first, end, task);
  JSAMPROW lines[3][4 * DCTSIZE];
  JSAMPARRAY planes[3] = {lines[0], lines[1], lines[2]};
  auto height = static_cast<JDIMENSION>(c->max_v_samp_factor * c->min_DCT_scaled_size);
  for (uint32_t mcu = 0; mcu < end; ++mcu) {
    for (size_t i = 0; i < 3; ++i) {
      const SamplePlane& plane = task->planes[i];
      uint32_t rows = plane.height / (end - first);
      for (uint32_t y = 0; y < rows; ++y)
        lines[i][y] =
            plane.first + plane.stride * (mcu < first ? plane.height : (mcu - first) * rows + y);
    }
    jpeg_read_raw_data(c, planes, height);
  }
}

bool DecodePlanesGuarded(State* s, SamplesTask* task) {
  if (setjmp(s->escape.jump) != 0) {
    Reset(s);
    return false;
  }
  DecodePlanes(s, task);
  Reset(s);
  return true;
}

bool DecodeGuarded(State* s, DecodeTask* task) {
  if (setjmp(s->escape.jump) != 0) {
    Reset(s);
    return false;
  }
  DecodeRows(s, task);
  Reset(s);
  return true;
}

Status FailureOf(const State& s) {
  return Error(s.code, "JPEG: {} (at byte {} of {})", s.message.data(), s.offset, s.file.size());
}

int MostOf(const jpeg_decompress_struct& c, int jpeg_component_info::* factor) {
  int most = 1;
  for (int i = 0; i < c.num_components; ++i) most = std::max(most, c.comp_info[i].*factor);
  return most;
}

bool SameTable(const JHUFF_TBL* table, const HuffmanSpec& spec) {
  return table && std::equal(spec.counts, spec.counts + 16, table->bits + 1) &&
         std::equal(spec.symbols, spec.symbols + spec.num_symbols, table->huffval);
}

bool SameComponent(const jpeg_decompress_struct& c, const jpeg_component_info& info,
                   const JpegComponent& component) {
  bool sampling = c.num_components == 1 || (info.h_samp_factor == static_cast<int>(component.h) &&
                                            info.v_samp_factor == static_cast<int>(component.v));
  const JQUANT_TBL* quantization = c.quant_tbl_ptrs[info.quant_tbl_no];
  return sampling && quantization &&
         std::equal(component.quantization.begin(), component.quantization.end(),
                    quantization->quantval,
                    [](int16_t a, UINT16 b) { return static_cast<UINT16>(a) == b; }) &&
         SameTable(c.dc_huff_tbl_ptrs[info.dc_tbl_no], component.dc) &&
         SameTable(c.ac_huff_tbl_ptrs[info.ac_tbl_no], component.ac);
}

SeekRefusal Compare(const State& s, const JpegFrame& frame) {
  const jpeg_decompress_struct& c = s.cinfo;
  if (c.progressive_mode) return SeekRefusal::kProgressive;
  J_COLOR_SPACE expected = frame.num_components == 1 ? JCS_GRAYSCALE : JCS_YCbCr;
  if (c.jpeg_color_space != (frame.rgb ? JCS_RGB : expected)) return SeekRefusal::kColorSpace;
  bool same = c.image_width == frame.width && c.image_height == frame.height &&
              c.num_components == static_cast<int>(frame.num_components) &&
              c.comps_in_scan == c.num_components && c.restart_interval == frame.restart_interval &&
              InputOffset(s) == frame.scan_offset;
  for (uint32_t i = 0; same && i < frame.num_components; ++i)
    same = c.cur_comp_info[i] == &c.comp_info[i] &&
           SameComponent(c, c.comp_info[i], frame.components[i]);
  return same ? SeekRefusal::kNone : SeekRefusal::kDamaged;
}

uint32_t StoredChannels(const jpeg_decompress_struct& c) {
  return static_cast<uint32_t>(c.num_components);
}

}  // namespace

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}

JpegDecoder::~JpegDecoder() {
  if (state_->created) jpeg_destroy_decompress(&state_->cinfo);
}

bool JpegDecoder::memory_is_short() const { return state_->memory_is_short; }

uint64_t JpegDecoder::memory_bytes() const {
  return sizeof(State) + state_->memory.memory_bytes() + seek_.memory_bytes();
}

Result<ImageInfo> JpegDecoder::OpenReference(Bytes file, uint64_t max_pixels) {
  if (!OpenGuarded(state_.get(), file, max_pixels)) return FailureOf(*state_);
  const jpeg_decompress_struct& c = state_->cinfo;
  return ImageInfo{ImageFormat::kJpeg, c.image_width, c.image_height, StoredChannels(c)};
}

Result<ImageInfo> JpegDecoder::Open(Bytes file, const DecodeHints& hints, uint64_t max_pixels) {
  path_ = hints.seek_points.empty() ? SeekRefusal::kNoRecord : seek_.Open(file, hints);
  const JpegFrame& frame = seek_.frame();
  bool small = uint64_t{frame.width} * frame.height <= max_pixels;
  if (path_ == SeekRefusal::kNone && !small) path_ = SeekRefusal::kNoRecord;  // an error anyway
  if (path_ != SeekRefusal::kNone) return OpenReference(file, max_pixels);
  file_ = file;
  return ImageInfo{ImageFormat::kJpeg, frame.width, frame.height, frame.num_components};
}

Result<ImageInfo> JpegDecoder::ReadInfo(Bytes file, uint64_t max_pixels) {
  auto info = OpenReference(file, max_pixels);
  Reset(state_.get());
  return info;
}

Status JpegDecoder::Fall(SeekRefusal refusal) {
  path_ = refusal;
  return OpenReference(file_, UINT64_MAX).status();
}

Result<PixelView> JpegDecoder::DecodeOpened(const Rect& region, uint32_t reduction, bool luma,
                                            AlignedBuffer* pixels, AlignedBuffer* row) {
  if (path_ == SeekRefusal::kNone) {
    PixelView view;
    SeekRefusal refusal = seek_.Decode(region, reduction, luma, pixels, &view);
    if (refusal == SeekRefusal::kNone) return view;
    HR_RETURN_IF_ERROR(Fall(refusal));
  }
  DecodeTask task{region, reduction, luma, pixels, row, {}};
  if (!DecodeGuarded(state_.get(), &task)) return FailureOf(*state_);
  return task.view;
}

bool JpegDecoder::HasYccPlanes() const {
  if (path_ == SeekRefusal::kNone) return seek_.frame().num_components == 3 && !seek_.frame().rgb;
  const jpeg_decompress_struct& c = state_->cinfo;
  if (c.jpeg_color_space != JCS_YCbCr || c.num_components != 3) return false;
  return std::all_of(c.comp_info, c.comp_info + 3, [&](const jpeg_component_info& info) {
    return MostOf(c, &jpeg_component_info::h_samp_factor) % info.h_samp_factor == 0 &&
           MostOf(c, &jpeg_component_info::v_samp_factor) % info.v_samp_factor == 0;
  });
}

Result<YccPlanes> JpegDecoder::DecodeSamples(const Rect& region, uint32_t reduction,
                                             AlignedBuffer* buffer) {
  if (path_ == SeekRefusal::kNone) {
    YccPlanes planes;
    SeekRefusal refusal = seek_.DecodeSamples(region, reduction, &planes);
    if (refusal == SeekRefusal::kNone) return planes;
    HR_RETURN_IF_ERROR(Fall(refusal));
  }
  SamplesTask task{region, reduction, buffer, {}};
  if (!DecodePlanesGuarded(state_.get(), &task)) return FailureOf(*state_);
  return task.planes;
}

SeekRefusal JpegDecoder::CompareFrame(Bytes file, const JpegFrame& frame) {
  auto info = OpenReference(file, UINT64_MAX);
  if (!info.ok()) {
    Code code = info.status().code();
    if (code == Code::kUnimplemented) return SeekRefusal::kCoding;
    return code == Code::kDataLoss ? SeekRefusal::kDamaged : SeekRefusal::kNoRecord;
  }
  SeekRefusal refusal = Compare(*state_, frame);
  Reset(state_.get());
  return refusal;
}

}  // namespace headrace::codec
