#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "client/blocking/open_file.h"
#include "client/engine/engine.h"
#include "client/names/leased_calls.h"
#include "core/base/lifetime.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// An EngineNode is a process with the client library. Where an application's thread would wait,
/// the node tries the step again after each turn of its reactor.
///
/// Threads: one. Errors: every operation ends within kOperationDeadline, as in client::Filesystem.
class EngineNode final : private EventSource {
 public:
  using Step = std::function<Status(client::Lock&)>;  ///< kWouldBlock: not yet
  using Done = std::function<void(Status)>;
  using Moved = std::function<std::uint64_t()>;

  /// The limits of the library in this process.
  struct Limits {
    std::uint32_t chunk_bytes = limits::kChunkBytesMin;
    std::uint64_t window_bytes = 512 * limits::kKiB;
    std::uint64_t cache_bytes = limits::kMiB;
    bool waits_for_copies = false;
  };

  EngineNode(Cluster& cluster, const std::string& name, const Limits& of_process,
             std::uint64_t seed);
  ~EngineNode() override;  ///< dies as by SIGKILL
  EngineNode(const EngineNode&) = delete;
  EngineNode& operator=(const EngineNode&) = delete;

  Node& node() { return node_; }
  client::Engine& engine() { return *engine_; }
  /// Calls about names in directories that the process holds.
  client::LeasedCalls* leased() { return leased_.get(); }
  DelayedExecutor& executor() { return executor_; }
  /// Whether it is registered with the pool's present manager, not with a superseded one.
  bool ready();

  /// Repeats `step` until it returns something other than kWouldBlock, or the deadline passes. Each
  /// change of `moved`'s result extends the deadline, as for an application's call.
  void wait(std::string what, Step step, Done done, Moved moved = {});
  /// Waits for its turn, begins an operation, and waits for the operation's end.
  void wait_for(std::string what, std::function<Result<client::CompletionPtr>(client::Lock&)> begin,
                Done done);
  void ask(std::string what, msg::Request request, std::function<void(rpc::Answer)> done);
  void sleep(Duration time, std::function<void()> done);
  /// The operations that passed their time without an end; empty: none.
  std::string overdue() const;
  std::size_t waiting() const { return waits_.size(); }
  /// Does not count the time for which the process was stopped.
  void resumed();

 private:
  struct Wait {
    std::string what;
    Step step;
    Done done;
    Time deadline{};
    Moved moved;                   ///< none: the deadline is fixed
    std::uint64_t moved_last = 0;  ///< its last result
  };
  bool poll() override;
  int fd() const override { return -1; }
  bool may_sleep() override { return true; }

  Cluster& cluster_;
  Node& node_;
  DelayedExecutor executor_;
  client::ExecutedFiles files_{executor_};
  std::unique_ptr<client::Engine> engine_;
  std::unique_ptr<client::LeasedCalls> leased_;
  std::list<Wait> waits_;
  Lifetime lifetime_;
};

}  // namespace stdchk::sim
