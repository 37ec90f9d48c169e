#include "headrace/codec/testing/test_images.h"

#include <cmath>
#include <cstdlib>

#include "headrace/codec/jpeg_library.h"

namespace headrace::codec {
namespace {

void WriteHeader(jpeg_compress_struct* c, const TestPixels& pixels, const JpegOptions& o) {
  c->image_width = pixels.width;
  c->image_height = pixels.height;
  c->input_components = static_cast<int>(pixels.channels);
  c->in_color_space = pixels.channels == 1   ? JCS_GRAYSCALE
                      : pixels.channels == 3 ? JCS_RGB
                                             : JCS_CMYK;
  jpeg_set_defaults(c);
  if (o.rgb && pixels.channels == 3) jpeg_set_colorspace(c, JCS_RGB);
  if (pixels.channels == 4) jpeg_set_colorspace(c, o.ycck ? JCS_YCCK : JCS_CMYK);
  jpeg_set_quality(c, o.quality, TRUE);
  c->comp_info[0].h_samp_factor = o.h;
  c->comp_info[0].v_samp_factor = o.v;
  if (pixels.channels == 4) {
    c->comp_info[3].h_samp_factor = o.h;
    c->comp_info[3].v_samp_factor = o.v;
  }
  c->restart_interval = static_cast<unsigned>(o.restart_mcus);
  c->optimize_coding = o.optimize ? TRUE : FALSE;
  c->arith_code = o.arithmetic ? TRUE : FALSE;
}

}  // namespace

TestPixels MakePixels(uint32_t width, uint32_t height, uint32_t channels, uint64_t seed) {
  TestPixels p{width, height, channels, std::vector<uint8_t>(size_t{width} * height * channels)};
  KeyedRandom random(seed);
  double fx = 0.02 + 0.3 * random.NextDouble(), fy = 0.02 + 0.3 * random.NextDouble();
  uint32_t edge = static_cast<uint32_t>(random.NextBelow(width + 1));
  size_t i = 0;
  for (uint32_t y = 0; y < height; ++y)
    for (uint32_t x = 0; x < width; ++x)
      for (uint32_t c = 0; c < channels; ++c, ++i) {
        double wave = 127 + 90 * std::sin(fx * x + c) * std::cos(fy * y + 2 * c);
        double value = wave + static_cast<double>(random.NextBelow(40)) - (x > edge ? 60 : 0);
        p.data[i] = static_cast<uint8_t>(std::fmin(255, std::fmax(0, value)));
      }
  return p;
}

std::string EncodeJpeg(const TestPixels& pixels, const JpegOptions& o) {
  jpeg_compress_struct c;
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &buffer, &size);
  WriteHeader(&c, pixels, o);
  if (o.progressive) jpeg_simple_progression(&c);
  if (o.progressive && o.max_scans > 0 && o.max_scans < c.num_scans) c.num_scans = o.max_scans;
  jpeg_scan_info scans[4] = {};
  if (o.multi_scan && !o.progressive) {
    for (int i = 0; i < c.num_components; ++i) scans[i] = {1, {i, 0, 0, 0}, 0, 63, 0, 0};
    c.scan_info = scans;
    c.num_scans = c.num_components;
  }
  jpeg_start_compress(&c, TRUE);
  for (uint32_t y = 0; y < pixels.height; ++y) {
    auto* row =
        const_cast<JSAMPROW>(pixels.data.data() + size_t{y} * pixels.width * pixels.channels);
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  std::string file(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return file;
}

std::string EncodeCoefficients(uint32_t width, uint32_t height, uint16_t quantizer,
                               const std::function<int(size_t)>& value) {
  jpeg_compress_struct c;
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &buffer, &size);
  WriteHeader(&c, {width, height, 1, {}}, {.h = 1, .v = 1});
  for (auto& q : c.quant_tbl_ptrs[0]->quantval) q = quantizer;
  JDIMENSION columns = (width + 7) / 8, rows = (height + 7) / 8;
  jvirt_barray_ptr blocks = c.mem->request_virt_barray(reinterpret_cast<j_common_ptr>(&c),
                                                       JPOOL_IMAGE, TRUE, columns, rows, 1);
  jpeg_write_coefficients(&c, &blocks);
  for (JDIMENSION y = 0; y < rows; ++y) {
    JBLOCKARRAY row =
        c.mem->access_virt_barray(reinterpret_cast<j_common_ptr>(&c), blocks, y, 1, TRUE);
    for (JDIMENSION x = 0; x < columns; ++x)
      for (size_t k = 0; k < 64; ++k) row[0][x][k] = static_cast<JCOEF>(value(k));
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  std::string file(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return file;
}

TestPixels ReferenceDecode(const std::string& file, bool gray) {
  jpeg_decompress_struct c;
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&c);
  jpeg_mem_src(&c, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&c, TRUE);
  if (gray) c.out_color_space = JCS_GRAYSCALE;
  jpeg_start_decompress(&c);
  TestPixels p{c.output_width, c.output_height, static_cast<uint32_t>(c.output_components), {}};
  p.data.resize(size_t{p.width} * p.height * p.channels);
  while (c.output_scanline < c.output_height) {
    JSAMPROW row = p.data.data() + size_t{c.output_scanline} * p.width * p.channels;
    jpeg_read_scanlines(&c, &row, 1);
  }
  jpeg_finish_decompress(&c);
  jpeg_destroy_decompress(&c);
  return p;
}

}  // namespace headrace::codec
