// Keys of all bytes, and listings.
#include <algorithm>
#include <set>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/testing/conformance_bench.h"

namespace headrace::object {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Keys that a careless store mixes up, encodes wrong, or lets out of its folder.
std::vector<std::string> OddKeys(const ConformanceOptions& options) {
  std::vector<std::string> keys = {
      "plain",   "a b",        "a+b",   "a%b",      "a%20b",    "a%2Fb",
      "a~b",     "~",          "a/b",   "a//b",     "a///b",    "/a",
      "//a",     "a/",         "a//",   "/",        ".",        "..",
      "./a",     "../a",       "a/.",   "a/..",     "a/../b",   "a/./b",
      ".hidden", "a/.b",       "...",   "a.",       "A",        "a",
      "a\\b",    "a?b=c&d",    "a#b",   "a:b",      "a*b",      "a\"b",
      "a'b",     "<a>&amp;",   "a;b,c", "a=b@c$d!", "(a)[b]",   "{a}|b^`c",
      "%",       "%00",        "grüße", "日本語",   "a\u00a0b", "é",
      "e\u0301", "\U0001F600", " lead", "trail ",   "+",        "a/b/c/d/e/f/g/h",
      "aux",     "con.txt"};
  if (!options.text_keys_only) {
    keys.insert(keys.end(), {"a\nb", "a\tb", "a\rb", "\x01", "\x7f", std::string("a\0b", 3),
                             std::string(1, '\0'), "\xff", "\xfe\xff/\x80", "caf\xe9"});
  }
  return keys;
}

// Keys may be refused only by a store that says so, with the right code, and never half.
bool MayRefuse(const Bench& b, const Status& status) {
  if (b.can().strict_keys) return false;
  return status.code() == Code::kInvalidArgument || status.code() == Code::kUnimplemented;
}

void KeysOfAllBytes(const Bench& b) {
  std::vector<std::string> kept;
  for (const std::string& key : OddKeys(b.options())) {
    auto etag = b.TryWrite(key, "content of " + key);
    if (etag.ok())
      kept.push_back(key);
    else
      EXPECT_TRUE(MayRefuse(b, etag.status()))
          << EscapeText(key) << ": " << etag.status().ToString();
  }
  EXPECT_GE(kept.size(), 20u);
  for (const std::string& key : kept)
    EXPECT_EQ(b.Read(key), "content of " + key) << EscapeText(key);
  std::sort(kept.begin(), kept.end());
  if (b.can().list) {
    EXPECT_EQ(b.Keys(), kept);
  }
  for (size_t i = 0; i < kept.size(); i += 2) EXPECT_TRUE(b.Remove(kept[i]).ok());
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(b.Read(kept[i]), i % 2 == 0 ? "error: not found" : "content of " + kept[i])
        << EscapeText(kept[i]);
}

// A key and one that goes on below it are two objects.
void AKeyCanBeAPrefix(const Bench& b) {
  std::vector<std::string> keys = {"a", "a/", "a/b", "a/b/c", "a/b/c/"}, kept;
  for (const std::string& key : keys) {
    auto etag = b.TryWrite(key, key);
    if (etag.ok())
      kept.push_back(key);
    else
      EXPECT_TRUE(MayRefuse(b, etag.status())) << key << ": " << etag.status().ToString();
  }
  for (const std::string& key : kept) EXPECT_EQ(b.Read(key), key);
  if (b.can().list) {
    EXPECT_EQ(b.Keys(), kept);
  }
  for (const std::string& key : kept) {
    EXPECT_TRUE(b.Remove(key).ok());
    EXPECT_EQ(b.Read(key), "error: not found");
  }
  if (b.can().list) {
    EXPECT_THAT(b.Keys(), IsEmpty());
  }
}

void LongKeys(const Bench& b) {
  const size_t longest = b.options().max_key_bytes;
  std::string flat(longest, 'k'), deep;
  while (deep.size() + 8 <= longest) deep += "segment/";
  deep.resize(longest, 'x');
  std::string marked(longest, '%');
  std::string other = flat;
  other.back() = 'l';
  std::vector<std::string> kept;
  for (const std::string& key : {flat, deep, marked, other}) {
    auto etag = b.TryWrite(key, key);
    if (etag.ok())
      kept.push_back(key);
    else
      EXPECT_TRUE(MayRefuse(b, etag.status())) << etag.status().ToString();
  }
  for (const std::string& key : kept) EXPECT_TRUE(b.Read(key) == key);
  std::sort(kept.begin(), kept.end());
  if (b.can().list) {
    EXPECT_TRUE(b.Keys() == kept);
  }
}

void KeysOutsideTheLimitsAreRefused(const Bench& b) {
  for (const std::string& key : {std::string(), std::string(1025, 'k')}) {
    EXPECT_CODE(b->Head(key, Context()).status(), kInvalidArgument);
    EXPECT_CODE(b.ReadRange(key, 0, 1).status(), kInvalidArgument);
    if (b.can().write) {
      EXPECT_CODE(b->Put(key, AsBytes("x"), {}, Context()).status(), kInvalidArgument);
      EXPECT_CODE(b->Delete(key, Context()), kInvalidArgument);
    }
    if (b.can().upload) EXPECT_CODE(b->StartUpload(key, Context()).status(), kInvalidArgument);
  }
}

void WriteAll(const Bench& b, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) b.Write(key, "x");
}

