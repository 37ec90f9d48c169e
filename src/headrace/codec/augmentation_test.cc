#include "headrace/codec/augmentation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "headrace/codec/pixel_ops.h"
#include "headrace/codec/testing/instruction_sets.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {
namespace {

// Made-up planes of any size.
class Image {
 public:
  Image(uint32_t width, uint32_t height, uint32_t channels, uint64_t seed = 1)
      : data_(size_t{width} * height * channels),
        planes_{data_.data(), channels, height, width},
        memory_(PixelOpMemory(height, width)) {
    KeyedRandom random(seed);
    for (uint8_t& value : data_) value = static_cast<uint8_t>(random.NextBelow(256));
  }
  Image(const Image& other)
      : data_(other.data_),
        planes_(other.planes_),
        memory_(PixelOpMemory(planes_.height, planes_.width)) {
    planes_.data = data_.data();
  }

  const Planes& planes() const { return planes_; }
  AlignedBuffer* memory() { return &memory_; }
  std::vector<uint8_t>& data() { return data_; }

 private:
  std::vector<uint8_t> data_;
  Planes planes_;
  AlignedBuffer memory_;
};

TEST(PixelOps, FactorsOfOneAndNoShiftChangeNothing) {
  Image image(37, 5, 3);
  std::vector<uint8_t> before = image.data();
  AdjustBrightness(image.planes(), 1);
  AdjustContrast(image.planes(), 1, image.memory());
  AdjustSaturation(image.planes(), 1, image.memory());
  Blur(image.planes(), BlurKernel(3, 0.001), image.memory());
  EXPECT_EQ(image.data(), before);
}

TEST(PixelOps, FactorsOfZeroGiveBlackTheMeanAndLuma) {
  Image image(37, 5, 3), gray = image;
  ToGray(gray.planes());
  Image black = image, flat = image, pale = image;
  AdjustBrightness(black.planes(), 0);
  EXPECT_EQ(black.data(), std::vector<uint8_t>(black.data().size(), 0));
  AdjustContrast(flat.planes(), 0, flat.memory());
  EXPECT_EQ(flat.data(), std::vector<uint8_t>(flat.data().size(), flat.data()[0]));
  AdjustSaturation(pale.planes(), 0, pale.memory());
  EXPECT_EQ(pale.data(), gray.data());
}

TEST(PixelOps, LumaImagesHaveNoColours) {
  Image image(37, 5, 1);
  std::vector<uint8_t> before = image.data();
  AdjustSaturation(image.planes(), 0.5, image.memory());
  ShiftHue(image.planes(), 99);
  ToGray(image.planes());
  EXPECT_EQ(image.data(), before);
}

TEST(BlurKernel, WeightsAreSymmetricAndSumToOne) {
  for (uint32_t size : {1u, 3u, 23u, 255u})
    for (double sigma : {0.001, 0.1, 1.0, 7.0, 1000.0}) {
      BlurKernel kernel(size, sigma);
      int sum = 0;
      for (uint32_t i = 0; i < size; ++i) {
        sum += kernel.weights[i];
        EXPECT_GE(kernel.weights[i], 0);
        EXPECT_EQ(kernel.weights[i], kernel.weights[size - 1 - i]);
      }
      EXPECT_EQ(sum, 1 << 14);
    }
}

// What pixel_ops.h says, pixel by pixel.
std::vector<uint8_t> BlurByHand(const Image& image, const BlurKernel& kernel) {
  const Planes& p = image.planes();
  const int half = static_cast<int>(kernel.size / 2), w = static_cast<int>(p.width),
            h = static_cast<int>(p.height);
  auto mirrored = [](int at, int count) {
    at = std::abs(at);
    return at >= count ? 2 * (count - 1) - at : at;
  };
  auto place = [](int i) { return static_cast<size_t>(i); };
  std::vector<int> rows(p.plane_bytes());
  std::vector<uint8_t> out;
  for (uint32_t c = 0; c < p.channels; ++c) {
    const uint8_t* plane = p.data + c * p.plane_bytes();
    for (int i = 0; i < w * h; ++i) {
      int sum = 64;
      for (int k = -half; k <= half; ++k)
        sum += kernel.weights[place(k + half)] * plane[i / w * w + mirrored(i % w + k, w)];
      rows[place(i)] = sum / 128;
    }
    for (int i = 0; i < w * h; ++i) {
      int sum = 1 << 20;
      for (int k = -half; k <= half; ++k)
        sum += kernel.weights[place(k + half)] * rows[place(mirrored(i / w + k, h) * w + i % w)];
      out.push_back(static_cast<uint8_t>(sum >> 21));
    }
  }
  return out;
}

RC_GTEST_PROP(Blur, EqualsItsDefinition, ()) {
  uint32_t size = *rc::gen::inRange(0u, 12u) * 2 + 1;
  uint32_t width = *rc::gen::inRange(size / 2 + 1, 90u),
           height = *rc::gen::inRange(size / 2 + 1, 40u);
  BlurKernel kernel(size, *rc::gen::element(0.1, 0.7, 2.0, 9.0));
  Image image(width, height, *rc::gen::element(1u, 3u), *rc::gen::arbitrary<uint64_t>());
  std::vector<uint8_t> want = BlurByHand(image, kernel);
  Blur(image.planes(), kernel, image.memory());
  RC_ASSERT(image.data() == want);
}

TEST(PixelOps, EveryInstructionSetGivesTheSameBytes) {
  Image start(83, 29, 3);
  std::vector<uint8_t> want;
  ForEachTarget([&](int64_t target) {
    Image image = start;
    ShiftHue(image.planes(), 40);
    AdjustSaturation(image.planes(), 1.3f, image.memory());
    AdjustContrast(image.planes(), 0.7f, image.memory());
    Blur(image.planes(), BlurKernel(7, 1.1), image.memory());
    if (want.empty()) want = image.data();
    EXPECT_EQ(image.data(), want) << hwy::TargetName(target);
  });
}

TEST(ColorJitterDraw, UsesEveryOrderEquallyOften) {
  std::array<int, 256> counts{};
  Augmentation::Jitter ranges{Range{0, 2}, Range{0, 2}, Range{0, 2}, Range{-0.5, 0.5}};
  constexpr int kDraws = 24000;
  double sum = 0;
  int applied = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    ColorJitterDraw draw = DrawColorJitter(OpRandom({1, 2, i}, 3), 0.25, ranges);
    applied += draw.applied;
    sum += draw.factors[3];
    ++counts[static_cast<size_t>(draw.order[0] << 6 | draw.order[1] << 4 | draw.order[2] << 2 |
                                 draw.order[3])];
  }
  EXPECT_NEAR(applied, kDraws * 0.25, 400);
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  int orders = 0;
  for (int count : counts) {
    orders += count > 0;
    if (count > 0) {
      EXPECT_NEAR(count, 1000, 160);
    }
  }
  EXPECT_EQ(orders, 24);
}

