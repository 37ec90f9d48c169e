// Threads that run tasks for a store whose calls would block. Started when they are first needed; a
// forked child starts its own. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace headrace::object {

class TaskPool {
 public:
  TaskPool(std::string name, uint32_t max_threads);
  // Runs what is queued and waits for it. Not on a thread of the pool.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Queues `task`. When the system refuses even one thread, runs it here.
  void Run(std::function<void()> task);

 private:
  class Crew;

  Crew* Current();

  const std::string name_;
  const uint32_t max_threads_;
  std::atomic<Crew*> crew_{nullptr};  // owned; that of a parent process is left alone
};

}  // namespace headrace::object
