#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "manager/command.h"

namespace stdchk::manager {

/// The bytes of one record (manager/journal.capnp). Threads: any.
Status encode_command(const Command& command, std::vector<std::byte>& out);
/// kCorrupt when the bytes are not a command of this build or an earlier one.
Result<Command> decode_command(ByteSpan bytes);
/// The checksum that stands beside a record in journal.db: of its number there, the length of its
/// bytes and these (docs/formats.md).
std::uint32_t record_crc(std::uint64_t sequence, ByteSpan bytes);

}  // namespace stdchk::manager
