#include "headrace/base/fault_point.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"

namespace headrace {

namespace {

struct Fault {
  uint64_t from_passage = 0;  // counted from 1
  std::function<Status()> action;
};

struct Registry {
  std::atomic<bool> armed{false};
  Mutex mu;  // order: after every other lock; no action runs under it
  std::map<std::string, uint64_t, std::less<>> passages HR_GUARDED_BY(mu);
  std::map<std::string, Fault, std::less<>> faults HR_GUARDED_BY(mu);
};

Registry& TheRegistry() {
  static auto* registry = new Registry;  // never destroyed: threads may pass points at exit
  return *registry;
}

Status Kill() {
  std::raise(SIGKILL);
  return Status(Code::kInternal, "SIGKILL did not end the process");
}

Status Stop() {
  std::raise(SIGSTOP);
  return OkStatus();
}

Result<std::function<Status()>> ActionFromText(std::string_view name, std::string_view action) {
  if (action == "kill") return std::function<Status()>(Kill);
  if (action == "stop") return std::function<Status()>(Stop);
  if (action == "error")
    return std::function<Status()>(
        [name = std::string(name)] { return Error(Code::kIoError, "fault armed at {}", name); });
  return Error(Code::kInvalidArgument, "unknown action '{}': expected error, kill or stop",
               EscapeText(action));
}

struct ParsedFault {
  std::string name;
  int nth = 1;
  std::function<Status()> action;
};

// Reads "name=action" or "name=action@nth".
Result<ParsedFault> ParseFault(std::string_view text) {
  size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return Error(Code::kInvalidArgument,
                 "cannot read the fault '{}': expected name=kill, name=error or name=error@3",
                 EscapeText(text));
  ParsedFault fault{std::string(text.substr(0, equals)), 1, nullptr};
  std::string_view action = text.substr(equals + 1);
  if (size_t at = action.find('@'); at != std::string_view::npos) {
    std::string_view count = action.substr(at + 1);
    auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), fault.nth);
    if (error != std::errc() || end != count.data() + count.size() || fault.nth < 1)
      return Error(Code::kInvalidArgument,
                   "cannot read the passage '{}': expected a number from 1 on", EscapeText(count));
    action = action.substr(0, at);
  }
  HR_ASSIGN_OR_RETURN(fault.action, ActionFromText(fault.name, action));
  return fault;
}

}  // namespace

Status FaultPoint(std::string_view name) {
  Registry& registry = TheRegistry();
  if (!registry.armed.load(std::memory_order_relaxed)) return OkStatus();
  std::function<Status()> action;
  {
    MutexLock lock(&registry.mu);
    auto count = registry.passages.try_emplace(std::string(name), 0).first;
    ++count->second;
    auto fault = registry.faults.find(name);
    if (fault == registry.faults.end() || count->second < fault->second.from_passage)
      return OkStatus();
    action = fault->second.action;
  }
  return action();
}

void ArmFault(std::string_view name, int nth, std::function<Status()> action) {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  uint64_t passed = registry.passages[std::string(name)];
  uint64_t from = passed + static_cast<uint64_t>(nth < 1 ? 1 : nth);
  registry.faults[std::string(name)] = Fault{from, std::move(action)};
  registry.armed.store(true, std::memory_order_relaxed);
}

Status ArmFaultsFromText(std::string_view text) {
  std::vector<ParsedFault> faults;
  while (!text.empty()) {
    size_t comma = text.find(',');
    Result<ParsedFault> fault = ParseFault(text.substr(0, comma));
    if (!fault.ok()) return std::move(fault).status().Prefix("HEADRACE_FAULTS");
    faults.push_back(std::move(fault).value());
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  for (ParsedFault& fault : faults) ArmFault(fault.name, fault.nth, std::move(fault.action));
  return OkStatus();
}

uint64_t FaultPassages(std::string_view name) {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  auto count = registry.passages.find(name);
  return count == registry.passages.end() ? 0 : count->second;
}

void DisarmFaults() {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  registry.armed.store(false, std::memory_order_relaxed);
  registry.faults.clear();
  registry.passages.clear();
}

}  // namespace headrace
