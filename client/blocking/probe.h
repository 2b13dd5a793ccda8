#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/messages/messages.h"

namespace stdchk::client {

/// A ProbedRail is one address of a benefactor, and the result of using it.
struct ProbedRail {
  std::string address;
  std::string transport;
  bool used = false;
  Error why_not;  ///< why a rail that was tried does not work; kWouldBlock: it was not tried
};

/// Probed holds the measurements of one benefactor.
struct Probed {
  msg::BenefactorInfo benefactor;
  std::vector<ProbedRail> rails;  ///< the best one first
  Status status;                  ///< fails with the reason why nothing was measured
  double bytes_per_s = 0;         ///< rate of writes of 1 MiB with 8 in flight
  Duration latency_median{};      ///< time until a write of 4 KiB is proven stored
  Duration latency_p99{};
};

/// Measures writes to every benefactor of a pool, one after the other, in about two seconds each.
/// It writes into space that is granted for this and given back; no file remains.
///
/// Threads: runs on the caller's thread and blocks.
/// Errors: those of Filesystem::connect. A benefactor that cannot be measured has the reason in its
///   `status`. A benefactor with little free space is not measured: writing there might displace
///   other data.
Result<std::vector<Probed>> probe(const Options& options);

}  // namespace stdchk::client
