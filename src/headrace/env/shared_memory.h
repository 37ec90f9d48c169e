// Memory without a file that several processes map, and that lives as long as one of them holds
// it. It can neither shrink nor grow, so what is mapped stays valid. Functions may be called from
// any thread; the bytes are as safe as their users make them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace {

class SharedMemory {
 public:
  // Makes `bytes` (> 0, rounded up to pages) of zeros. `name` is for people who look at the
  // process's maps. The machine gives the memory when it is first touched; until Touch() has
  // succeeded that may be refused, which ends the process.
  //   kResourceExhausted  no address space or descriptor.
  static Result<std::unique_ptr<SharedMemory>> Create(const std::string& name, uint64_t bytes);
  // Maps what another process made and sent. Takes over `descriptor`, also on failure.
  //   kInvalidArgument  it is something else, or it could still shrink.
  static Result<std::unique_ptr<SharedMemory>> Adopt(int descriptor);
  virtual ~SharedMemory() = default;

  // Makes the machine give all of the memory now, by `threads` threads at once, so that the first
  // use of a page costs what the tenth does. The content stays.
  //   kResourceExhausted  there is not so much memory, or a limit (of a container, of /dev/shm)
  //                       forbids it: says how much was wanted.
  virtual Status Touch(int threads) = 0;

  virtual MutableBytes bytes() = 0;
  // For sending it to another process; stays this object's.
  virtual int descriptor() const = 0;
};

}  // namespace headrace
