#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/messages/messages.h"
#include "core/policy/policy.h"
#include "core/policy/topology.h"
#include "manager/journal/command.h"
#include "manager/pool/membership.h"

namespace stdchk::manager {

struct Config {
  /// The default has no members, so the service closes every link.
  Membership membership;
  Policy policy;  ///< for folders without settings
  /// A chunk_bytes or stripe_width of 0 means the default.
  msg::PoolConfig pool;
  Topology topology;                         ///< failure domains wider than a host
  std::uint64_t copy_rate_bytes_per_s = 0;   ///< to each benefactor; 0: unlimited
  std::uint64_t scrub_rate_bytes_per_s = 0;  ///< of each benefactor; 0: scrubs only on request
  bool reader_copies = true;  ///< readers' hosts pass chunks on to each other (NearCopies)
  Duration gc_period{};       ///< between rounds of the garbage collection; 0: only on request
  std::uint64_t drain_total_bytes_per_s = 0;  ///< all benefactors together; 0: unlimited
  /// Returns false while another pool drains into the drain directory. Empty: none ever does.
  std::function<bool()> may_drain;
  /// Shows the files of the drain directory `place` to a new pool. Empty: import_drained().
  std::function<Status(const std::string& place, const std::function<void(Command)>& emit)>
      import_drained;
  bool drain_yields = false;  ///< the drain slows down while clients write
  /// Address of the standby that this manager had before a restart; empty: none. The manager
  /// answers no request before it hears from this standby.
  std::string standby;
  /// Called when a standby begins to follow. Must store the address durably, so that `standby` is
  /// set at the next start. Returns false when it cannot.
  std::function<bool(const std::string& address)> remember_standby;
  std::function<void(const Error&)> on_journal_failure;  ///< called once; the process should end
  /// A later manager has that epoch; the process should end.
  std::function<void(Epoch)> on_superseded;
  /// The journal has lost its end; the argument says how. The process should end.
  std::function<void(const std::string&)> on_damaged;
};

}  // namespace stdchk::manager
