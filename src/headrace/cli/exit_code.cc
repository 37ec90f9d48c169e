#include "headrace/cli/exit_code.h"

namespace headrace::cli {

ExitCode ExitCodeFor(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return ExitCode::kOk;
    case Code::kCancelled:
      return ExitCode::kInterrupted;
    case Code::kInvalidArgument:
    case Code::kAlreadyExists:
    case Code::kUnimplemented:
      return ExitCode::kUsage;
    case Code::kNotFound:
    case Code::kFailedPrecondition:
    case Code::kOutOfRange:
    case Code::kDataLoss:
      return ExitCode::kBadData;
    case Code::kPermissionDenied:
    case Code::kResourceExhausted:
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kInternal:
    case Code::kIoError:
      return ExitCode::kEnvironment;
  }
  return ExitCode::kEnvironment;
}

}  // namespace headrace::cli
