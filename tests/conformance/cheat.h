#pragma once

#include <memory>

#include "transport/transport.h"

namespace stdchk::conformance {

/// Wraps an endpoint that falsely claims one_sided. Writes and reads travel as messages, which the
/// target copies in its poll(). Both parties must be wrapped.
///
/// Proves that the suite detects the false claim. All else is a correct transport.
std::unique_ptr<transport::Endpoint> make_cheat(std::unique_ptr<transport::Endpoint> inner,
                                                bool target_must_progress);

}  // namespace stdchk::conformance
