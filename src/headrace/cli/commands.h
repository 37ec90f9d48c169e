// The subcommands of the `headrace` program: one file each, and one table that names them all
// (commands.cc). To add one, write its file with a Make function, declare that here, and add a line
// to the table and to CMakeLists.txt. A command runs in the main thread.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/cli/arguments.h"
#include "headrace/cli/exit_code.h"
#include "headrace/cli/output.h"
#include "headrace/env/file.h"
#include "headrace/object/url_settings.h"

namespace headrace::cache {
class CacheOnDemand;
}

namespace headrace::cli {

// The cache of this node, as the options of commands that read through it name it. Empty: by the
// environment.
struct CacheArguments {
  std::string directory, bytes, memory_bytes;
  std::shared_ptr<cache::CacheOnDemand> used;  // put there by UseCache
};

// What a command works with. --json and --quiet are declared for every command.
struct Session {
  // Of paths, and of URLs without settings of their own. RunCommandLine makes it of `storage` if
  // null.
  FileSystem* fs = nullptr;
  object::UrlSettings storage;  // of URLs
  CacheArguments cache;         // declared for commands with CommandEntry::cached
  Context ctx;
  Output* out = nullptr;
  bool json = false;   // print one JSON value and nothing else
  bool quiet = false;  // no progress and no notes on standard error
};

class Command {
 public:
  virtual ~Command() = default;
  // Declares what the command takes. The members it names are filled before Run.
  virtual void Declare(Arguments* arguments) = 0;
  // Does the work. A Status becomes one line on standard error and the exit code for it.
  virtual Result<ExitCode> Run(Session* session) = 0;
};

struct CommandEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Command> (*make)();
  // Reads URLs through the cache of this node, where there is one: for commands that read what a
  // job reads. Those that write, and those that look at every byte of the origin once, do without.
  bool cached = false;
};
// In the order of the help.
std::span<const CommandEntry> AllCommands();

std::unique_ptr<Command> MakePackCommand();
std::unique_ptr<Command> MakeIndexCommand();
std::unique_ptr<Command> MakeLsCommand();
std::unique_ptr<Command> MakeCatCommand();
std::unique_ptr<Command> MakeThumbnailCommand();
std::unique_ptr<Command> MakeVerifyCommand();
std::unique_ptr<Command> MakeOrderCommand();
std::unique_ptr<Command> MakeBenchCommand();
std::unique_ptr<Command> MakeCacheCommand();
std::unique_ptr<Command> MakeCkptCommand();
std::unique_ptr<Command> MakeTopCommand();
std::unique_ptr<Command> MakeTraceCommand();
std::unique_ptr<Command> MakeDoctorCommand();
std::unique_ptr<Command> MakeReportCommand();
std::unique_ptr<Command> MakeCompareCommand();
std::unique_ptr<Command> MakeAgentCommand();
std::unique_ptr<Command> MakeVersionCommand();

// One line on standard error: "headrace: text". Not printed with --quiet.
void Note(const Session& session, std::string_view text);

}  // namespace headrace::cli
