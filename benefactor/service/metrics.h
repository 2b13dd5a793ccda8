#pragma once

#include "benefactor/service/service.h"
#include "metrics/exposition.h"

namespace stdchk::benefactor {

/// Adds a benefactor's own figures. Only the manager knows how much of the arena is used.
/// Threads: the reactor's.
void collect(const Service& service, metrics::Exposition& to);

}  // namespace stdchk::benefactor
