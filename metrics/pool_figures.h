#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/messages/messages.h"
#include "metrics/exposition.h"

namespace stdchk::metrics {

std::string_view name_of(msg::BenefactorState state);

/// Adds a pool's figures. The manager and `stdchk status --prometheus` show the same metrics.
void add_pool(Exposition& to, const msg::StatPool::Reply& pool,
              const std::vector<msg::BenefactorInfo>& benefactors);

/// Adds the time of the newest set that is drained whole; 0: no set is.
void add_safe_set(Exposition& to, std::int64_t newest_ns);

/// Adds a counter of bytes that were read, with the label `from`: pool, cache, drain.
void add_reads(Exposition& to, const std::string& name, const std::string& help,
               const msg::ReaderTotals& reads);

}  // namespace stdchk::metrics
