#pragma once

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// Encodes a command as the bytes of one record (manager/journal/journal.capnp). Threads: any.
Status encode_command(const Command& command, std::vector<std::byte>& out);
/// Fails with kCorrupt when the bytes are no command of this or an earlier build.
Result<Command> decode_command(ByteSpan bytes);
/// Returns the checksum stored beside a record in journal.db. It covers the record's number there,
/// the length of its bytes and the bytes themselves (docs/internals/formats.md).
std::uint32_t record_crc(std::uint64_t sequence, ByteSpan bytes);

}  // namespace stdchk::manager
