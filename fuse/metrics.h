#pragma once

#include "client/api/figures.h"
#include "fuse/request_counts.h"
#include "metrics/exposition.h"

namespace stdchk::mount {

/// Adds the counts of a mount's requests and the figures of its client to `to`. Any thread.
void collect(const RequestCounts& requests, const client::Figures& client, metrics::Exposition& to);

}  // namespace stdchk::mount
