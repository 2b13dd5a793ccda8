#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "manager/journal/command.h"

/// The bytes of the metadata log that benefactors store. It has the records of the journal
/// (journal_codec.h), each preceded by its length and a checksum (docs/internals/formats.md).
/// Threads: any.
namespace stdchk::manager {

/// Appends the header that comes before the first record.
void begin_log(std::string& log);
/// Appends the command's record with its length and checksum.
Status append_record(const Command& command, std::string& log);
/// Cuts the log into pieces of at most limits::kLogPieceBytesMax, in order.
std::vector<std::string> cut_log(std::string_view log);
/// Decodes a whole log, also one without checksums from older versions. Fails with kCorrupt when
/// there is no record, or one is truncated, fails its checksum or is invalid.
Result<std::vector<Command>> decode_log(std::string_view log);

}  // namespace stdchk::manager
