#pragma once

#include <functional>
#include <string>

#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// Asks one of what those ask who look after a pool: its figures, the check of the metadata, the
/// garbage, a scrub, the drain. An answer that cannot be is complained of.
///
/// Limits: asks, and does not wait; nothing is asked again.
void ask_about_pool(Cluster& cluster, PlainClient& client, Prng& prng,
                    const std::function<void(const std::string&)>& complain);

/// What the manager shows to Prometheus, as it is now: every figure is a number and none is
/// missing.
void check_metrics(Cluster& cluster, const std::function<void(const std::string&)>& complain);

}  // namespace stdchk::sim
