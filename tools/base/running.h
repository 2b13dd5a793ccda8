#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// A Running is the part of a pool on this host that was found through its processes alone. The
/// state directory may be gone, removed by a user or by a program that clears /tmp.
struct Running {
  std::string directory;  ///< the state directory given to its processes
  std::string mount;      ///< empty: no process names it
  std::string manager_address;
  std::vector<Member> members;
};

/// The pools of this user with processes on this host, even if their directories are gone.
std::vector<Running> running_pools();
/// The processes of one state directory; no members: none runs.
Running running_in(const std::string& directory);

/// "pid 7 of alice (uid 1001), state directory /run/user/1001/stdchk/pool-x, since 12:00:00".
std::string describe(const Running& pool);

/// A SpareRecord is a copy of a pool's record, secret and key in memory. The pool's mount has it as
/// its standard input; without a mount the manager has it, without the key. It outlives the state
/// directory, and is as private as these processes' own memory.
///
/// Owns: a memfd_create(2) descriptor.
class SpareRecord {
 public:
  struct Content {
    std::string record;  ///< the text of pool.json
    std::string secret;
    std::string key;  ///< empty: no key
  };

  static Outcome<std::shared_ptr<SpareRecord>> make();
  /// The copy that a running process has; nothing: no copy made by this user.
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

/// The copy of any process of the pool on this host; nothing: no process has a copy.
std::shared_ptr<SpareRecord> spare_of(const PoolRecord& pool);

/// Text that a SpareRecord holds. parse_spare() takes any bytes; nothing: the text is damaged.
std::string spare_text(const SpareRecord::Content& content);
std::optional<SpareRecord::Content> parse_spare(const std::string& text);

}  // namespace stdchk::tools