void ListsInOrderOfBytes(const Bench& b) {
  EXPECT_THAT(b.Keys(), IsEmpty());
  WriteAll(b, {"b", "a/z", "a-z", "a.z", "A", "B", "a/b/c", "a0", "é", "z"});
  EXPECT_THAT(b.Keys(), ElementsAre("A", "B", "a-z", "a.z", "a/b/c", "a/z", "a0", "b", "z", "é"));
}

void ListsBelowAPrefix(const Bench& b) {
  WriteAll(b, {"a", "ab-", "ab/c", "ab/d", "abc", "b/ab/x"});
  EXPECT_THAT(b.Keys("ab"), ElementsAre("ab-", "ab/c", "ab/d", "abc"));
  EXPECT_THAT(b.Keys("ab/"), ElementsAre("ab/c", "ab/d"));
  EXPECT_THAT(b.Keys("ab/c"), ElementsAre("ab/c"));
  EXPECT_THAT(b.Keys("x"), IsEmpty());
  EXPECT_THAT(b.Keys("ab/c/"), IsEmpty());
}

Result<std::vector<std::string>> Level(const Bench& b, const std::string& prefix,
                                       const std::string& after = "", uint32_t max = 1000) {
  return b.Names({.prefix = prefix, .delimiter = "/", .after = after, .token = {}, .max = max});
}

void ListsOneLevel(const Bench& b) {
  WriteAll(b, {"a/1", "a/2", "a/b/3", "b", "c/1/2/3", "d", "e-/x"});
  for (uint32_t max : {1000u, 1u, 2u}) {
    EXPECT_THAT(*Level(b, "", "", max), ElementsAre("a/", "b", "c/", "d", "e-/")) << max;
    EXPECT_THAT(*Level(b, "a/", "", max), ElementsAre("a/1", "a/2", "a/b/")) << max;
    EXPECT_THAT(*Level(b, "a", "", max), ElementsAre("a/")) << max;
    EXPECT_THAT(*Level(b, "c/1/", "", max), ElementsAre("c/1/2/")) << max;
    EXPECT_THAT(*Level(b, "b/", "", max), IsEmpty()) << max;
  }
  EXPECT_THAT(*Level(b, "", "b"), ElementsAre("c/", "d", "e-/"));
}

void ListsAfterAKey(const Bench& b) {
  WriteAll(b, {"a", "b", "c/1", "c/2", "d"});
  auto after = [&](const std::string& key, const std::string& prefix) {
    auto names =
        b.Names({.prefix = prefix, .delimiter = {}, .after = key, .token = {}, .max = 1000});
    EXPECT_TRUE(names.ok()) << names.status().ToString();
    return names.ok() ? *names : std::vector<std::string>();
  };
  EXPECT_THAT(after("b", ""), ElementsAre("c/1", "c/2", "d"));
  EXPECT_THAT(after("bb", ""), ElementsAre("c/1", "c/2", "d"));
  EXPECT_THAT(after("c/1", ""), ElementsAre("c/2", "d"));
  EXPECT_THAT(after("c/1", "c/"), ElementsAre("c/2"));
  EXPECT_THAT(after("a", "c/"), ElementsAre("c/1", "c/2"));
  EXPECT_THAT(after("d", ""), IsEmpty());
  EXPECT_THAT(after("zz", ""), IsEmpty());
}

