#include "manager/journal/metadata_log.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "core/base/limits.h"
#include "core/chunk/naming.h"
#include "manager/journal/journal_codec.h"

namespace stdchk::manager {
namespace {

constexpr const char* kWhere = "manager.log";
/// The first bytes of a log with MACs, and of an older log with checksums. The oldest logs begin
/// with the length of a record, which is a multiple of 8. So they never begin with these bytes, not
/// even after an error in a single bit.
constexpr std::string_view kMagic = "SDL3";
constexpr std::string_view kMagicOfChecksums = "SDL2";
constexpr std::size_t kNumberBytes = 4;
constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kMacBytes = 16;
constexpr std::size_t kRecordMultiple = 8;

template <class Number>
void append_number(Number number, std::size_t bytes, std::string& log) {
  for (std::size_t i = 0; i < bytes; ++i) {
    log.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xFF));
  }
}

std::uint64_t read_number(std::string_view from, std::size_t bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(from[i]);
  }
  return number;
}

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::uint32_t crc_of(std::string_view length, std::string_view body) {
  return crc32c(crc32c(0, bytes_of(length)), bytes_of(body));
}

std::string words(std::initializer_list<std::uint64_t> numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) append_number(number, kWordBytes, text);
  return text;
}

/// `context`: the place of the record in the log, of fixed length.
std::string mac_of(const Secret& key, std::string_view context, std::string_view length,
                   std::string_view body) {
  const Digest digest = keyed_digest(key, {bytes_of(context), bytes_of(length), bytes_of(body)});
  return {reinterpret_cast<const char*>(digest.data()), kMacBytes};
}

void append_framed(const Secret& key, std::string_view context, std::string_view body,
                   std::string& log) {
  std::string length;
  append_number(body.size(), kNumberBytes, length);
  log += length;
  append_number(crc_of(length, body), kNumberBytes, log);
  log += mac_of(key, context, length, body);
  log += body;
}

Status append_command(const Secret& key, std::string_view context, const Command& command,
                      std::string& log) {
  std::vector<std::byte> record;
  STDCHK_TRY(encode_command(command, record));
  if (record.size() > std::numeric_limits<std::uint32_t>::max()) {
    return fail(Code::kTooLarge, kWhere);
  }
  append_framed(key, context, {reinterpret_cast<const char*>(record.data()), record.size()}, log);
  return {};
}

/// Derives the key of a snapshot. `head` is the log's header after its magic.
Secret snapshot_key(const LogKeys& keys, std::string_view head) {
  return derive(keys.snapshots, "snapshot", bytes_of(head));
}

/// A Reader takes one record after the other from a log.
class Reader {
 public:
  /// `has_crc`, `has_mac`: a checksum, a MAC precedes each record.
  Reader(std::string_view log, bool has_crc, bool has_mac)
      : log_(log),
        head_bytes_(kNumberBytes + (has_crc ? kNumberBytes : 0) + (has_mac ? kMacBytes : 0)),
        has_crc_(has_crc),
        has_mac_(has_mac) {}
  bool at_end() const { return log_.empty(); }
  /// Returns nothing when the record is truncated, or when its checksum or MAC is wrong. Without
  /// `key` it does not check the MAC.
  std::optional<std::string_view> next(const Secret* key, std::string_view context) {
    if (log_.size() < head_bytes_) return std::nullopt;
    const std::string_view head = log_.substr(0, head_bytes_);
    const std::string_view length = head.substr(0, kNumberBytes);
    const std::size_t bytes = read_number(length, kNumberBytes);
    log_.remove_prefix(head_bytes_);
    if (bytes > log_.size() || bytes % kRecordMultiple != 0) return std::nullopt;
    const std::string_view body = log_.substr(0, bytes);
    log_.remove_prefix(bytes);
    const bool is_whole =
        !has_crc_ || crc_of(length, body) == read_number(head.substr(kNumberBytes), kNumberBytes);
    if (!is_whole) return std::nullopt;
    if (key != nullptr && has_mac_ &&
        !equal(bytes_of(mac_of(*key, context, length, body)),
               bytes_of(head.substr(2 * kNumberBytes)))) {
      return std::nullopt;
    }
    return body;
  }

