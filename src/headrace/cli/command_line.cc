#include "headrace/cli/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <new>

#include "headrace/base/redaction.h"
#include "headrace/base/text.h"
#include "headrace/cli/locate.h"
#include "headrace/env/console.h"

namespace headrace::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 data is damaged or missing, or doctor found a problem; 2 wrong usage; 3 "
    "the\nmachine (I/O, permission, full disk, a lock that is held); 130 interrupted.";

// Reads a value with `parse`; what it says about a text that it cannot read becomes the parser's.
template <typename T, typename Parse>
void AddParsed(CLI::App* app, const std::string& names, T* value, const std::string& help,
               const char* type, const Parse& parse, const std::string& fallback) {
  auto fault_of = [parse](const std::string& text) {
    auto parsed = parse(text);
    return parsed.ok() ? std::string() : std::string(parsed.status().message());
  };
  auto read = [value, parse](const std::string& text) {
    auto parsed = parse(text);
    if (parsed.ok()) *value = *parsed;
  };
  CLI::Option* option = app->add_option_function<std::string>(names, read, help);
  option->type_name(type)->check(fault_of);
  if (names.front() != '-') option->required();
  if (!fallback.empty()) option->default_str(fallback);
}

Result<uint64_t> ParseCount(const std::string& text) {
  auto count = ParseSize(text);
  if (count.ok()) return count;
  return Error(Code::kInvalidArgument, "'{}' is not a number: expected for example 12, 10k or 2M",
               EscapeText(text));
}

class AppArguments final : public Arguments {
 public:
  explicit AppArguments(CLI::App* app) : app_(app) {}

  void Flag(const std::string& names, bool* value, const std::string& help) override {
    app_->add_flag(names, *value, help);
  }
  void Text(const std::string& names, std::string* value, const std::string& help) override {
    CLI::Option* option = app_->add_option(names, *value, help);
    if (names.front() != '-') option->required();
    if (!value->empty()) option->capture_default_str();
  }
  void OptionalText(const std::string& name, std::string* value, const std::string& help) override {
    app_->add_option(name, *value, help);
  }
  void Texts(const std::string& name, std::vector<std::string>* value, int at_least,
             const std::string& help) override {
    CLI::Option* option = app_->add_option(name, *value, help);
    option->required(at_least > 0)->expected(at_least, -1);  // no most
  }
  void Count(const std::string& names, uint64_t* value, const std::string& help) override {
    AddParsed(app_, names, value, help, "N", ParseCount, std::to_string(*value));
  }
  void Count(const std::string& names, std::optional<uint64_t>* value,
             const std::string& help) override {
    AddParsed(app_, names, value, help, "N", ParseCount, "");
  }
  void Size(const std::string& names, uint64_t* value, const std::string& help) override {
    AddParsed(app_, names, value, help, "SIZE", ParseSize, FormatSize(*value));
  }
  void Choice(const std::string& names, std::string* value, const std::vector<std::string>& choices,
              const std::string& help) override {
    app_->add_option(names, *value, help)->check(CLI::IsMember(choices))->capture_default_str();
  }
  void Note(const std::string& paragraph) override { notes_ += paragraph + "\n\n"; }
  void Example(const std::string& command, const std::string& what) override {
    examples_ += fmt::format("  {}\n      {}\n", command, what);
  }
  void Finish() {
    std::string footer = notes_;
    if (!examples_.empty()) footer += "Examples:\n" + examples_ + "\n";
    app_->footer(footer + kExitCodes);
  }

 private:
  CLI::App* app_;
  std::string notes_, examples_;
};

void PrintFault(const Status& status, Session* session) {
  WriteStderr(AsBytes(fmt::format("headrace: {}\n", RedactSecrets(status.ToString()))));
  if (!session->json) return;
  const Location& place = status.location();
  Json error = Json::MakeObject()
                   .Set("code", CodeName(status.code()))
                   .Set("message", RedactSecrets(status.message()));
  if (!place.file.empty()) error.Set("file", EscapeText(place.file));
  if (place.offset) error.Set("offset", *place.offset);
  if (!place.key.empty()) error.Set("key", EscapeText(place.key));
  if (!place.field.empty()) error.Set("field", EscapeText(place.field));
  session->out->Print(Json::MakeObject().Set("error", std::move(error)));
}

struct Parsed {
  std::unique_ptr<Command> command;  // null: `code` is the end
  ExitCode code = ExitCode::kOk;
  bool cached = false;  // CommandEntry::cached
};

// One line, whatever the parser's text.
ExitCode UsageFault(std::string text, const std::string& subcommand) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  WriteStderr(AsBytes(fmt::format("headrace: {}; see headrace {}--help\n", RedactSecrets(text),
                                  subcommand.empty() ? "" : subcommand + " ")));
  return ExitCode::kUsage;
}

Parsed Parse(std::vector<std::string> arguments, Session* session) {
  CLI::App app("Headrace packs, checks and feeds training data.", "headrace");
  app.footer(kExitCodes);
  std::vector<std::unique_ptr<Command>> commands;
  for (const CommandEntry& entry : AllCommands()) {
    CLI::App* sub = app.add_subcommand(std::string(entry.name), std::string(entry.summary));
    AppArguments declared(sub);
    commands.push_back(entry.make());
    commands.back()->Declare(&declared);
    if (entry.cached) DeclareCache(&declared, &session->cache);
    declared.Flag("--json", &session->json, "Print one JSON value for programs");
    declared.Flag("-q,--quiet", &session->quiet, "No progress and no notes");
    declared.Finish();
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the end
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    auto subs = app.get_subcommands();
    session->out->Print("{}", subs.empty() ? app.help() : subs.front()->help("headrace"));
    return {};
  } catch (const CLI::ParseError& fault) {
    auto subs = app.get_subcommands();
    return {nullptr, UsageFault(fault.what(), subs.empty() ? "" : subs.front()->get_name())};
  }
  auto subs = app.get_subcommands();
  if (subs.empty()) {
    session->out->Print("{}", app.help());
    return {nullptr, ExitCode::kUsage};
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    const CommandEntry& entry = AllCommands()[i];
    if (entry.name == subs.front()->get_name())
      return {std::move(commands[i]), ExitCode::kOk, entry.cached};
  }
  return {};
}

}  // namespace

ExitCode RunCommandLine(const std::vector<std::string>& arguments, Session* session) {
  ExitCode code = ExitCode::kOk;
  Status status;
  try {
    Parsed parsed = Parse(arguments, session);
    code = parsed.code;
    if (parsed.cached) status = UseCache(session);
    if (!session->fs) session->fs = object::UrlFileSystem(session->storage);
    if (parsed.command && status.ok()) {
      auto run = parsed.command->Run(session);
      if (run.ok()) {
        code = *run;
      } else {
        status = std::move(run).status();
      }
    }
  } catch (const std::bad_alloc&) {
    status = Status(Code::kResourceExhausted, "out of memory; raise the limit (ulimit -v)");
  } catch (const std::exception& fault) {
    status =
        Error(Code::kInternal, "a fault of headrace itself: {}; please report it", fault.what());
  }
  if (!status.ok()) {
    PrintFault(status, session);
    code = ExitCodeFor(status);
  }
  Status flushed = session->out->Flush();
  if (!flushed.ok() && code == ExitCode::kOk) {
    session->json = false;
    PrintFault(flushed, session);
    code = ExitCodeFor(flushed);
  }
  LeaveCache(*session);
  return code;
}

}  // namespace headrace::cli
