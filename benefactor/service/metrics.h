#pragma once

#include "benefactor/service/service.h"
#include "metrics/exposition.h"

namespace stdchk::benefactor {

/// Exposes what a benefactor knows of itself. Only its manager knows how much of the arena is used.
/// Threads: the reactor's.
void collect(const Service& service, metrics::Exposition& to);

}  // namespace stdchk::benefactor
