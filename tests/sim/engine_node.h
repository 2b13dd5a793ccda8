#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "client/engine.h"
#include "client/open_file.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// An EngineNode is a process with the client library in it. Where an application's thread would
/// wait, it looks again after each turn of the node's reactor.
///
/// Threads: one. Errors: every operation ends within kOperationDeadline, as in client::Filesystem.
class EngineNode final : private EventSource {
 public:
  using Step = std::function<Status(client::Lock&)>;  ///< kWouldBlock: not yet
  using Done = std::function<void(Status)>;
  using Moved = std::function<std::uint64_t()>;

  /// Of the library in this process.
  struct Limits {
    std::uint32_t chunk_bytes = limits::kChunkBytesMin;
    std::uint64_t window_bytes = 512 * limits::kKiB;
    std::uint64_t cache_bytes = limits::kMiB;
    bool waits_for_copies = false;
  };

  EngineNode(Cluster& cluster, const std::string& name, const Limits& of_process,
             std::uint64_t seed);
  ~EngineNode() override;  ///< as by SIGKILL
  EngineNode(const EngineNode&) = delete;
  EngineNode& operator=(const EngineNode&) = delete;

  Node& node() { return node_; }
  client::Engine& engine() { return *engine_; }
  DelayedExecutor& executor() { return executor_; }
  /// It has the pool's manager, and not an earlier one that is not told yet.
  bool ready();

  /// Calls `step` until it answers something else than kWouldBlock, or the deadline has come.
  /// While what `moved` answers changes, the deadline moves on, as for an application's call.
  void wait(std::string what, Step step, Done done, Moved moved = {});
  /// Begins something, waiting for its turn, and waits for its end.
  void wait_for(std::string what, std::function<Result<client::CompletionPtr>(client::Lock&)> begin,
                Done done);
  void ask(std::string what, msg::Request request, std::function<void(rpc::Answer)> done);
  void sleep(Duration time, std::function<void()> done);
  /// What has not ended although its time is over; empty: nothing.
  std::string overdue() const;
  std::size_t waiting() const { return waits_.size(); }
  /// Time in which the process was stopped does not count.
  void resumed();

 private:
  struct Wait {
    std::string what;
    Step step;
    Done done;
    Time deadline{};
    Moved moved;                   ///< none: the deadline stays
    std::uint64_t moved_last = 0;  ///< when it was asked last
  };
  // EventSource
  bool poll() override;
  int fd() const override { return -1; }
  bool may_sleep() override { return true; }

  Cluster& cluster_;
  Node& node_;
  DelayedExecutor executor_;
  client::ExecutedFiles files_{executor_};
  std::unique_ptr<client::Engine> engine_;
  std::list<Wait> waits_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace stdchk::sim
