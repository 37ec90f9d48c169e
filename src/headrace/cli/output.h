// Standard output of a command: buffered, and quiet when the reader has gone. One thread.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <functional>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/json.h"
#include "headrace/base/status.h"

namespace headrace::cli {

class Output {
 public:
  using Sink = std::function<Status(Bytes)>;
  explicit Output(Sink sink) : sink_(std::move(sink)) {}

  template <typename... Args>
  void Print(fmt::format_string<Args...> format, Args&&... args) {
    Write(AsBytes(fmt::format(format, std::forward<Args>(args)...)));
  }
  // Only a Json itself: a text would turn into one.
  template <std::same_as<Json> Value>
  void Print(const Value& json) {
    Print("{}\n", json.Dump(2));
  }
  void Write(Bytes data);

  // True when nothing more can be written: a command that prints a lot may end early.
  bool closed() const { return !status_.ok(); }
  // Writes what is buffered and returns the first fault. A reader that has gone is none.
  Status Flush();

 private:
  Sink sink_;
  std::string buffer_;
  Status status_;
};

}  // namespace headrace::cli
