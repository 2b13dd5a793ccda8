#pragma once

#include <string>

#include "core/base/descriptor.h"
#include "core/base/problem.h"

namespace stdchk::pager {

/// The socket's path without an option: $XDG_RUNTIME_DIR/stdchk-pager.socket, or an empty text.
std::string default_socket();

/// Listens at `path`, with mode 0600 in a folder in which no other user can write. Replaces the
/// socket of a server that is gone. The error is a sentence for a person.
Outcome<Descriptor> listen_at(const std::string& path);

}  // namespace stdchk::pager
