#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"
#include "transport/secure/keyring.h"

struct bio_st;
struct ssl_ctx_st;
struct ssl_st;
struct ssl_session_st;

/// TLS 1.3 of OpenSSL with an external pre-shared key and X25519 (RFC 8446, sections 2.2
/// and 4.2.11).
namespace stdchk::transport::tcp {

/// A TlsContext holds the settings, keys and buffers that all sessions of an endpoint share.
///
/// The settings allow only one form of TLS: version 1.3, TLS_AES_128_GCM_SHA256, X25519, a key of
/// the keyring. This end has no certificate, and accepts none of a peer. Tickets, resumption, early
/// data, renegotiation and compression are off.
///
/// Owns: OpenSSL's context, and idle buffers.
class TlsContext {
 public:
  static Result<std::unique_ptr<TlsContext>> create(std::shared_ptr<const secure::Keyring> keyring,
                                                    std::uint64_t records_max);

  const secure::Keyring& keyring() const { return *keyring_; }

 private:
  friend class TlsSession;
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  using Buffer = std::unique_ptr<std::byte[]>;
  TlsContext(std::shared_ptr<const secure::Keyring> keyring, std::uint64_t records_max)
      : keyring_(std::move(keyring)), records_max_(records_max) {}
  Buffer take_buffer();
  void give_back(Buffer buffer);

  const std::shared_ptr<const secure::Keyring> keyring_;
  const std::uint64_t records_max_;
  std::unique_ptr<ssl_ctx_st, Free> context_;
  std::vector<Buffer> idle_buffers_;
};

/// A TlsSession is a connected socket and the TLS on it.
///
/// | state    | reads from the socket                            | leaves when                    |
/// |----------|--------------------------------------------------|--------------------------------|
/// | proving  | at most kProofBytesMax bytes, by OpenSSL alone   | both ends have proven -> open  |
/// | open     | records, each authenticated by the key           | close()                        |
///
/// Owns: the socket. Threads: its endpoint's.
/// Not: protection from truncation. The end of the stream means that the link is lost, even if an
///   attacker has caused it.
class TlsSession {
 public:
  /// Most bytes that a peer may send before its proof.
  static constexpr std::size_t kProofBytesMax = 4096;
  static constexpr std::size_t kRecordBytesMax = 16384;
  static constexpr std::size_t kTokenBytes = 32;

  /// Makes the session of an accepted connection.
  TlsSession(TlsContext& context, int socket);
  /// Makes the session of a connection that this end has opened.
  TlsSession(TlsContext& context, int socket, const secure::Credential& credential);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  int socket() const { return socket_; }
  enum class Proof : std::uint8_t { kUnfinished, kProven, kFailed };
  /// Continues the handshake as far as the socket allows.
  Proof prove();
  /// The reason of kFailed.
  enum class Failure : std::uint8_t {
    kLost,      ///< the peer has gone
    kOther,     ///< the peer's bytes are no handshake of this transport
    kWrongKey,  ///< the peer has another key
  };
  Failure failure() const { return failure_; }
  /// Returns the link's name, whose key both ends have proven. Valid after kProven.
  const secure::LinkName& name() const { return credential_->name; }

  enum class Io : std::uint8_t { kDone, kBlocked, kLost };
  struct Got {
    Io io = Io::kBlocked;
    std::size_t bytes = 0;
  };
  /// Reads decrypted bytes, of one record at most. kBlocked also means that the socket is empty.
  Got read(MutableByteSpan into);

  /// Returns true when there is room for one more record.
  bool has_room() const;
  /// Encrypts a record of 1 to kRecordBytesMax bytes. Call has_room() first. Returns false when the
  /// link is lost.
  bool write(ByteSpan plain);
  bool unsent() const { return out_end_ > out_start_; }
  /// Sends encrypted bytes. kBlocked means that the socket is full.
  Io flush();

  /// Returns 256 bits for `use` that only the two ends of this session know (RFC 8446,
  /// section 7.5).
  Secret derived(const char* use) const;
  /// Hands over the socket. The session must have read no byte.
  int release() { return std::exchange(socket_, -1); }

  /// Closes the socket. No call may read or write afterwards.
  void close();

  std::uint64_t key_updates_sent() const { return key_updates_sent_; }
  std::uint64_t key_updates_received() const { return key_updates_received_; }

 private:
  friend struct TlsCallbacks;
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  void start();
  int receive(char* into, int length);
  int take_encrypted(const char* bytes, int length);
  ssl_session_st* make_psk() const;

  TlsContext& context_;
  int socket_;
  const bool accepts_;
  std::optional<secure::Credential> credential_;
  std::unique_ptr<ssl_st, Free> ssl_;
  bool proven_ = false;
  Failure failure_ = Failure::kLost;
  std::size_t proof_bytes_ = 0;
  TlsContext::Buffer out_;
  std::size_t out_start_ = 0;
  std::size_t out_end_ = 0;
  // Counts under the present keys.
  std::uint64_t records_sent_ = 0;
  std::uint64_t records_received_ = 0;
  std::uint64_t key_updates_sent_ = 0;
  std::uint64_t key_updates_received_ = 0;
};

}  // namespace stdchk::transport::tcp
