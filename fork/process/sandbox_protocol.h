#pragma once

#include <cstdint>

/// The messages between stdchk-forkd and the first process of a sandbox, over a socket pair of type
/// SOCK_SEQPACKET.
namespace stdchk::fork {

/// The daemon's own folder: a tmpfs in its own mount namespace, with the changes that clones make
/// to files.
#define STDCHK_FORK_STATE "/run/stdchk-fork/state"

enum class SandboxStep : std::uint32_t {
  kHere = 1,  ///< first process: the namespaces exist; the message's credentials tell its pid
  kAddress =
      2,  ///< daemon: the interface eth0 exists, with this address; 0: no network but the loopback
  kReady = 3,   ///< first process: clones may enter
  kFailed = 4,  ///< first process: it ends; error and text
};

struct SandboxWord {
  SandboxStep step = SandboxStep::kHere;
  std::int32_t error = 0;
  std::uint32_t address = 0;  ///< IPv4, in the host's byte order
  std::uint32_t netmask = 0;
  std::uint32_t gateway = 0;  ///< gateway of the default route; 0: none
  char text[240] = {};
};

}  // namespace stdchk::fork
