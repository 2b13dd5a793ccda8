#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "manager/journal/command.h"

/// The bytes of the metadata log that benefactors store: a snapshot, and the records after it
/// (docs/internals/formats.md). Each record of the journal (journal_codec.h) has its length, a
/// checksum and a MAC in front of it.
///
/// Only managers have the keys of the MACs. The MAC of a snapshot's record covers the snapshot's
/// random number and the record's index. A later record's MAC covers its epoch and sequence number.
/// So a benefactor that stores a log cannot change, add, repeat, reorder or leave out a record; it
/// can only cut off the newest ones.
/// Threads: any.
namespace stdchk::manager {

/// LogKeys are the keys of the MACs, derived from Membership::log_key().
struct LogKeys {
  explicit LogKeys(const Secret& key);
  Secret snapshots;
  Secret records;
};

/// A LogSnapshot writes the beginning of a log.
class LogSnapshot {
 public:
  /// Appends the log's header. `sequence`: of the newest record that the snapshot contains.
  /// `number`: random, so that no record of another snapshot fits in this one.
  LogSnapshot(const LogKeys& keys, Epoch epoch, std::uint64_t sequence, std::uint64_t number,
              std::string& log);
  Status append(const Command& command, std::string& log);
  /// Appends the mark of the snapshot's end.
  void finish(std::string& log);

 private:
  Secret key_;
  std::uint64_t count_ = 0;
};

/// Appends record `sequence` of that epoch, which comes after record `sequence` - 1.
Status append_record(const LogKeys& keys, Epoch epoch, std::uint64_t sequence,
                     const Command& command, std::string& log);
/// Cuts the log into pieces of at most limits::kLogPieceBytesMax, in order.
std::vector<std::string> cut_log(std::string_view log);

struct DecodedLog {
  std::vector<Command> commands;
  Epoch epoch;                 ///< 0: an older version wrote the log, without an epoch
  std::uint64_t sequence = 0;  ///< of the newest record; 0: as above
};
/// Decodes a whole log. Fails with kCorrupt when no record exists, or a record is truncated,
/// invalid, misplaced or fails its checksum. With `keys` a wrong or absent MAC fails, too; logs of
/// older versions have no MACs.
Result<DecodedLog> decode_log(std::string_view log, const LogKeys* keys = nullptr);

}  // namespace stdchk::manager
