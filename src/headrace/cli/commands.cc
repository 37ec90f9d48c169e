#include "headrace/cli/commands.h"

#include "headrace/base/redaction.h"
#include "headrace/env/console.h"

namespace headrace::cli {
namespace {

constexpr CommandEntry kCommands[] = {
    {"pack", "Pack a folder, a list of files or tars into a data set of shards", MakePackCommand},
    {"index", "Give tars, a folder or a list an index, where they are", MakeIndexCommand},
    {"ls", "List the shards or samples of a data set", MakeLsCommand, true},
    {"cat", "Write one field of one sample to standard output", MakeCatCommand, true},
    {"thumbnail", "Write a small picture of one image, or of a part of it", MakeThumbnailCommand,
     true},
    {"verify", "Read everything again and check it against its checksums", MakeVerifyCommand},
    {"order", "Print the stream of samples that a loader gives, or measure its mixing",
     MakeOrderCommand, true},
    {"bench", "Measure the loader on a data set, stage by stage", MakeBenchCommand, true},
    {"cache", "Look at, check and clear the cache of this node", MakeCacheCommand},
    {"ckpt", "List, verify, compare, prune, export and import checkpoints", MakeCkptCommand},
    {"top", "Watch where the time of running loaders goes", MakeTopCommand},
    {"trace", "Record every step of running loaders for some seconds, for Perfetto",
     MakeTraceCommand},
    {"doctor", "Say what holds a job back, or will, and how to cure it", MakeDoctorCommand, true},
    {"report", "Put the record of a run on one page", MakeReportCommand},
    {"compare", "Tell what changed between two runs", MakeCompareCommand},
    {"agent", "Watch the jobs of a node, and serve metrics and the dashboard", MakeAgentCommand},
    {"version", "Print the version of this program", MakeVersionCommand},
};

}  // namespace

std::span<const CommandEntry> AllCommands() { return kCommands; }

void Note(const Session& session, std::string_view text) {
  if (!session.quiet) WriteStderr(AsBytes(fmt::format("headrace: {}\n", RedactSecrets(text))));
}

}  // namespace headrace::cli
