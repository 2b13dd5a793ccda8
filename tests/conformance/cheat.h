#pragma once

#include <memory>

#include "transport/transport.h"

namespace stdchk::conformance {

/// Wraps an endpoint so that writes and reads travel as messages, which the target copies in its
/// poll(), while the capabilities say one_sided. Both parties must be wrapped.
///
/// For proving that the suite sees it; otherwise a correct transport.
std::unique_ptr<transport::Endpoint> make_cheat(std::unique_ptr<transport::Endpoint> inner,
                                                bool target_must_progress);

}  // namespace stdchk::conformance
