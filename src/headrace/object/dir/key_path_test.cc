#include "headrace/object/dir/key_path.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "headrace/env/file.h"

namespace headrace::object {
namespace {

TEST(KeyPath, OrdinaryKeysAreTheirOwnPaths) {
  for (const char* key : {"a", "a/b/c.tar", "a b+%41~", "100%.txt", ".hidden/x", "é/日", "a\\b\n"})
    EXPECT_EQ(PathOfKey(key), key);
  EXPECT_EQ(PathOfKey(std::string(255, 'k')), std::string(255, 'k'));
}

TEST(KeyPath, WritesWhatCannotBeAName) {
  EXPECT_EQ(PathOfKey("/a"), "%=/a");
  EXPECT_EQ(PathOfKey("a//b/"), "a/%=/b/%=");
  EXPECT_EQ(PathOfKey("."), "%=%2E");
  EXPECT_EQ(PathOfKey("a/../b"), "a/%=%2E%2E/b");
  EXPECT_EQ(PathOfKey(std::string("a\0b", 3)), "%=a%00b");
  EXPECT_EQ(PathOfKey("%=a"), "%=%25%3Da");
  EXPECT_EQ(PathOfKey("%+a"), "%=%25%2Ba");
  EXPECT_EQ(PathOfKey(".headrace-uploads/1"), "%=%2Eheadrace-uploads/1");
  EXPECT_EQ(PathOfKey(std::string(256, 'k')),
            "%+" + std::string(80, 'k') + "/%+" + std::string(80, 'k') + "/%+" +
                std::string(80, 'k') + "/%=" + std::string(16, 'k'));
}

TEST(KeyPath, RefusesNamesThatItDoesNotWrite) {
  for (const char* name : {"%=%2e", "%=%4", "%=%", "%=%ZZ", "%=a b", "%=%41", "%+short", "",
                           ".headrace-tmp-1-2", ".headrace-lock"})
    EXPECT_FALSE(PartOfName(name)) << name;
  EXPECT_EQ(PartOfName("%=%2E")->text, ".");
  EXPECT_EQ(PartOfName("a%=")->text, "a%=");
}

// Any bytes, with those that are hard more often.
rc::Gen<std::string> AnyKey() {
  auto byte = rc::gen::weightedOneOf<char>(
      {{6, rc::gen::element('/', '.', '%', '=', '+', '\0', 'a')}, {1, rc::gen::arbitrary<char>()}});
  return rc::gen::map(rc::gen::pair(rc::gen::nonEmpty(rc::gen::container<std::string>(byte)),
                                    rc::gen::weightedElement<size_t>({{4, 0}, {1, 250}, {1, 800}})),
                      [](const std::pair<std::string, size_t>& parts) {
                        return (parts.first + std::string(parts.second, 'x')).substr(0, 1024);
                      });
}

std::string KeyOfPath(const std::string& path) {
  std::string key;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    auto part = PartOfName(path.substr(begin, end - begin));
    RC_ASSERT(part.has_value());
    key += part->text;
    if (end < path.size() && !part->goes_on) key += '/';
    begin = end + 1;
  }
  return key;
}

TEST(KeyPath, PathsStayInsideAndTellTheirKeys) {
  rc::check([] {
    const std::string key = *AnyKey();
    const std::string path = PathOfKey(key);
    RC_ASSERT(path.find('\0') == std::string::npos);
    RC_ASSERT(path.size() < 3500u);
    for (size_t begin = 0; begin <= path.size();) {
      size_t end = std::min(path.find('/', begin), path.size());
      std::string name = path.substr(begin, end - begin);
      RC_ASSERT(!name.empty() && name != "." && name != ".." && name.size() <= 255u);
      RC_ASSERT(!name.starts_with(kReservedPrefix));
      begin = end + 1;
    }
    RC_ASSERT(KeyOfPath(path) == key);  // so no two keys share a path
  });
}

}  // namespace
}  // namespace headrace::object
