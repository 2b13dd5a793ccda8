#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/pool_record.h"

namespace stdchk::tools {

/// What runs of a pool on this host is found by its processes alone, because a state directory may
/// be removed: by a person, or by what clears /tmp of old files.
struct Running {
  std::string directory;  ///< the state directory that its processes were told
  std::string mount;      ///< empty: no process says
  std::string manager_address;
  std::vector<Member> members;
};

/// The pools of this user that have processes on this host, also when their directories are gone.
std::vector<Running> running_pools();
/// Those of one state directory; none: no members.
Running running_in(const std::string& directory);

/// "pid 7 of alice (uid 1001), state directory /run/user/1001/stdchk/pool-x, since 12:00:00".
std::string describe(const Running& pool);

/// A SpareRecord is a copy of a pool's record, secret and key in memory that the pool's mount has
/// as its standard input (without a mount its manager, and then without the key). It outlives the
/// state directory, and is as private as these processes' own memory.
///
/// Owns: a memfd_create(2) descriptor.
class SpareRecord {
 public:
  struct Content {
    std::string record;  ///< as pool.json
    std::string secret;
    std::string key;  ///< empty: there is none
  };

  static Outcome<std::shared_ptr<SpareRecord>> make();
  /// That of a running process; nothing: it has none, or not one that this user made.
  static std::shared_ptr<SpareRecord> of(const ProcessId& process);

  ~SpareRecord();
  SpareRecord(const SpareRecord&) = delete;
  SpareRecord& operator=(const SpareRecord&) = delete;

  int fd() const { return fd_; }
  void write(const Content& content) const;
  std::optional<Content> read() const;

 private:
  explicit SpareRecord(int fd) : fd_(fd) {}
  int fd_;
};

/// That of any process of the pool on this host; nothing: none has it.
std::shared_ptr<SpareRecord> spare_of(const PoolRecord& pool);

/// Of text that a spare holds, and text for it. Any bytes: nothing when they are not whole.
std::string spare_text(const SpareRecord::Content& content);
std::optional<SpareRecord::Content> parse_spare(const std::string& text);

}  // namespace stdchk::tools