void ListsInPages(const Bench& b) {
  WriteAll(b, {"a", "b/1", "b/2", "b/3", "c", "d", "e"});
  for (uint32_t max : {1u, 2u, 3u, 7u, 1000u})
    EXPECT_THAT(b.Keys("", max), ElementsAre("a", "b/1", "b/2", "b/3", "c", "d", "e")) << max;
  auto page =
      b->List({.prefix = "", .delimiter = {}, .after = {}, .token = {}, .max = 7}, Context());
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->objects.size(), 7u);
  EXPECT_EQ(page->objects[6].size_bytes, 1u);
}

void ListsManyKeys(const Bench& b) {
  const uint32_t n = b.options().many_keys, threads = b.options().num_threads;
  std::vector<std::string> keys(n);
  for (uint32_t i = 0; i < n; ++i) {
    std::string digits = std::to_string(1'000'000 + i * 7919 % 1'000'000);
    keys[i] = "many/" + digits.substr(0, 4) + "/" + digits.substr(4) + "-" + std::to_string(i);
  }
  RunInThreads(threads, [&](uint32_t thread) {
    for (uint32_t i = thread; i < n; i += threads) b.Write(keys[i], "x");
  });
  b.Write("mant", "");
  b.Write("many0", "");
  std::sort(keys.begin(), keys.end());
  EXPECT_TRUE(b.Keys("many/", 1000) == keys);
  EXPECT_TRUE(b.Keys("many/", 333) == keys);
  std::set<std::string> folders;
  for (const std::string& key : keys) folders.insert(key.substr(0, 10));
  EXPECT_EQ(*Level(b, "many/", "", 50), std::vector<std::string>(folders.begin(), folders.end()));
}

// What goes between two pages may be told or not; what stays is told once, in order.
void KeysRemovedBetweenPages(const Bench& b) {
  std::vector<std::string> keys;
  for (int i = 100; i < 160; ++i) keys.push_back("k" + std::to_string(i));
  WriteAll(b, keys);
  ListRequest request{.prefix = "k", .delimiter = {}, .after = {}, .token = {}, .max = 20};
  std::vector<std::string> seen;
  for (size_t round = 0; round < 10; ++round) {
    auto page = b->List(request, Context());
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    for (const ObjectInfo& info : page->objects) seen.push_back(info.key);
    if (page->next.empty()) break;
    request.token = page->next;
    if (round > 0) continue;
    for (size_t i : {0, 18, 19, 20, 21, 22, 45}) EXPECT_TRUE(b.Remove(keys[i]).ok());
  }
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  std::set<std::string> once(seen.begin(), seen.end());
  EXPECT_EQ(once.size(), seen.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    bool stayed = i < 20 || (i > 22 && i != 45);
    if (stayed) {
      EXPECT_EQ(once.count(keys[i]), 1u) << keys[i];
    }
  }
}

bool CanList(const Abilities& can) { return can.list; }

#define HR_TEST_ROW_(function, applies) {#function, function, applies}
constexpr NamedTest kTests[] = {
    HR_TEST_ROW_(KeysOfAllBytes, nullptr),
    HR_TEST_ROW_(AKeyCanBeAPrefix, nullptr),
    HR_TEST_ROW_(LongKeys, nullptr),
    HR_TEST_ROW_(KeysOutsideTheLimitsAreRefused, nullptr),
    HR_TEST_ROW_(ListsInOrderOfBytes, CanList),
    HR_TEST_ROW_(ListsBelowAPrefix, CanList),
    HR_TEST_ROW_(ListsOneLevel, CanList),
    HR_TEST_ROW_(ListsAfterAKey, CanList),
    HR_TEST_ROW_(ListsInPages, CanList),
    HR_TEST_ROW_(ListsManyKeys, CanList),
    HR_TEST_ROW_(KeysRemovedBetweenPages, CanList),
};

}  // namespace

std::span<const NamedTest> KeyTests() { return kTests; }

}  // namespace headrace::object
