#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/crypto/key_exchange.h"
#include "core/crypto/secret.h"
#include "core/values/types.h"
#include "transport/secure/keyring.h"

namespace stdchk::transport::secure {

/// The version of the handshake and of the messages behind it. A peer of another one is refused.
inline constexpr std::uint16_t kProtocolVersion = 3;

/// What two processes agree on: a key for each direction of their link.
struct LinkKeys {
  Secret outgoing;
  Secret incoming;
};

/// A Handshake proves to each end of a link that the other one has the link's key (LinkName).
/// The key itself is not shown. docs/internals/protocol.md describes the messages.
///
///   connecting -> accepting: hello(version, name of the link, nonce, public value)
///   accepting -> connecting: challenge(version, nonce, public value, proof) or refusal(version)
///   connecting -> accepting: proof
///
/// Proofs and keys are made of the link's key and of a Diffie-Hellman exchange (forward secrecy): a
/// key that is stolen later opens no recording. A proof covers all earlier messages and names the
/// end that sends it. So nobody can replay it on another link or in the other direction.
///
/// Threads: one. Errors: in Step.
/// Not: the wire. It takes and makes messages; deadlines are its owner's.
class Handshake {
 public:
  /// What follows from a message.
  struct Step {
    std::vector<std::byte> reply;  ///< to be sent when it is not empty
    bool done = false;             ///< both ends are proven, as far as this one can know
    /// kMalformed; kRefused: another key, or another version. The link must not be used. A reply
    /// goes first, and with it the peer ends the link.
    Status status;
  };
  using Nonce = std::array<std::byte, 32>;
  /// Random, and one handshake's own.
  struct Fresh {
    Nonce nonce{};
    ExchangeKey key;
  };
  static Fresh fresh();

  static Handshake connecting(const Credential& credential, const Fresh& fresh);
  /// The keyring outlives it.
  static Handshake accepting(const Keyring& keyring, const Fresh& fresh);

  /// The hello; of the connecting end only.
  std::vector<std::byte> hello();
  /// Not after a step that was done or failed.
  Step take(ByteSpan message);

  // When done:
  LinkKeys keys() const;
  const PeerIdentity& peer() const { return peer_; }

 private:
  enum class End : std::uint8_t { kConnecting, kAccepting };

  Handshake(const Keyring* keyring, Role role, const Fresh& fresh)
      : keyring_(keyring), role_(role), fresh_(fresh) {}
  Step take_hello(ByteSpan message);
  Step take_challenge(ByteSpan message);
  Step take_proof(ByteSpan message) const;
  bool agree_on(const Secret& link_key, ByteSpan public_value);
  Digest proof(End of) const;

  const Keyring* keyring_;  ///< null: this is the connecting end
  const Role role_;
  const Fresh fresh_;
  Credential credential_;  ///< of the connecting end
  PeerIdentity peer_;
  std::vector<std::byte> said_;  ///< hello, then the challenge without its proof
  Secret agreed_;                ///< input of all keys of this link
};

}  // namespace stdchk::transport::secure
