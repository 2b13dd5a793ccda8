#include "manager/journal/metadata_log.h"

#include <algorithm>
#include <limits>

#include "core/base/limits.h"
#include "core/chunk/naming.h"
#include "manager/journal/journal_codec.h"

namespace stdchk::manager {
namespace {

/// Identifies a log with checksums. Older logs begin with a record's length, a multiple of 8, so
/// none begins with these bytes, not even after a single bit error.
constexpr std::string_view kMagic = "SDL2";
constexpr std::size_t kNumberBytes = 4;
constexpr std::size_t kRecordMultiple = 8;

void append_number(std::size_t number, std::string& log) {
  for (std::size_t i = 0; i < kNumberBytes; ++i) {
    log.push_back(static_cast<char>(number >> (8 * i) & 0xFF));
  }
}

std::size_t read_number(std::string_view from) {
  std::size_t number = 0;
  for (std::size_t i = kNumberBytes; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(from[i]);
  }
  return number;
}

std::uint32_t crc_of(std::string_view length, std::string_view body) {
  return crc32c(crc32c(0, std::as_bytes(std::span(length))), std::as_bytes(std::span(body)));
}

}  // namespace

void begin_log(std::string& log) { log += kMagic; }

Status append_record(const Command& command, std::string& log) {
  std::vector<std::byte> record;
  STDCHK_TRY(encode_command(command, record));
  if (record.size() > std::numeric_limits<std::uint32_t>::max()) {
    return fail(Code::kTooLarge, "manager.log");
  }
  const std::string_view body(reinterpret_cast<const char*>(record.data()), record.size());
  std::string length;
  append_number(body.size(), length);
  log += length;
  append_number(crc_of(length, body), log);
  log += body;
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
  const bool has_checksums = log.starts_with(kMagic);
  if (has_checksums) log.remove_prefix(kMagic.size());
  const std::size_t head_bytes = has_checksums ? 2 * kNumberBytes : kNumberBytes;
  std::vector<Command> commands;
  do {
    if (log.size() < head_bytes) return fail(Code::kCorrupt, kWhere);
    const std::string_view head = log.substr(0, head_bytes);
    const std::size_t length = read_number(head);
    log.remove_prefix(head_bytes);
    if (length > log.size() || length % kRecordMultiple != 0) return fail(Code::kCorrupt, kWhere);
    const std::string_view body = log.substr(0, length);
    if (has_checksums &&
        crc_of(head.substr(0, kNumberBytes), body) != read_number(head.substr(kNumberBytes))) {
      return fail(Code::kCorrupt, kWhere);
    }
    STDCHK_ASSIGN(Command command, decode_command(std::as_bytes(std::span(body))));
    commands.push_back(std::move(command));
    log.remove_prefix(length);
  } while (!log.empty());
  return commands;
}

}  // namespace stdchk::manager
