// The process's own terminal and signals: what a program needs and a library must not touch. Only
// the `headrace` program calls these. Functions are safe from any thread unless they say otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace {

// True when standard error is a terminal that a person may be looking at.
bool StderrIsTerminal();
// Width of that terminal in characters; 80 when it is unknown.
int StderrColumns();

bool StdoutIsTerminal();
// Of the terminal at standard output, in characters; 80 x 24 when it is unknown.
struct TerminalSize {
  int columns = 80, rows = 24;
  bool operator==(const TerminalSize&) const = default;
};
TerminalSize StdoutSize();

// Takes the terminal of standard input and output for a full-screen view, until destroyed: another
// screen, no cursor, keys at once and unseen. One at a time, from the main thread.
class FullScreen {
 public:
  // kFailedPrecondition: one of the two is no terminal.
  static Result<std::unique_ptr<FullScreen>> Enter();
  virtual ~FullScreen() = default;
  // Waits for a key, at most `timeout`. Arrows are the bytes of their escape sequence.
  virtual std::string ReadKeys(std::chrono::milliseconds timeout) = 0;
};

// Writes all of `data` to standard output. kUnavailable when the reader has gone (a closed pipe),
// which is no fault: the caller ends quietly; kResourceExhausted or kIoError otherwise.
Status WriteStdout(Bytes data);
// Writes all of `data` to standard error; a fault there has nowhere to be told and is ignored.
void WriteStderr(Bytes data);

// The value of an environment variable; empty when it is not set. From main, before threads start.
std::optional<std::string> EnvironmentText(const std::string& name);

// From now on a closed pipe is an error of the write and does not end the process.
void IgnoreBrokenPipes();
// Makes SIGINT and SIGTERM set a flag once, which a Context can point to; a second signal ends the
// process at once. Call once, from main, before threads start. The flag lives for ever.
const std::atomic<bool>* CancelOnInterrupt();

}  // namespace headrace
