#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "core/secret.h"
#include "core/types.h"
#include "transport/secure/keyring.h"

namespace stdchk::transport::secure {

/// Of the messages behind the handshake, and of the handshake itself. Another one is refused.
inline constexpr std::uint16_t kProtocolVersion = 1;

/// What two processes agree on: a key for each direction of their link.
struct LinkKeys {
  Secret outgoing;
  Secret incoming;
};

/// A Handshake proves to each end of a link that the other one knows the pool's secret, without
/// showing it: docs/protocol.md has the messages.
///
///   connecting -> accepting: hello(version, role, nonce)
///   accepting -> connecting: challenge(version, role, nonce, proof) or refusal(version)
///   connecting -> accepting: proof
///
/// A proof covers all that was said before, and which end says it: it is of no use on another link,
/// at another time, or in the other direction.
///
/// Threads: one. Errors: in Step.
/// Not: the wire. It takes and makes messages; deadlines are its owner's.
class Handshake {
 public:
  enum class End : std::uint8_t { kConnecting, kAccepting };
  /// What follows from a message.
  struct Step {
    std::vector<std::byte> reply;  ///< to be sent when it is not empty
    bool done = false;             ///< both ends are proven, as far as this one can know
    /// kMalformed; kRefused: another secret, or another version. The link must not be used. A reply
    /// goes first, and with it the peer ends the link.
    Status status;
  };
  using Nonce = std::array<std::byte, 32>;

  /// `nonce` is random, and this handshake's own.
  Handshake(End end, const Secret& secret, Role role, const Nonce& nonce);
  /// The hello; of the connecting end only.
  std::vector<std::byte> hello();
  /// Not after a step that was done or failed.
  Step take(ByteSpan message);

  // When done:
  LinkKeys keys() const;
  Role peer() const { return peer_; }

 private:
  Step take_hello(ByteSpan message);
  Step take_challenge(ByteSpan message);
  Step take_proof(ByteSpan message) const;
  Digest proof(End of) const;

  const End end_;
  const Secret secret_;
  const Role role_;
  const Nonce nonce_;
  Role peer_ = Role::kClient;
  std::vector<std::byte> said_;  ///< hello, then the challenge without its proof
};

}  // namespace stdchk::transport::secure
