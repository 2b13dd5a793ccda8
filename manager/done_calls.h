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
/// Threads: one. Limits: the last kCallsMax calls of each of the kClientsMax clients that were the
/// last to change anything. What it had to forget it does not take for undone.
class DoneCalls {
 public:
  static constexpr std::size_t kCallsMax = 32;
  static constexpr std::size_t kClientsMax = 1024;
  enum class Found { kDone, kNotDone, kForgotten };
  /// Without a client: nothing to remember.
  void add(const Caller& caller);
  Found find(const Caller& caller) const;
  void restore(const RestoreCalls& command);
  /// The commands to restore it, in that order.
  void snapshot(const std::function<void(Command)>& emit) const;

 private:
  struct Calls {
    std::vector<std::uint64_t> done;  ///< in order
    std::uint64_t forgotten = 0;      ///< of this one, and those before it, nothing else is known
    std::uint64_t used = 0;           ///< the larger, the later its last change
  };
  void forget_one();

  std::map<ClientId, Calls> clients_;
  std::uint64_t used_ = 0;
  /// Of clients up to this one that are not there, calls up to that one are forgotten.
  ClientId forgotten_client_;
  std::uint64_t forgotten_call_ = 0;
};

}  // namespace stdchk::manager
