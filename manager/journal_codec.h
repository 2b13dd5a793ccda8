#pragma once

#include <vector>

#include "core/result.h"
#include "manager/command.h"

namespace stdchk::manager {

/// The bytes of one record (manager/journal.capnp). Threads: any.
Status encode_command(const Command& command, std::vector<std::byte>& out);
/// kCorrupt when the bytes are not a command of this build or an earlier one.
Result<Command> decode_command(ByteSpan bytes);

}  // namespace stdchk::manager
