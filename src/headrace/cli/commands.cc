#include "headrace/cli/commands.h"

#include "headrace/env/console.h"

namespace headrace::cli {
namespace {

constexpr CommandEntry kCommands[] = {
    {"pack", "Pack a folder, a list of files or tars into a data set of shards", MakePackCommand},
    {"index", "Give tars, a folder or a list an index, where they are", MakeIndexCommand},
    {"ls", "List the shards or samples of a data set", MakeLsCommand},
    {"cat", "Write one field of one sample to standard output", MakeCatCommand},
    {"thumbnail", "Write a small picture of one image, or of a part of it", MakeThumbnailCommand},
    {"verify", "Read everything again and check it against its checksums", MakeVerifyCommand},
    {"order", "Print the stream of samples that a loader gives, or measure its mixing",
     MakeOrderCommand},
    {"bench", "Measure the loader on a data set, stage by stage", MakeBenchCommand},
    {"cache", "Look at, check and clear the cache of this node", MakeCacheCommand},
    {"version", "Print the version of this program", MakeVersionCommand},
};

}  // namespace

std::span<const CommandEntry> AllCommands() { return kCommands; }

void Note(const Session& session, std::string_view text) {
  if (!session.quiet) WriteStderr(AsBytes(fmt::format("headrace: {}\n", text)));
}

}  // namespace headrace::cli
