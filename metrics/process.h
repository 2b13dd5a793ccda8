#pragma once

#include "metrics/exposition.h"

namespace stdchk::metrics {

/// What the operating system says of this process, under the names that Prometheus's own client
/// libraries use: processor time, memory, descriptors, when it was started. What cannot be read is
/// left out. Reads /proc: not for a reactor's thread.
void add_process(Exposition& to);

}  // namespace stdchk::metrics