 private:
  std::string_view log_;
  std::size_t head_bytes_;
  bool has_crc_;
  bool has_mac_;
};

Status take(std::string_view body, std::vector<Command>& commands) {
  STDCHK_ASSIGN(Command command, decode_command(bytes_of(body)));
  commands.push_back(std::move(command));
  return {};
}

Result<DecodedLog> decode_proven(std::string_view log, const LogKeys* keys) {
  constexpr std::size_t kHeadBytes = 3 * kWordBytes;
  if (log.size() < kHeadBytes) return fail(Code::kCorrupt, kWhere);
  const std::string_view head = log.substr(0, kHeadBytes);
  DecodedLog out;
  out.epoch = Epoch{read_number(head.substr(kWordBytes), kWordBytes)};
  out.sequence = read_number(head.substr(2 * kWordBytes), kWordBytes);
  const Secret of_snapshot = keys == nullptr ? Secret{} : snapshot_key(*keys, head);
  Reader reader(log.substr(kHeadBytes), true, true);
  for (std::uint64_t index = 0;; ++index) {
    const auto body = reader.next(keys == nullptr ? nullptr : &of_snapshot, words({index}));
    if (!body) return fail(Code::kCorrupt, kWhere);
    if (body->empty()) break;
    STDCHK_TRY(take(*body, out.commands));
  }
  while (!reader.at_end()) {
    ++out.sequence;
    const auto body = reader.next(keys == nullptr ? nullptr : &keys->records,
                                  words({out.epoch.value, out.sequence}));
    if (!body || body->empty()) return fail(Code::kCorrupt, kWhere);
    STDCHK_TRY(take(*body, out.commands));
  }
  return out;
}

}  // namespace

LogKeys::LogKeys(const Secret& key)
    : snapshots(derive(key, "snapshots", {})), records(derive(key, "records", {})) {}

LogSnapshot::LogSnapshot(const LogKeys& keys, Epoch epoch, std::uint64_t sequence,
                         std::uint64_t number, std::string& log) {
  const std::string head = words({number, epoch.value, sequence});
  key_ = snapshot_key(keys, head);
  log += kMagic;
  log += head;
}

Status LogSnapshot::append(const Command& command, std::string& log) {
  return append_command(key_, words({count_++}), command, log);
}

void LogSnapshot::finish(std::string& log) { append_framed(key_, words({count_++}), {}, log); }

Status append_record(const LogKeys& keys, Epoch epoch, std::uint64_t sequence,
                     const Command& command, std::string& log) {
  return append_command(keys.records, words({epoch.value, sequence}), command, log);
}

std::vector<std::string> cut_log(std::string_view log) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < log.size(); at += limits::kLogPieceBytesMax) {
    pieces.emplace_back(log.substr(at, limits::kLogPieceBytesMax));
  }
  return pieces;
}

Result<DecodedLog> decode_log(std::string_view log, const LogKeys* keys) {
  if (log.starts_with(kMagic)) return decode_proven(log.substr(kMagic.size()), keys);
  // A log of an older version has no proof that a manager has made it.
  if (keys != nullptr) return fail(Code::kCorrupt, kWhere);
  const bool has_crc = log.starts_with(kMagicOfChecksums);
  Reader reader(log.substr(has_crc ? kMagicOfChecksums.size() : 0), has_crc, false);
  DecodedLog out;
  do {
    const auto body = reader.next(nullptr, {});
    if (!body) return fail(Code::kCorrupt, kWhere);
    STDCHK_TRY(take(*body, out.commands));
  } while (!reader.at_end());
  return out;
}

}  // namespace stdchk::manager
