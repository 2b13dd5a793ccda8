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

/// Version of the handshake and of the messages that follow. A peer with another version is
/// refused.
inline constexpr std::uint16_t kProtocolVersion = 3;

/// LinkKeys are the keys that a handshake agrees on: a key for each direction of the link.
struct LinkKeys {
  Secret outgoing;
  Secret incoming;
};

/// A Handshake proves to each end of a link that the other end has the link's key (LinkName).
/// No message contains the key. docs/internals/protocol.md describes the messages.
///
/// | message   | sent by    | content                                        |
/// |-----------|------------|------------------------------------------------|
/// | hello     | connecting | version, name of the link, nonce, public value |
/// | challenge | accepting  | version, nonce, public value, proof            |
/// | refusal   | accepting  | version; sent in place of the challenge        |
/// | proof     | connecting | proof                                          |
///
/// Proofs and keys are derived from the link's key and from a Diffie-Hellman exchange. This gives
/// forward secrecy: a thief of the link's key cannot decrypt earlier recordings. A proof covers all
/// earlier messages and names the end that sends it. So an attacker cannot replay a proof on
/// another link or in the other direction.
///
/// Threads: one. Errors: in Step.
/// Not: input and output, or deadlines. The owner moves the messages and ends late handshakes.
class Handshake {
 public:
  /// A Step is the outcome of one received message.
  struct Step {
    std::vector<std::byte> reply;  ///< send it when it is not empty
    bool done = false;             ///< the peer is proven; `reply` may hold the last proof
    /// kMalformed, or kRefused for another key or version: the link must not be used. Send the
    /// reply even then: it makes the peer end the link.
    Status status;
  };
  using Nonce = std::array<std::byte, 32>;
  /// Fresh are random values, which only one handshake may use.
  struct Fresh {
    Nonce nonce{};
    ExchangeKey key;
  };
  static Fresh fresh();

  static Handshake connecting(const Credential& credential, const Fresh& fresh);
  /// The keyring must outlive the handshake.
  static Handshake accepting(const Keyring& keyring, const Fresh& fresh);

  /// Returns the hello message. Only the connecting end sends a hello.
  std::vector<std::byte> hello();
  /// Takes the peer's next message. No call may follow a step that was done or failed.
  Step take(ByteSpan message);

  // Valid after a step that was done:
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

  const Keyring* keyring_;  ///< nullptr: this is the connecting end
  const Role role_;
  const Fresh fresh_;
  Credential credential_;  ///< used by the connecting end
  PeerIdentity peer_;
  std::vector<std::byte> said_;  ///< the transcript: hello, then the challenge without its proof
  Secret agreed_;                ///< all keys of this link are derived from this secret
};

}  // namespace stdchk::transport::secure
