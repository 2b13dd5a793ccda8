#pragma once

#include <sys/types.h>

#include <string>

#include "core/base/descriptor.h"
#include "fork/process/local_protocol.h"
#include "fork/process/process_handle.h"

namespace stdchk::fork {

/// A Connection is one client's socket, as the daemon sees it. Calls never wait.
///
/// Owns: the socket. Threads: one.
class Connection {
 public:
  explicit Connection(Descriptor socket);

  int fd() const { return socket_.get(); }
  /// The process that connected. nullptr: the daemon's pid namespace does not contain it.
  const Process& peer() const { return peer_; }
  uid_t peer_uid() const { return uid_; }

  enum class Got { kRecord, kNothing, kEnd };
  /// `sender`: the process that sent this record, perhaps a child of the process that connected.
  /// kEnd: the peer has closed the connection. A malformed record ends it, too.
  /// `passed`: a descriptor that came with the record, or none.
  Got receive(local::Record& record, Process& sender, Descriptor& passed);

  /// `passed`: a descriptor that goes with the record; -1: none. False: the record was not sent.
  bool send(const local::Record& record, int passed = -1);
  /// The last record of a call. `error`: an errno, or 0. `sentence`: for people.
  bool done(int error, const std::string& sentence = "");

 private:
  Descriptor socket_;
  Process peer_;
  uid_t uid_ = static_cast<uid_t>(-1);
};

/// Cuts `text` to what a record can hold.
void set_value(local::Record& record, const std::string& text);

}  // namespace stdchk::fork
