#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "manager/command.h"

/// The bytes of the metadata log that benefactors keep: records of the journal (journal_codec.h),
/// each with its length and a checksum in front. docs/formats.md. Threads: any.
namespace stdchk::manager {

/// What stands before the first record.
void begin_log(std::string& log);
/// Appends the command's record with its length and checksum.
Status append_record(const Command& command, std::string& log);
/// Pieces of at most limits::kLogPieceBytesMax, in order.
std::vector<std::string> cut_log(std::string_view log);
/// All commands of a whole log, also of one of before there were checksums. kCorrupt when a record
/// is cut, is not as it was written or is none, or there is no record.
Result<std::vector<Command>> decode_log(std::string_view log);

}  // namespace stdchk::manager
