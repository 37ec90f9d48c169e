#include "headrace/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "headrace/base/keyed_random.h"
#include "headrace/base/text.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::string MessageFor(std::string_view text) {
  Result<Json> value = Json::Parse(text);
  if (value.ok()) return "no error: " + value->Dump();
  EXPECT_EQ(value.status().code(), Code::kInvalidArgument) << text;
  return std::string(value.status().message());
}

std::string Again(std::string_view text) {
  Result<Json> value = Json::Parse(text);
  return value.ok() ? value->Dump() : value.status().ToString();
}

TEST(Json, ReadsAndWritesEveryKind) {
  std::string text = R"({"a": [1, -2, 1.5, true, false, null, "x\n"], "b": {}, "c": [], "": ""})";
  EXPECT_EQ(Again(text), text);
  EXPECT_EQ(Again(" [ 1 , 2 ] "), "[1, 2]");
  EXPECT_EQ(Again("7"), "7");
}

TEST(Json, KeepsTheOrderOfMembers) {
  EXPECT_EQ(Again(R"({"z": 1, "a": 2, "m": 3})"), R"({"z": 1, "a": 2, "m": 3})");
}

TEST(Json, IndentsForReaders) {
  Json value = Json::MakeObject();
  value.Set("a", Json::MakeArray().Append(1).Append("x")).Set("b", Json::MakeObject());
  EXPECT_EQ(value.Dump(2), "{\n  \"a\": [\n    1,\n    \"x\"\n  ],\n  \"b\": {}\n}");
}

TEST(Json, KeepsNumbersExact) {
  EXPECT_EQ(Again("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(Again("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(Again("0.1"), "0.1");
  EXPECT_EQ(Again("1.0"), "1.0");
  EXPECT_EQ(Again("1e300"), "1e+300");
  EXPECT_TRUE(Json::Parse("1.0")->Dump() != Json::Parse("1")->Dump());
  EXPECT_FALSE(Json::Parse("18446744073709551616")->is_integer());  // beyond 64 bits
}

TEST(Json, WritesNumbersThatJsonHasNotAsNull) {
  EXPECT_EQ(Json(std::nan("")).Dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).Dump(), "null");
}

TEST(Json, EscapesText) {
  EXPECT_EQ(Json("\"\\\n\t\r\x01\x7f/").Dump(), R"("\"\\\n\t\r\u0001\u007f/")");
  EXPECT_EQ(Json("caf\xc3\xa9").Dump(), "\"caf\xc3\xa9\"");
  EXPECT_EQ(Json("caf\xe9").Dump(), R"("caf\\xe9")");  // not UTF-8: the text of EscapeText
  EXPECT_EQ(Json::Parse(R"("\u00e9\ud83d\ude00\/")")->AsString(), "\xc3\xa9\xf0\x9f\x98\x80/");
}

TEST(Json, RefusesMalformedText) {
  for (const char* text :
       {"",        " ",           "{",          "[",        "[1",   "[1,",  "[1,]",
        "{\"a\"}", "{\"a\":}",    "{\"a\":1,}", "{a:1}",    "nul",  "tru",  "01",
        "1.",      ".5",          "+1",         "--1",      "0x10", "'a'",  "\"a",
        "\"\\x\"", "\"\\ud800\"", "\"a\nb\"",   "\"\xff\"", "1 2",  "[1]]", "{} x",
        "NaN",     "Infinity",    "// x\n1",    "]",        "1e"}) {
    EXPECT_THAT(MessageFor(text), HasSubstr("at byte")) << text;
  }
}

TEST(Json, NamesThePlaceOfAFault) {
  EXPECT_EQ(MessageFor("[1, x]"), "not valid JSON at byte 4: unexpected 'x'");
  EXPECT_EQ(MessageFor("[1,"), "not valid JSON at byte 3: unexpected end of text");
  EXPECT_EQ(MessageFor(""), "not valid JSON at byte 0: unexpected end of text");
  EXPECT_EQ(MessageFor("[1, 1e999]"), "a number in the JSON is out of range, before byte 9");
}

TEST(Json, RefusesAMemberThatComesTwice) {
  EXPECT_THAT(MessageFor(R"([{"a": 1, "b": 2, "a": 3}])"), HasSubstr("member 'a' twice"));
  EXPECT_EQ(Again(R"([{"a": 1}, {"a": {"a": 2}}])"), R"([{"a": 1}, {"a": {"a": 2}}])");
}

TEST(Json, LimitsTheDepth) {
  auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Again(nested(64)), nested(64));
  EXPECT_THAT(MessageFor(nested(65)), HasSubstr("64 levels"));
  EXPECT_THAT(MessageFor(std::string(1'000'000, '[')), HasSubstr("64 levels"));
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_THAT(MessageFor(objects), HasSubstr("64 levels"));
}

