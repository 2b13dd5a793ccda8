#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/filesystem.h"
#include "core/clock.h"
#include "core/messages/messages.h"
#include "core/result.h"

namespace stdchk::client {

/// One way to a benefactor, as it was found.
struct ProbedRail {
  std::string address;
  std::string transport;
  bool used = false;
  Error why_not;  ///< of one that was tried and does not work; kWouldBlock: it was not tried
};

/// What was measured of one benefactor.
struct Probed {
  msg::BenefactorInfo benefactor;
  std::vector<ProbedRail> rails;  ///< the best first
  Status status;                  ///< why nothing was measured
  double bytes_per_s = 0;         ///< writes of 1 MiB, 8 in flight
  Duration latency_median{};      ///< of a write of 4 KiB, proven stored
  Duration latency_p99{};
};

/// Measures writes to every benefactor of a pool: into space that it is granted for that, which is
/// given back; no file comes of it. One after the other, at most about two seconds each.
///
/// Threads: runs on the caller's; blocks.
/// Errors: as Filesystem::connect. A benefactor that cannot be measured says so in its `status`;
///   one with little space is not, because that could make others give theirs up.
Result<std::vector<Probed>> probe(const Options& options);

}  // namespace stdchk::client
