#pragma once

#include "metrics/exposition.h"

namespace stdchk::metrics {

/// Adds processor time, memory, descriptors and start time of this process, under the names of
/// Prometheus's own client libraries. Leaves out figures that cannot be read.
/// Reads /proc, so a reactor's thread must not call it.
void add_process(Exposition& to);

}  // namespace stdchk::metrics
