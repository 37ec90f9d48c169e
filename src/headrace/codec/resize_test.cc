#include "headrace/codec/resize.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "headrace/codec/element.h"
#include "headrace/codec/testing/instruction_sets.h"
#include "headrace/codec/testing/test_images.h"

namespace headrace::codec {
namespace {

// NOLINTBEGIN(bugprone-incorrect-roundings): adding a half and truncating is the definition
// The filter as a formula: the weight of each sample for output i.
std::vector<double> Weights(uint32_t in, uint32_t out, uint32_t i) {
  double scale = static_cast<double>(in) / out, support = std::max(scale, 1.0),
         center = (i + 0.5) * scale, sum = 0;
  auto begin = static_cast<int64_t>(std::max(0.0, center - support + 0.5));
  auto end = std::min<int64_t>(in, static_cast<int64_t>(center + support + 0.5));
  std::vector<double> w(in, 0.0);
  for (int64_t k = begin; k < end; ++k)
    sum += w[k] = std::max(0.0, 1 - std::fabs((k + 0.5 - center) / support));
  for (double& v : w) v /= sum;
  return w;
}

// The definition, step by step: columns first, 8 bits between, 22-bit weights.
std::vector<uint8_t> Reference(const TestPixels& p, const AxisPlan& x, const AxisPlan& y,
                               bool flip) {
  auto sum = [](const std::vector<double>& weights, auto sample) {
    int64_t total = 1 << 21;
    for (size_t k = 0; k < weights.size(); ++k)
      total += static_cast<int64_t>(0.5 + weights[k] * (1 << 22)) * sample(k);
    return static_cast<uint8_t>(std::min<int64_t>(total >> 22, 255));
  };
  std::vector<uint8_t> middle(size_t{p.height} * x.count * p.channels),
      result(size_t{y.count} * x.count * p.channels);
  for (uint32_t i = 0; i < x.count; ++i) {
    auto weights = Weights(x.in, x.out, x.begin + i);
    uint32_t place = flip ? x.count - 1 - i : i;
    for (uint32_t r = 0; r < p.height; ++r)
      for (uint32_t c = 0; c < p.channels; ++c)
        middle[(size_t{r} * x.count + place) * p.channels + c] = sum(
            weights, [&](size_t k) { return p.data[(size_t{r} * p.width + k) * p.channels + c]; });
  }
  size_t row = size_t{x.count} * p.channels;
  for (uint32_t j = 0; j < y.count; ++j) {
    auto weights = Weights(y.in, y.out, y.begin + j);
    for (size_t i = 0; i < row; ++i)
      result[j * row + i] = sum(weights, [&](size_t k) { return middle[k * row + i]; });
  }
  return result;
}

// NOLINTEND(bugprone-incorrect-roundings)

struct Job {
  TestPixels pixels;
  AxisPlan x, y;
  bool flip = false;
};

AxisPlan DrawPlan(uint32_t in) {
  AxisPlan plan{in, *rc::gen::inRange(1u, 90u), 0, 0};
  plan.begin = *rc::gen::inRange(0u, plan.out);
  plan.count = *rc::gen::inRange(1u, plan.out - plan.begin + 1);
  return plan;
}

Job DrawJob() {
  uint32_t w = *rc::gen::inRange(1u, 160u), h = *rc::gen::inRange(1u, 160u);
  Job job{MakePixels(w, h, *rc::gen::element(1u, 3u), *rc::gen::arbitrary<uint64_t>()), DrawPlan(w),
          DrawPlan(h), *rc::gen::arbitrary<bool>()};
  return job;
}

std::vector<std::byte> Resample(Resizer* resizer, const Job& job, const OutputFormat& format,
                                uint32_t left = 0, uint32_t top = 0) {
  EXPECT_TRUE(resizer->Prepare(job.x, job.y, job.flip));
  Rect source = resizer->source();
  uint32_t channels = job.pixels.channels;
  size_t stride = size_t{job.pixels.width} * channels;
  // Room to read past the end, as AlignedBuffer gives it.
  std::vector<uint8_t> data = job.pixels.data;
  data.resize(data.size() + 64, 0xee);
  PixelView view{data.data() + source.y * stride + size_t{source.x} * channels, stride,
                 source.width, source.height, channels};
  std::vector<std::byte> out(
      size_t{format.height} * format.width * format.channels * DTypeBytes(format.dtype),
      std::byte{0xaa});
  Status status = resizer->Run(view, format, left, top, out.data());
  EXPECT_TRUE(status.ok());
  return out;
}

OutputFormat Format(DType dtype, bool channels_last, uint32_t channels, uint32_t height,
                    uint32_t width) {
  OutputFormat format{dtype, channels_last, channels, height, width, {}, {}};
  format.SetNormalization({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  return format;
}

RC_GTEST_PROP(Resize, EqualsItsDefinitionOnEveryTarget, ()) {
  Job job = DrawJob();
  std::vector<uint8_t> want = Reference(job.pixels, job.x, job.y, job.flip);
  OutputFormat format = Format(DType::kUint8, true, job.pixels.channels, job.y.count, job.x.count);
  ForEachTarget([&](int64_t target) {
    static Resizer resizer;
    auto out = Resample(&resizer, job, format);
    RC_ASSERT(out.size() == want.size());
    if (std::memcmp(out.data(), want.data(), out.size()) != 0)
      RC_FAIL(std::string("differs with ") + hwy::TargetName(target));
  });
}

TEST(Resize, TestsThePlainFormToo) {
  int64_t all = 0;
  ForEachTarget([&](int64_t target) { all |= target; });
  EXPECT_TRUE(all & (HWY_SCALAR | HWY_EMU128));
}

// Far from every rounding question: the real value of the filter, without integers.
TEST(Resize, LiesWithinOneLevelOfTheRealValue) {
  for (auto [w, h, ow, oh] :
       {std::array<uint32_t, 4>{300, 250, 224, 224}, {90, 120, 224, 224}, {299, 31, 12, 64}}) {
    Job job{MakePixels(w, h, 3, 9), {w, ow, 0, ow}, {h, oh, 0, oh}, false};
    Resizer resizer;
    auto out = Resample(&resizer, job, Format(DType::kUint8, true, 3, oh, ow));
    std::vector<std::vector<double>> wx(ow), wy(oh);
    for (uint32_t i = 0; i < ow; ++i) wx[i] = Weights(w, ow, i);
    for (uint32_t j = 0; j < oh; j += 7) {
      wy[j] = Weights(h, oh, j);
      for (uint32_t i = 0; i < ow; i += 5) {
        double value = 0;
        for (uint32_t y = 0; y < h; ++y)
          for (uint32_t x = 0; x < w; ++x)
            if (wy[j][y] > 0 && wx[i][x] > 0)
              value += wy[j][y] * wx[i][x] * job.pixels.data[(size_t{y} * w + x) * 3];
        ASSERT_NEAR(std::to_integer<int>(out[(size_t{j} * ow + i) * 3]), value, 1.001);
      }
    }
  }
}

float Value(uint8_t v, size_t channel) {
  static constexpr double kMean[] = {0.485, 0.456, 0.406}, kStd[] = {0.229, 0.224, 0.225};
  volatile float product =
      static_cast<float>(v) * static_cast<float>(1.0 / (255.0 * kStd[channel]));
  return product + static_cast<float>(-kMean[channel] / kStd[channel]);
}

TEST(Resize, ConvertsAlikeOnEveryTarget) {
  // 299 columns: vectors and a rest. Every value from 0 to 255 comes.
  Job job{MakePixels(299, 41, 3, 4), {299, 299, 0, 299}, {41, 41, 0, 41}, false};
  for (size_t i = 0; i < 256 * 3; ++i) job.pixels.data[i] = static_cast<uint8_t>(i / 3);
  for (bool last : {false, true})
    for (DType dtype : {DType::kUint8, DType::kFloat16, DType::kBfloat16, DType::kFloat32}) {
      OutputFormat format = Format(dtype, last, 3, 41, 299);
      ForEachTarget([&](int64_t target) {
        Resizer resizer;
        auto out = Resample(&resizer, job, format);
        for (size_t c = 0; c < 3; ++c)
          for (size_t i = 0; i < size_t{41} * 299; ++i) {
            uint8_t v = job.pixels.data[i * 3 + c];
            float value = Value(v, c);
            uint16_t half = dtype == DType::kFloat16 ? FloatToHalf(value) : FloatToBfloat16(value);
            const std::byte* got =
                out.data() + (last ? i * 3 + c : c * 41 * 299 + i) * DTypeBytes(dtype);
            const void* want = dtype == DType::kUint8     ? static_cast<const void*>(&v)
                               : dtype == DType::kFloat32 ? static_cast<const void*>(&value)
                                                          : &half;
            ASSERT_EQ(std::memcmp(got, want, DTypeBytes(dtype)), 0)
                << hwy::TargetName(target) << " " << DTypeName(dtype) << " value " << int{v}
                << " channel " << c;
          }
      });
    }
}

TEST(Resize, SpreadsGrayAndFillsTheBorder) {
  Job job{MakePixels(20, 10, 1, 4), {20, 20, 0, 20}, {10, 10, 0, 10}, false};
  for (bool last : {false, true}) {
    Resizer resizer;
    auto out = Resample(&resizer, job, Format(DType::kUint8, last, 3, 13, 27), 4, 2);
    for (size_t y = 0; y < 13; ++y)
      for (size_t x = 0; x < 27; ++x)
        for (size_t c = 0; c < 3; ++c) {
          bool inside = y >= 2 && y < 12 && x >= 4 && x < 24;
          int want = inside ? job.pixels.data[(y - 2) * 20 + x - 4] : 0;
          ASSERT_EQ(std::to_integer<int>(out[last ? (y * 27 + x) * 3 + c : (c * 13 + y) * 27 + x]),
                    want);
        }
  }
}

TEST(Resize, ShrinksHugeImagesInBoundedMemory) {
  Job job{MakePixels(3, 60000, 1, 4), {3, 2, 0, 2}, {60000, 3, 0, 3}, false};
  Resizer resizer;
  auto out = Resample(&resizer, job, Format(DType::kUint8, true, 1, 3, 2));
  EXPECT_EQ(out.size(), 6u);
  EXPECT_LT(resizer.memory_bytes(), 8u << 20);
  auto want = Reference(job.pixels, job.x, job.y, false);
  EXPECT_EQ(std::memcmp(out.data(), want.data(), 6), 0);
}

}  // namespace
}  // namespace headrace::codec
