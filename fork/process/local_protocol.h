#pragma once

#include <cstddef>
#include <cstdint>

/// The records between a process and stdchk-forkd on the same host, over a Unix socket of type
/// SOCK_SEQPACKET. A record has a fixed head and `value_bytes` bytes. Both ends are of
/// one build of stdchk; `version` finds a daemon of another build.
///
/// The daemon takes the sender's identity from the socket (SO_PEERPIDFD, SO_PEERCRED, and the pid
/// namespace of that process), never from a record.
namespace stdchk::fork::local {

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kValueBytesMax = 4096;
inline constexpr std::size_t kRangesMax =
    kValueBytesMax / 16;  ///< of a begin and an end, 64 bits each
inline constexpr std::uint32_t kHierarchical = 1;
inline constexpr std::uint32_t kOutlives = 2;
inline constexpr const char* kSocketDefault = "/run/stdchk-fork/socket";
inline constexpr const char* kSocketVariable = "STDCHK_FORKD";

enum class Kind : std::uint32_t {
  kTicket = 1,     ///< count, options -> ticket, count
  kClone = 2,      ///< ticket -> token, with which the frozen copy introduces itself
  kSource = 3,     ///< ticket, token: this connection is that of the frozen copy
  kStart = 4,      ///< daemon to frozen copy: id, and the pidfd of the sandbox's first process
  kStarted = 5,    ///< frozen copy: id, pid (in the daemon's pid namespace)
  kStartFail = 6,  ///< frozen copy: id, error, value: what failed
  kRunning = 7,    ///< clone, over the frozen copy's connection: id; it is in its sandbox
  kEnd = 8,        ///< daemon to frozen copy: all clones are started
  kExit = 9,       ///< clone: status, value
  kJoin = 10,      ///< ticket -> one kResult for each clone, then kDone
  kResult = 11,    ///< id, end, status, value
  kDone = 12,      ///< the call is done; error, and a sentence in value where error is not 0
  kKill = 13,      ///< ticket, id (0: all)
  kList = 14,      ///< -> one kDone with a text for people
  kImage = 15,     ///< daemon to frozen copy: make the copy for other hosts
  kImageReady =
      16,  ///< copy for other hosts, over the frozen copy's connection: value has its empty ranges
  kMemory = 17,  ///< copy on another host: ticket, token, and its userfaultfd -> kDone
};

/// One record. Fields that a kind does not name are 0.
struct Record {
  std::uint32_t version = kVersion;
  Kind kind = Kind::kDone;
  std::uint64_t ticket = 0;
  std::uint64_t token[2] = {0, 0};
  std::uint32_t id = 0;
  std::uint32_t count = 0;
  std::int32_t error = 0;  ///< errno, positive
  std::int32_t status = 0;
  std::int32_t pid = 0;
  std::uint32_t end = 0;      ///< an sf_end
  std::uint32_t options = 0;  ///< kHierarchical, kOutlives
  std::uint32_t value_bytes = 0;
  char value[kValueBytesMax] = {};
};
inline constexpr std::size_t kHeadBytes = offsetof(Record, value);
static_assert(kHeadBytes == 64);

/// Whether `bytes` bytes that were received are a whole record of this version.
inline bool is_whole(const Record& record, std::size_t bytes) {
  return bytes >= kHeadBytes && record.version == kVersion &&
         record.value_bytes <= kValueBytesMax && bytes == kHeadBytes + record.value_bytes;
}
inline std::size_t size_of(const Record& record) { return kHeadBytes + record.value_bytes; }

}  // namespace stdchk::fork::local
