#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/types.h"
#include "manager/command.h"

namespace stdchk::manager {

/// A DoneCalls knows by which calls clients have changed names or attributes, so that a manager
/// that was restarted does not do a repeated one again: the completion records of RIFL (Lee et al.,
/// SOSP 2015), journalled with what they are of.
///
/// Threads: one. Limits: the last kCallsMax calls of a client, and the newest kClientsMax clients
/// that have changed anything. What it had to forget it does not take for undone.
class DoneCalls {
 public:
  static constexpr std::size_t kCallsMax = 64;
  static constexpr std::size_t kClientsMax = 4096;
  enum class Found { kDone, kNotDone, kForgotten };
  /// Without a client: nothing to remember.
  void add(const Caller& caller);
  Found find(const Caller& caller) const;
  void restore(const RestoreCalls& command);
  void snapshot(const std::function<void(Command)>& emit) const;

 private:
  struct Calls {
    std::vector<std::uint64_t> done;  ///< in order
    std::uint64_t forgotten = 0;      ///< this one and those before it
  };

  std::map<ClientId, Calls> clients_;
  ClientId forgotten_;  ///< this one and those before it, but for what is remembered of them
};

}  // namespace stdchk::manager
