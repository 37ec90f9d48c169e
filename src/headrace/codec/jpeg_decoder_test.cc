#include "headrace/codec/jpeg_decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "headrace/codec/image.h"
#include "headrace/codec/pixel_conversion.h"
#include "headrace/codec/testing/draw_region.h"
#include "headrace/codec/testing/test_images.h"

namespace headrace::codec {
namespace {

constexpr uint64_t kMaxPixels = 1 << 24;

Result<PixelView> Decode(const std::string& file, const Rect& region, uint32_t channels,
                         Scratch* scratch) {
  return DecodeRegion(AsBytes(file), region, channels, kMaxPixels, {}, scratch);
}

// The reference in the same number of channels.
TestPixels ReferencePixels(const std::string& file, uint32_t channels, bool ycc) {
  TestPixels p = ReferenceDecode(file, channels == 1 && ycc);
  size_t n = size_t{p.width} * p.height;
  std::vector<uint8_t> data(n * 3);
  if (p.channels == 4) InvertedCmykToRgb(p.data.data(), n, data.data());
  if (p.channels == 3) data = p.data;
  if (p.channels == 1) ExpandLuma(p.data.data(), n, data.data());
  if (channels == 1) {
    std::vector<uint8_t> luma(n);
    if (p.channels == 1)
      luma = p.data;
    else
      RgbToLuma(data.data(), n, luma.data());
    data = luma;
  }
  p.data = data;
  p.channels = channels;
  return p;
}

std::string Difference(const PixelView& view, const TestPixels& want, const Rect& r) {
  for (uint32_t y = 0; y < r.height; ++y)
    for (uint32_t x = 0; x < r.width * view.channels; ++x) {
      int got = view.data[y * view.stride + x];
      int ref = want.data[(size_t{r.y + y} * want.width + r.x) * want.channels + x];
      if (got != ref)
        return "row " + std::to_string(y) + " byte " + std::to_string(x) + ": " +
               std::to_string(got) + " for " + std::to_string(ref);
    }
  return "";
}

struct Case {
  JpegOptions options;
  uint32_t width, height, channels;
  uint64_t seed;
};

Case DrawCase() {
  Case c;
  static constexpr int kSampling[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}, {1, 4}};
  const auto& s = kSampling[*rc::gen::inRange(0, 7)];
  c.options.h = s[0];
  c.options.v = s[1];
  c.channels = *rc::gen::element(1u, 3u, 3u, 3u, 3u, 4u);
  if (c.channels == 4 && c.options.h * c.options.v > 4) c.options.h = 2;  // a scan holds 10 blocks
  c.options.progressive = *rc::gen::inRange(0, 4) == 0;
  c.options.multi_scan = *rc::gen::inRange(0, 8) == 0;
  c.options.arithmetic = *rc::gen::inRange(0, 8) == 0;
  c.options.max_scans = *rc::gen::element(0, 0, 1, 3);
  c.options.restart_mcus = *rc::gen::element(0, 0, 1, 5);
  c.options.optimize = !c.options.arithmetic && *rc::gen::arbitrary<bool>();
  c.options.rgb = *rc::gen::inRange(0, 8) == 0;
  c.options.ycck = *rc::gen::arbitrary<bool>();
  c.options.quality = *rc::gen::inRange(20, 100);
  c.width = *rc::gen::element(*rc::gen::inRange(1u, 20u), *rc::gen::inRange(1u, 200u));
  c.height = *rc::gen::element(*rc::gen::inRange(1u, 20u), *rc::gen::inRange(1u, 200u));
  c.seed = *rc::gen::arbitrary<uint64_t>();
  return c;
}

RC_GTEST_PROP(JpegRegion, EqualsTheSamePartOfTheWholeDecode, ()) {
  static Scratch scratch;  // one for all cases: nothing of a file may reach the next
  Case c = DrawCase();
  std::string file = EncodeJpeg(MakePixels(c.width, c.height, c.channels, c.seed), c.options);
  bool ycc = c.channels == 3 && !c.options.rgb;
  for (uint32_t channels : {3u, 1u}) {
    TestPixels want = ReferencePixels(file, channels, ycc);
    for (int i = 0; i < 6; ++i) {
      Rect region = DrawRegion(c.width, c.height);
      auto view = Decode(file, region, channels, &scratch);
      if (!view.ok()) RC_FAIL(std::string(view.status().message()));
      std::string difference = Difference(*view, want, region);
      if (!difference.empty())
        RC_FAIL(difference + " region " + std::to_string(region.x) + "," +
                std::to_string(region.y) + " " + std::to_string(region.width) + "x" +
                std::to_string(region.height) + " of " + std::to_string(c.width) + "x" +
                std::to_string(c.height) + " sampling " + std::to_string(c.options.h) +
                std::to_string(c.options.v));
    }
  }
}

}  // namespace
}  // namespace headrace::codec
