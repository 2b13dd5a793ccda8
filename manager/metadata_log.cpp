#include "manager/metadata_log.h"

#include <algorithm>
#include <limits>

#include "core/limits.h"
#include "manager/journal_codec.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kLengthBytes = 4;

}  // namespace

Status append_record(const Command& command, std::string& log) {
  std::vector<std::byte> record;
  STDCHK_TRY(encode_command(command, record));
  if (record.size() > std::numeric_limits<std::uint32_t>::max()) {
    return fail(Code::kTooLarge, "manager.log");
  }
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    log.push_back(static_cast<char>(record.size() >> (8 * i) & 0xFF));
  }
  log.append(reinterpret_cast<const char*>(record.data()), record.size());
  return {};
}

std::vector<std::string> cut_log(std::string_view log) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < log.size(); at += limits::kLogPieceBytesMax) {
    pieces.emplace_back(log.substr(at, limits::kLogPieceBytesMax));
  }
  return pieces;
}

Result<std::vector<Command>> decode_log(std::string_view log) {
  constexpr const char* kWhere = "manager.log";
  std::vector<Command> commands;
  while (!log.empty()) {
    if (log.size() < kLengthBytes) return fail(Code::kCorrupt, kWhere);
    std::size_t length = 0;
    for (std::size_t i = kLengthBytes; i-- > 0;) {
      length = length << 8 | static_cast<unsigned char>(log[i]);
    }
    log.remove_prefix(kLengthBytes);
    if (length > log.size()) return fail(Code::kCorrupt, kWhere);
    STDCHK_ASSIGN(Command command, decode_command(std::as_bytes(std::span(log.data(), length))));
    commands.push_back(std::move(command));
    log.remove_prefix(length);
  }
  return commands;
}

}  // namespace stdchk::manager
