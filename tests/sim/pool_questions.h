#pragma once

#include <functional>
#include <string>

#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// Sends one random administrative request: figures, check of the metadata, garbage collection,
/// scrub, drain. Complains of an impossible answer.
///
/// Limits: does not wait for the answer, and never repeats the request.
void ask_about_pool(Cluster& cluster, PlainClient& client, Prng& prng,
                    const std::function<void(const std::string&)>& complain);

/// Checks the manager's present Prometheus metrics: every figure is a number, and none is missing.
void check_metrics(Cluster& cluster, const std::function<void(const std::string&)>& complain);

}  // namespace stdchk::sim
