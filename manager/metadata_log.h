#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "manager/command.h"

/// The bytes of the metadata log that benefactors keep: records of the journal (journal_codec.h),
/// each with its length in front. docs/formats.md. Threads: any.
namespace stdchk::manager {

/// Appends the command's record with its length.
Status append_record(const Command& command, std::string& log);
/// Pieces of at most limits::kLogPieceBytesMax, in order.
std::vector<std::string> cut_log(std::string_view log);
/// All commands of a whole log. kCorrupt when a record is cut or is none.
Result<std::vector<Command>> decode_log(std::string_view log);

}  // namespace stdchk::manager
