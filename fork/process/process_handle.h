#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/base/descriptor.h"

namespace stdchk::fork {

/// A ProcessHandle is one life of one process. When the process has ended, the system may give its
/// pid to another process: the handle never reaches that process.
///
/// Owns: a pidfd. Threads: any.
class ProcessHandle {
 public:
  /// The process that has this pid now. The caller knows that the pid has not changed hands, for
  /// instance because the process is its child and was not waited for.
  explicit ProcessHandle(pid_t pid);
  /// Without a descriptor the process counts as ended.
  ProcessHandle(pid_t pid, Descriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  /// Only for messages and as a key: it may belong to another process when is_alive() is false.
  pid_t pid() const { return pid_; }
  /// Readable when the process has ended. -1: it had ended before.
  int pidfd() const { return pidfd_.get(); }
  /// False for a zombie.
  bool is_alive() const;
  void kill() const;
  /// As process_vm_readv(2) for one range; ESRCH when the process has ended, also during the call.
  ssize_t read(void* to, std::uint64_t address, std::size_t bytes) const;
  /// The process's pagemap (proc(5)), open for reading. Empty when the process has ended.
  Descriptor open_pagemap() const;
  /// Identifies the pid namespace: the inode of /proc/PID/ns/pid. 0: the process has ended.
  std::uint64_t pid_namespace() const;

 private:
  pid_t pid_;
  Descriptor pidfd_;
};

using Process = std::shared_ptr<const ProcessHandle>;

/// Returns the process that connected to this socket, or made this pair of sockets. Returns nullptr
/// if the kernel does not say, or if no pid namespace here shows the process.
Process peer_of(int socket);

/// Asks the kernel to name the sender of each message, by pid and by pidfd where it can.
bool ask_for_senders(int socket);
/// The sender that the kernel names in a received message. nullptr: no sender is
/// named. Call it for each message: it takes the pidfd, which would stay open.
Process take_sender(msghdr& message);

}  // namespace stdchk::fork
