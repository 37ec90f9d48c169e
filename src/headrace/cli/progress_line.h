// Shows how far a long command is, on standard error: one line that is drawn again and again on a
// terminal, a plain line every 10 seconds otherwise, nothing with --quiet or --json. Made and
// destroyed by one thread; draws from a thread of its own. What is drawn is gone when it is
// destroyed, also after an interrupt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/base/mutex.h"
#include "headrace/cli/commands.h"
#include "headrace/env/process.h"

namespace headrace::cli {

// Figures at one moment. A total of 0 is not known yet; without a total of bytes, samples tell how
// far it is. Where only the bytes have a total, they are shown instead of samples; where no bytes
// are counted, the speed is that of the samples.
struct ProgressFigures {
  uint64_t done = 0, total = 0;  // samples, or what `unit` says
  uint64_t bytes = 0, total_bytes = 0;
  std::string_view unit = "samples";
};

// The text of one line: "packing  45 %  12,345 of 40,000 samples  130 MiB/s  1m 20s left".
std::string ProgressText(const std::string& verb, const ProgressFigures& figures,
                         double elapsed_seconds);

class ProgressLine {
 public:
  // `read` is called from another thread until this is destroyed.
  ProgressLine(std::string verb, const Session& session, std::function<ProgressFigures()> read);
  ~ProgressLine();

 private:
  void Draw();

  const std::string verb_;
  const std::function<ProgressFigures()> read_;
  const bool terminal_;
  Mutex mu_;
  CondVar ended_changed_;
  bool ended_ HR_GUARDED_BY(mu_) = false;
  std::unique_ptr<Thread> thread_;
};

}  // namespace headrace::cli
