#pragma once

#include <algorithm>
#include <cstdint>

#include "benefactor/memory/log_memory.h"
#include "core/base/result.h"
#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// A MetadataLog keeps the manager's journal, to rebuild a manager whose disk is lost (rule M8;
/// docs/decisions/0015).
///
/// A half holds the valid log. A new log grows in the other half, and replaces the old log when
/// the new log is complete. So a valid log exists at any time. Each half grows with its content, up
/// to half of LogRoom::bytes_max. A replaced log gives its extra memory back.
///
/// Owns: its memory. Threads: the reactor's.
/// Errors: of store(), below; a refused request changes nothing that counts.
class MetadataLog {
 public:
  /// A log may have half of it.
  explicit MetadataLog(const LogRoom& room);
  /// All of it is taken at once.
  explicit MetadataLog(std::uint64_t bytes) : MetadataLog(LogRoom{bytes, bytes, {}}) {}

  /// `kFenced`: a manager with a higher epoch writes here, or will. `kStale`: the log does not end
  /// at `offset`. `kNoSpace`: the log does not fit, or the host is short of memory.
  Status store(const msg::KeepLog& request);
  /// Refuses all lower epochs from now on, as after a write of a manager with this epoch.
  void promise(Epoch epoch) { floor_ = std::max(floor_, epoch); }
  /// kNotFound: there is no whole log. kInvalidArgument: it has no such offset.
  Result<msg::ReadLog::Reply> read(std::uint64_t offset) const;

  std::uint64_t bytes_max() const { return 2 * half_bytes_max(); }
  std::uint64_t taken_bytes() const {
    return halves_[0].memory.taken_bytes() + halves_[1].memory.taken_bytes();
  }
  /// Size of the valid log; 0: no valid log.
  std::uint64_t bytes() const { return whole().whole_bytes; }
  ByteSpan content() const { return {whole().memory.data(), whole().whole_bytes}; }
  Epoch epoch() const { return whole().epoch; }
  std::uint64_t sequence() const { return whole().sequence; }

 private:
  struct Half {
    LogMemory memory;
    std::uint64_t bytes = 0;        ///< written
    std::uint64_t whole_bytes = 0;  ///< up to the end of the newest record
    Epoch epoch;
    std::uint64_t sequence = 0;
  };
  const Half& whole() const { return halves_[counts_]; }
  std::uint64_t half_bytes_max() const {
    return std::min(halves_[0].memory.bytes_max(), halves_[1].memory.bytes_max());
  }

  Half halves_[2];
  Epoch floor_;  ///< the newest promised epoch
  int counts_ = 0;
  bool beginning_ = false;  ///< the other half is being written
};

}  // namespace stdchk::benefactor
