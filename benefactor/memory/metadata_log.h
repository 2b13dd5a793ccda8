#pragma once

#include <algorithm>
#include <cstdint>

#include "benefactor/memory/log_memory.h"
#include "core/base/result.h"
#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// A MetadataLog keeps what the manager's journal says, so that a manager whose disk is gone can be
/// rebuilt from it (rule M8; docs/decisions/0015).
///
/// It has two halves: the log that counts, and the one that is being begun, which counts as soon as
/// it is whole. So there is never a moment without the log that there was. Each half grows with
/// what it must hold, up to half of LogRoom::bytes_max, and a log that counts no more gives back
/// what it has grown by.
///
/// Owns: its memory. Threads: the reactor's.
/// Errors: of keep(), below; a refused request changes nothing that counts.
class MetadataLog {
 public:
  /// A log may have half of it.
  explicit MetadataLog(const LogRoom& room);
  /// All of it is taken at once.
  explicit MetadataLog(std::uint64_t bytes) : MetadataLog(LogRoom{bytes, bytes, {}}) {}

  /// kFenced: a manager with a higher epoch writes here, or will. kStale: `offset` is not where the
  /// log ends. kNoSpace: the log would not fit, or there is no memory for it now.
  Status keep(const msg::KeepLog& request);
  /// Nothing of an epoch before that is kept from now on, as if a manager of it wrote here.
  void promise(Epoch epoch) { floor_ = std::max(floor_, epoch); }
  /// kNotFound: there is no whole log. kInvalidArgument: it has no such offset.
  Result<msg::ReadLog::Reply> read(std::uint64_t offset) const;

  std::uint64_t bytes_max() const { return 2 * half_bytes_max(); }
  std::uint64_t taken_bytes() const {
    return halves_[0].memory.taken_bytes() + halves_[1].memory.taken_bytes();
  }
  /// Of the log that counts; none and 0: there is none.
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
  Epoch floor_;  ///< that was promised
  int counts_ = 0;
  bool beginning_ = false;  ///< the other half is being written
};

}  // namespace stdchk::benefactor
