#pragma once

#include "client/figures.h"
#include "fuse/request_counts.h"
#include "metrics/exposition.h"

namespace stdchk::mount {

/// What a mount has been asked for, and what its client knows. Any thread.
void collect(const RequestCounts& requests, const client::Figures& client, metrics::Exposition& to);

}  // namespace stdchk::mount