TEST(Json, AnswersTheFallbackForAnotherType) {
  Json text("x"), negative(-1), large(UINT64_MAX), fraction(2.5), truth(true);
  EXPECT_EQ(text.AsInt(7), 7);
  EXPECT_EQ(text.AsUint(7), 7u);
  EXPECT_EQ(text.AsDouble(7), 7);
  EXPECT_EQ(text.AsBool(true), true);
  EXPECT_EQ(negative.AsUint(7), 7u);
  EXPECT_EQ(negative.AsInt(), -1);
  EXPECT_EQ(negative.AsDouble(), -1);
  EXPECT_EQ(large.AsInt(7), 7);
  EXPECT_EQ(large.AsUint(), UINT64_MAX);
  EXPECT_EQ(fraction.AsInt(7), 7);
  EXPECT_EQ(fraction.AsDouble(), 2.5);
  EXPECT_EQ(truth.AsString("none"), "none");
  EXPECT_TRUE(truth.AsBool());
  EXPECT_TRUE(text.items().empty());
  EXPECT_TRUE(text.members().empty());
  EXPECT_EQ(text.Find("a"), nullptr);
}

TEST(Json, GettersNameTheMember) {
  Json value = *Json::Parse(R"({"n": 5, "s": "x", "neg": -1, "f": 1.5})");
  EXPECT_EQ(*value.GetUint("n"), 5u);
  EXPECT_EQ(*value.GetString("s"), "x");
  EXPECT_EQ(value.GetUint("s").status().message(),
            "s: expected an unsigned integer, found a string");
  EXPECT_EQ(value.GetUint("neg").status().message(),
            "neg: expected an unsigned integer, found a negative integer");
  EXPECT_EQ(value.GetUint("f").status().message(),
            "f: expected an unsigned integer, found a fraction");
  EXPECT_EQ(value.GetString("none").status().message(),
            "none: expected a string, found no such member");
  EXPECT_EQ(Json(1).GetString("a").status().message(),
            "a: expected a string in an object, found an unsigned integer");
}

TEST(Json, SetReplacesAndAppendStartsAnArray) {
  Json value;
  value.Set("a", 1).Set("b", 2).Set("a", "new");
  EXPECT_EQ(value.Dump(), R"({"a": "new", "b": 2})");
  Json list;
  list.Append(1).Append(Json());
  EXPECT_EQ(list.Dump(), "[1, null]");
}

TEST(Json, CopiesAreDeep) {
  Json one = Json::MakeObject().Set("a", Json::MakeArray().Append(1));
  Json two = one;
  one.Set("a", 2);
  EXPECT_EQ(two.Dump(), R"({"a": [1]})");
}

Json AnyValue(KeyedRandom& random, int depth) {
  switch (random.NextBelow(depth > 0 ? 8 : 6)) {
    case 0:
      return Json();
    case 1:
      return Json(random.Next() % 2 == 0);
    case 2:
      return Json(static_cast<int64_t>(random.Next()));
    case 3:
      return Json(random.Next());
    case 4:
      return Json(
          std::ldexp(random.NextDouble() - 0.5, static_cast<int>(random.NextBelow(600)) - 300));
    case 5: {
      std::string text;
      for (uint64_t n = random.NextBelow(8); n > 0; --n)
        text += static_cast<char>(random.NextBelow(128));
      return Json(text);
    }
    case 6: {
      Json list = Json::MakeArray();
      for (uint64_t n = random.NextBelow(5); n > 0; --n) list.Append(AnyValue(random, depth - 1));
      return list;
    }
    default: {
      Json object = Json::MakeObject();
      for (uint64_t n = random.NextBelow(5); n > 0; --n)
        object.Set("k" + std::to_string(random.NextBelow(9)), AnyValue(random, depth - 1));
      return object;
    }
  }
}

RC_GTEST_PROP(Json, RoundTripsAnyValue, (uint64_t seed)) {
  KeyedRandom random(seed);
  Json value = AnyValue(random, 4);
  for (int indent : {0, 2}) {
    Result<Json> back = Json::Parse(value.Dump(indent));
    RC_ASSERT(back.ok());
    RC_ASSERT(back->Dump() == value.Dump());
  }
}

RC_GTEST_PROP(Json, DamagedTextIsAnAnswer, (uint64_t seed)) {
  KeyedRandom random(seed);
  std::string text = AnyValue(random, 4).Dump();
  for (int i = 0; i < 3 && !text.empty(); ++i)
    text[random.NextBelow(text.size())] = static_cast<char>(random.Next());
  Result<Json> value = Json::Parse(text);
  if (value.ok()) RC_ASSERT(Json::Parse(value->Dump())->Dump() == value->Dump());
}

}  // namespace
}  // namespace headrace
