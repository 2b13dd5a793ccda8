#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/messages/messages.h"
#include "core/result.h"
#include "core/types.h"

namespace stdchk::benefactor {

/// A MetadataLog keeps what the manager's journal says, so that a manager whose disk is gone can be
/// rebuilt from it (rule M8; docs/decisions/0015).
///
/// It has two halves: the log that counts, and the one that is being begun, which counts as soon as
/// it is whole. So there is never a moment without the log that there was.
///
/// Owns: its memory, taken at once and touched. Threads: the reactor's.
/// Errors: of keep(), below; a refused request changes nothing that counts.
class MetadataLog {
 public:
  /// `bytes_max` of memory: a log may have half of it.
  explicit MetadataLog(std::uint64_t bytes_max);

  /// kFenced: a manager with a higher epoch writes here, or will. kStale: `offset` is not where the
  /// log ends. kNoSpace: the log would not fit.
  Status keep(const msg::KeepLog& request);
  /// Nothing of an epoch before that is kept from now on, as if a manager of it wrote here.
  void promise(Epoch epoch) { floor_ = std::max(floor_, epoch); }
  /// kNotFound: there is no whole log. kInvalidArgument: it has no such offset.
  Result<msg::ReadLog::Reply> read(std::uint64_t offset) const;

  std::uint64_t bytes_max() const { return 2 * half_bytes_; }
  /// Of the log that counts; none and 0: there is none.
  std::uint64_t bytes() const { return whole().whole_bytes; }
  ByteSpan content() const { return ByteSpan(whole().bytes).first(whole().whole_bytes); }
  Epoch epoch() const { return whole().epoch; }
  std::uint64_t sequence() const { return whole().sequence; }

 private:
  struct Half {
    std::vector<std::byte> bytes;   ///< reserved once
    std::uint64_t whole_bytes = 0;  ///< up to the end of the newest record
    Epoch epoch;
    std::uint64_t sequence = 0;
  };
  const Half& whole() const { return halves_[counts_]; }

  std::uint64_t half_bytes_;
  Half halves_[2];
  Epoch floor_;  ///< that was promised
  int counts_ = 0;
  bool beginning_ = false;  ///< the other half is being written
};

}  // namespace stdchk::benefactor
