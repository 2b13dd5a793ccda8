#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/values/types.h"
#include "transport/secure/keyring.h"

/// Tools of a stranger, who attacks a port without the project's code.
namespace stdchk::attack {

/// Connects to "tcp:127.0.0.1:PORT" from 127.0.0.`host`. Ends the test when it cannot.
int connect_to(const std::string& address, std::uint8_t host = 1);
/// Sends all of it; stops without a word when the other end has closed.
void say(int socket, ByteSpan bytes);
/// Returns true when the other end closes within `seconds`. Counts the bytes that it sends before.
bool is_closed_within(int socket, double seconds, std::size_t* said = nullptr);

/// A TlsOffer is the stranger's part of a TLS handshake.
struct TlsOffer {
  std::vector<std::byte> identity;  ///< of the pre-shared key; empty: none is offered
  Secret psk{};
  std::string groups = "X25519";
  int version = TLS1_3_VERSION;
  bool without_dhe = false;       ///< key exchange by the pre-shared key alone
  bool with_certificate = false;  ///< of its own making
  std::string suites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
  bool early_data = false;  ///< a client sends bytes before the handshake is over
};

/// How a handshake ended for the stranger.
struct TlsEnd {
  bool done = false;     ///< it thinks that it is through
  bool resumed = false;  ///< by the pre-shared key
  std::string error;
  int tickets = 0;  ///< messages NewSessionTicket that came, also in `after`
  int early_data = SSL_EARLY_DATA_NOT_SENT;
};

/// Runs a handshake as a client (or as a server) on the socket, waiting at most 5 s. Calls
/// `after` after a successful handshake, with a session that can read and write.
TlsEnd handshake(int socket, bool as_client, const TlsOffer& offer,
                 const std::function<void(SSL*)>& after = {});

/// A Listener is a stranger's port: `serve` runs in a thread for the first connection.
class Listener {
 public:
  explicit Listener(std::function<void(int)> serve);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  std::string address() const;

 private:
  int socket_;
  std::function<void(int)> serve_;
  std::thread thread_;
};

}  // namespace stdchk::attack
