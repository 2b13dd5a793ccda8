#pragma once

#include "benefactor/service.h"
#include "metrics/exposition.h"

namespace stdchk::benefactor {

/// What a benefactor knows of itself. How much of its arena is used is what its manager knows.
/// Threads: the reactor's.
void collect(const Service& service, metrics::Exposition& to);

}  // namespace stdchk::benefactor
