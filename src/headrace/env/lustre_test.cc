#include "headrace/env/lustre.h"

#include <gtest/gtest.h>

#include "headrace/env/file.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

const std::string kLibrary = HEADRACE_FAKE_LUSTREAPI;

TEST(Lustre, PassesTheLayoutOn) {
  TemporaryDirectory dir;
  Status set = SetFolderStriping(dir.path(), {.count = 8, .bytes = 16 << 20}, kLibrary);
  ASSERT_TRUE(set.ok()) << set.ToString();
  EXPECT_EQ(*PosixFileSystem()->ReadWhole(dir / "layout", 100), "16777216 -1 8 0");
}

TEST(Lustre, TellsWhereItCannotBeDone) {
  const Striping one{.count = 1, .bytes = 0};
  EXPECT_EQ(SetFolderStriping("/elsewhere", one, kLibrary).code(), Code::kUnimplemented);
  EXPECT_EQ(SetFolderStriping("/forbidden", one, kLibrary).code(), Code::kPermissionDenied);
  EXPECT_EQ(SetFolderStriping("/any", one, "libnothing-of-this-name.so").code(),
            Code::kUnimplemented);
}

TEST(Lustre, RefusesWhatIsNoLayout) {
  for (const Striping& wrong : {Striping{.count = -2, .bytes = 0}, Striping{.count = 1, .bytes = 5},
                                Striping{.count = 1, .bytes = uint64_t{4} << 30}})
    EXPECT_EQ(SetFolderStriping("/any", wrong, kLibrary).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
