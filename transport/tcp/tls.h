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

/// A TlsContext is what all sessions of an endpoint share: settings, keys, buffers.
///
/// The settings leave one way through TLS: version 1.3, TLS_AES_128_GCM_SHA256, X25519, a key of
/// the keyring. No certificate is loaded, and the store for checking a peer's is empty. No tickets,
/// no resumption, no early data, no renegotiation, no compression.
///
/// Owns: OpenSSL's context, and buffers that no session uses now.
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
/// | state    | what is read from the socket                     | leaves when                    |
/// |----------|--------------------------------------------------|--------------------------------|
/// | proving  | kProofBytesMax bytes at most, by OpenSSL alone   | both ends have proven -> open  |
/// | open     | records, each of which must open under the key   | close()                        |
///
/// Owns: the socket. Threads: its endpoint's.
/// Not: safe against being cut off. The end of the stream is the loss of the link, whoever made it.
class TlsSession {
 public:
  /// That a peer may send before it has proven anything.
  static constexpr std::size_t kProofBytesMax = 4096;
  static constexpr std::size_t kRecordBytesMax = 16384;
  static constexpr std::size_t kTokenBytes = 32;

  /// Of an accepted connection.
  TlsSession(TlsContext& context, int socket);
  /// Of a connection that was made here.
  TlsSession(TlsContext& context, int socket, const secure::Credential& credential);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  int socket() const { return socket_; }
  enum class Proof : std::uint8_t { kUnfinished, kProven, kFailed };
  /// Goes on with the handshake as far as the socket allows.
  Proof prove();
  /// Why, after kFailed.
  enum class Failure : std::uint8_t {
    kLost,      ///< the peer has gone
    kOther,     ///< what it sent is no handshake of ours
    kWrongKey,  ///< it has said, or shown, that it has another key
  };
  Failure failure() const { return failure_; }
  /// The name whose key both ends have proven. After kProven.
  const secure::LinkName& name() const { return credential_->name; }

  enum class Io : std::uint8_t { kDone, kBlocked, kLost };
  struct Got {
    Io io = Io::kBlocked;
    std::size_t bytes = 0;
  };
  /// Reads decrypted bytes, of one record at most. kBlocked: nothing is left in the socket either.
  Got read(MutableByteSpan into);

  /// True: there is room for one more record.
  bool has_room() const;
  /// Encrypts one record: 1 to kRecordBytesMax bytes. Asks for has_room(). False: lost.
  bool write(ByteSpan plain);
  bool unsent() const { return out_end_ > out_start_; }
  /// Sends what is encrypted. kBlocked: the socket is full.
  Io flush();

  /// 256 bits for `use` that both ends of this session know, and nobody else (RFC 8446, 7.5).
  Secret derived(const char* use) const;
  /// Hands the socket over. To be asked only of a session that has read nothing.
  int release() { return std::exchange(socket_, -1); }

  /// Closes the socket. Nothing is read or written any more.
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
  // Under the keys that are used now.
  std::uint64_t records_sent_ = 0;
  std::uint64_t records_received_ = 0;
  std::uint64_t key_updates_sent_ = 0;
  std::uint64_t key_updates_received_ = 0;
};

}  // namespace stdchk::transport::tcp
