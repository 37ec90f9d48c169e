#include "headrace/codec/element.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace headrace::codec {
namespace {

TEST(Half, RoundTripsEveryValue) {
  for (uint32_t h = 0; h < 65536; ++h) {
    float f = HalfToFloat(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_EQ(FloatToHalf(f) & 0x7e00, 0x7e00);
    } else {
      ASSERT_EQ(FloatToHalf(f), h) << f;
    }
  }
}

TEST(Half, RoundsToNearestTiesToEven) {
  // Between each two neighbours: the middle goes to the even one, a step beyond it to the nearer
  // one.
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    float low = HalfToFloat(static_cast<uint16_t>(h)),
          high = HalfToFloat(static_cast<uint16_t>(h + 1));
    float middle = low + (high - low) / 2;
    ASSERT_EQ(FloatToHalf(middle), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), h);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), h + 1);
    ASSERT_EQ(FloatToHalf(-middle), 0x8000 + (h % 2 == 0 ? h : h + 1));
  }
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(1e30f), 0x7c00);
}

TEST(Bfloat16, RoundsToNearestTiesToEven) {
  for (uint32_t b = 0; b < 0x7f7f; ++b) {
    uint32_t middle = (b << 16) | 0x8000;
    ASSERT_EQ(FloatToBfloat16(std::bit_cast<float>(middle)), b % 2 == 0 ? b : b + 1);
    ASSERT_EQ(FloatToBfloat16(std::bit_cast<float>(middle - 1)), b);
    ASSERT_EQ(FloatToBfloat16(std::bit_cast<float>(middle + 1)), b + 1);
  }
  EXPECT_TRUE((FloatToBfloat16(std::numeric_limits<float>::quiet_NaN()) & 0x7f) != 0);
}

template <typename T>
T Stored(const Number& number, DType dtype, StoreFault want = StoreFault::kNone) {
  std::byte bytes[8] = {};
  EXPECT_EQ(StoreNumber(number, dtype, bytes), want) << number.ToString();
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

TEST(StoreNumber, KeepsWhatFits) {
  EXPECT_EQ(Stored<int8_t>(Number::Signed(-128), DType::kInt8), -128);
  EXPECT_EQ(Stored<uint8_t>(Number::Unsigned(255), DType::kUint8), 255);
  EXPECT_EQ(Stored<int64_t>(Number::Signed(INT64_MIN), DType::kInt64), INT64_MIN);
  EXPECT_EQ(Stored<int16_t>(Number::Float(-7.0), DType::kInt16), -7);
  EXPECT_EQ(Stored<float>(Number::Float(0.1), DType::kFloat32), 0.1f);
  EXPECT_EQ(Stored<double>(Number::Float(0.1), DType::kFloat64), 0.1);
  EXPECT_EQ(Stored<uint16_t>(Number::Signed(-2), DType::kFloat16), 0xc000);
  EXPECT_EQ(Stored<uint16_t>(Number::Unsigned(256), DType::kBfloat16), 0x4380);
  EXPECT_TRUE(std::isinf(Stored<float>(Number::Float(INFINITY), DType::kFloat32)));
}

TEST(StoreNumber, RefusesWhatWouldChange) {
  for (DType dtype : {DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    Stored<int8_t>(Number::Float(0.5), dtype, StoreFault::kFraction);
    Stored<int8_t>(Number::Float(NAN), dtype, StoreFault::kOverflow);
    Stored<int8_t>(Number::Float(1e19), dtype, StoreFault::kOverflow);
    Stored<int8_t>(Number::Unsigned(UINT64_MAX), dtype, StoreFault::kOverflow);
  }
  Stored<int8_t>(Number::Signed(-1), DType::kUint8, StoreFault::kOverflow);
  Stored<int8_t>(Number::Signed(128), DType::kInt8, StoreFault::kOverflow);
  Stored<int8_t>(Number::Float(-129.0), DType::kInt8, StoreFault::kOverflow);
  Stored<float>(Number::Float(1e39), DType::kFloat32, StoreFault::kOverflow);
  Stored<float>(Number::Signed(16777217), DType::kFloat32, StoreFault::kInexact);
  Stored<uint16_t>(Number::Signed(2049), DType::kFloat16, StoreFault::kInexact);
  Stored<uint16_t>(Number::Signed(70000), DType::kFloat16, StoreFault::kOverflow);
  Stored<uint16_t>(Number::Signed(257), DType::kBfloat16, StoreFault::kInexact);
  Stored<double>(Number::Unsigned(UINT64_MAX), DType::kFloat64, StoreFault::kInexact);
}

}  // namespace
}  // namespace headrace::codec
