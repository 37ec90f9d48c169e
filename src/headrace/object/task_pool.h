// Threads that run tasks for a store whose calls would block. Started when they are first needed; a
// forked child starts its own. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "headrace/object/per_process.h"

namespace headrace::object {

class TaskPool {
 public:
  TaskPool(const std::string& name, uint32_t max_threads);
  // Runs what is queued and waits for it. On a thread of the pool, at the end of a task, it waits
  // for the others.
  ~TaskPool();

  // Queues `task`. When the system refuses even one thread, runs it here.
  void Run(std::function<void()> task);

 private:
  class Crew;
  PerProcess<Crew> crew_;
};

}  // namespace headrace::object
