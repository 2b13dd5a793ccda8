#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/messages/messages.h"
#include "metrics/exposition.h"

namespace stdchk::metrics {

std::string_view name_of(msg::BenefactorState state);

/// What a manager says of its pool: the same metrics from the manager itself and from
/// `stdchk status --prometheus`.
void add_pool(Exposition& to, const msg::StatPool::Reply& pool,
              const std::vector<msg::BenefactorInfo>& benefactors);

/// A counter of what readers got, with the label `from`: pool, cache, drain.
void add_reads(Exposition& to, const std::string& name, const std::string& help,
               const msg::ReaderTotals& reads);

}  // namespace stdchk::metrics
