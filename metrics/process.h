#pragma once

#include "metrics/exposition.h"

namespace stdchk::metrics {

/// Adds what the operating system knows of this process, under the names of Prometheus's own client
/// libraries: processor time, memory, descriptors, start time. Leaves out what cannot be read.
/// Reads /proc, so a reactor's thread must not call it.
void add_process(Exposition& to);

}  // namespace stdchk::metrics