Status Create(const std::string& op) {
  auto transform = CreateTransform(
      R"({"type": "image", "ops": [{"op": "resize", "size": [10, 20]}, )" + op + "]}");
  return transform.status();
}

TEST(Augmentation, NamesTheWrongMember) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"op": "color_jitter", "brightness": 0.4})", "\"brightness\""},
      {R"({"op": "color_jitter", "brightness": [-0.1, 1]})", "\"brightness\""},
      {R"({"op": "color_jitter", "contrast": [2, 1]})", "\"contrast\""},
      {R"({"op": "color_jitter", "hue": [-0.6, 0]})", "\"hue\""},
      {R"({"op": "color_jitter", "p": 1.5})", "\"p\""},
      {R"({"op": "color_jitter", "gamma": [1, 1]})", "\"gamma\": is not known"},
      {R"({"op": "random_grayscale", "p": -1})", "\"p\""},
      {R"({"op": "gaussian_blur"})", "\"kernel_size\": is missing"},
      {R"({"op": "gaussian_blur", "kernel_size": 4})", "odd"},
      {R"({"op": "gaussian_blur", "kernel_size": 257})", "\"kernel_size\""},
      {R"({"op": "gaussian_blur", "kernel_size": 21})", "too large for an output of 20 x 10"},
      {R"({"op": "gaussian_blur", "kernel_size": 3, "sigma": [0, 1]})", "\"sigma\""},
      {R"({"op": "gaussian_blur", "kernel_size": 3}, {"op": "color_jitter"})", "in this order"}};
  for (const auto& [op, text] : wrong) {
    Status status = Create(op);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << op;
    EXPECT_NE(status.message().find(text), std::string_view::npos) << status.ToString();
  }
  EXPECT_TRUE(Create(R"({"op": "gaussian_blur", "kernel_size": 19})").ok());
}

// The floating-point outputs are those of the 8-bit ones, whatever the layout.
TEST(Augmentation, OutputsAgree) {
  std::string file = EncodeJpeg(MakePixels(70, 50, 3, 1), {});
  std::string ops =
      R"("ops": [{"op": "random_resized_crop", "size": [12, 19]}, {"op": "color_jitter", "brightness": [0.5, 1.5],
      "hue": [-0.2, 0.2]}, {"op": "gaussian_blur", "kernel_size": 5}])";
  Scratch scratch;
  auto apply = [&](const std::string& members) {
    auto transform = CreateTransform(R"({"type": "image", )" + members + ops + "}");
    EXPECT_TRUE(transform.ok()) << transform.status().ToString();
    std::vector<std::byte> out((*transform)->output().bytes());
    EXPECT_TRUE((*transform)->Apply(AsBytes(file), {}, {1, 2, 3}, &scratch, out).ok());
    return out;
  };
  std::vector<std::byte> bytes = apply(R"("layout": "NHWC", )"), planes = apply("");
  std::vector<std::byte> floats = apply(R"("dtype": "float32", )");
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < 12 * 19; ++i) {
      auto value = std::to_integer<uint8_t>(planes[c * 12 * 19 + i]);
      ASSERT_EQ(std::to_integer<uint8_t>(bytes[i * 3 + c]), value);
      float real;
      std::memcpy(&real, &floats[(c * 12 * 19 + i) * 4], 4);
      ASSERT_EQ(real, static_cast<float>(value) * static_cast<float>(1.0 / 255.0));
    }
}

}  // namespace
}  // namespace headrace::codec
