#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/result.h"
#include "fork/process/process_handle.h"
#include "fork/process/watches.h"

namespace stdchk::fork {

/// An Address is a sandbox's place in the network of its family.
struct Address {
  std::uint32_t ip = 0;  ///< IPv4 in the host's byte order; 0: no network but the loopback
  std::uint32_t netmask = 0;
  std::uint32_t gateway = 0;  ///< to the outside; 0: none
};

/// A Sandbox is a set of namespaces (pid, mount, ipc, uts, network) that clones are put into, with
/// its first process, stdchk-fork-init. Its view of the file system is the host's, with changes
/// that stay its own.
///
/// Owns: the first process, and with it all processes inside: the destructor ends them. The folder
/// of the changes. Threads: the reactor's. Errors: on_failed is called once, with a sentence;
/// nothing follows it.
class Sandbox {
 public:
  struct Parts {
    std::string program;  ///< path of stdchk-fork-init
    std::string folder;   ///< its own, below STDCHK_FORK_STATE; made and removed by this object
    std::string sockets;  ///< the folder of the daemon's socket, which clones use
    std::string host_name;
    const Sandbox* parent = nullptr;  ///< the sandbox around the parent; nullptr: the host
    std::string sockets_at;           ///< where `sockets` appears inside; empty: at the same path
  };
  struct Calls {
    /// The namespaces exist: the caller makes the interface, then calls set_address().
    std::function<void(Sandbox&)> on_local_ready;
    std::function<void(Sandbox&)> on_ready;
    std::function<void(Sandbox&, const std::string&)> on_failed;
  };

  Sandbox(Watches& watches, Parts parts, Calls calls);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  Status start();
  void set_address(const Address& address);
  bool is_ready() const { return is_ready_; }
  const Process& first_process() const { return process_; }
  /// A pidfd of the first process. -1 before on_local_ready.
  int pidfd() const { return process_ ? process_->pidfd() : -1; }
  /// Identifies the pid namespace: the inode of /proc/PID/ns/pid. 0 before on_local_ready.
  std::uint64_t pid_namespace() const { return pid_namespace_; }
  const std::string& folder() const { return parts_.folder; }
  /// The folders of this sandbox and of the sandboxes around it, from the inside.
  std::vector<std::string> folders() const;

 private:
  void on_word();
  void failed(const std::string& why);

  Watches& watches_;
  const Parts parts_;
  const Calls calls_;
  std::vector<std::string> parents_;
  Descriptor control_;
  Process process_;
  std::uint64_t pid_namespace_ = 0;
  bool is_ready_ = false;
};

}  // namespace stdchk::fork
