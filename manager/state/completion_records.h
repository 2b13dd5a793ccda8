#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/values/types.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// CompletionRecords remembers which calls of clients have changed names or attributes. A restarted
/// manager therefore does not execute a repeated call again. Its entries are the completion records
/// of RIFL (Lee et al., SOSP 2015), journalled together with the change.
///
/// Threads: one. Limits: the last kCallsMax calls of each of the kClientsMax clients that made the
/// most recent changes. A call whose record was evicted counts as unknown, never as not executed.
class CompletionRecords {
 public:
  static constexpr std::size_t kCallsMax = 32;
  static constexpr std::size_t kClientsMax = 1024;
  enum class Found { kDone, kNotDone, kForgotten };
  /// Does nothing when `caller` names no client.
  void add(const Caller& caller);
  Found find(const Caller& caller) const;
  void restore(const RestoreCalls& command);
  /// Emits the commands that restore this state, in the order in which restore() needs them.
  void snapshot(const std::function<void(Command)>& emit) const;

 private:
  struct Calls {
    std::vector<std::uint64_t> done;  ///< ascending
    /// The highest evicted call: nothing is known of it or of earlier calls that `done` lacks.
    std::uint64_t forgotten = 0;
    std::uint64_t used = 0;  ///< the larger, the later the client's last change
  };
  void forget_one();

  std::map<ClientId, Calls> clients_;
  std::uint64_t used_ = 0;
  /// Evicted clients have ids up to `forgotten_client_`, and their calls numbers up to
  /// `forgotten_call_`.
  ClientId forgotten_client_;
  std::uint64_t forgotten_call_ = 0;
};

}  // namespace stdchk::manager
