#include "transport/tcp/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"

namespace stdchk::transport::tcp {
namespace {

using secure::Keyring;
using secure::LinkName;

/// Most bytes of one send(2), so that a batch of records costs one system call.
constexpr std::size_t kOutBytes = 128 * limits::kKiB;
constexpr std::size_t kIdleBuffersMax = 8;
/// A record with its header, inner type and tag, and a KeyUpdate before it.
constexpr std::size_t kRoomWanted = TlsSession::kRecordBytesMax + 512;
/// Size of one recv(2) after the peer's proof.
constexpr std::size_t kInBytes = 128 * limits::kKiB;
/// A KeyUpdate counts as a record. It is sent together with the next record.
constexpr std::uint64_t kRecordsBefore = 2;
constexpr std::array<unsigned char, 2> kCipher{0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";
constexpr const char* kGroup = "X25519";

TlsSession& session_of(const SSL* ssl) {
  return *static_cast<TlsSession*>(SSL_get_app_data(const_cast<SSL*>(ssl)));
}

}  // namespace

/// TlsCallbacks are the functions that OpenSSL calls. They must not throw.
struct TlsCallbacks {
  /// At the connecting end: returns the key that it must prove.
  static int use_session(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity,
                         std::size_t* length, SSL_SESSION** session) {
    TlsSession& self = session_of(ssl);
    static thread_local LinkName::Bytes name;  // OpenSSL copies it before it calls anything else
    name = self.credential_->name.encode();
    *session = self.make_psk();
    *identity = reinterpret_cast<const unsigned char*>(name.data());
    *length = name.size();
    return *session != nullptr ? 1 : 0;
  }

  /// At the accepting end: finds the key of the peer's name. The result 0 ends the handshake.
  static int find_session(SSL* ssl, const unsigned char* identity, std::size_t length,
                          SSL_SESSION** session) {
    TlsSession& self = session_of(ssl);
    *session = nullptr;
    // Refuse a second name of a peer: it would only cost key derivations.
    if (length != LinkName::kBytes || self.credential_) return 0;
    const auto name = LinkName::decode({reinterpret_cast<const std::byte*>(identity), length});
    if (!name) return 0;
    const auto key = self.context_.keyring().accept(*name);
    if (!key) return 0;
    self.credential_ = secure::Credential{*name, *key};
    *session = self.make_psk();
    return *session != nullptr ? 1 : 0;
  }

  /// Counts records and new keys.
  static void on_record(int written, int /*version*/, int type, const void* bytes,
                        std::size_t length, SSL* /*ssl*/, void* argument) {
    TlsSession& self = *static_cast<TlsSession*>(argument);
    if (type == SSL3_RT_HEADER) {
      ++(written != 0 ? self.records_sent_ : self.records_received_);
    } else if (type == SSL3_RT_HANDSHAKE && length > 0 &&
               *static_cast<const unsigned char*>(bytes) == SSL3_MT_KEY_UPDATE) {
      (written != 0 ? self.records_sent_ : self.records_received_) = 0;
      ++(written != 0 ? self.key_updates_sent_ : self.key_updates_received_);
    }
  }

  static int read(BIO* bio, char* into, int length) {
    BIO_clear_retry_flags(bio);
    const int got = static_cast<TlsSession*>(BIO_get_data(bio))->receive(into, length);
    if (got < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
    return got;
  }
  static int write(BIO* bio, const char* bytes, int length) {
    BIO_clear_retry_flags(bio);
    return static_cast<TlsSession*>(BIO_get_data(bio))->take_encrypted(bytes, length);
  }
  static long control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  /// A BIO directly over the socket, so that a stranger's bytes are counted before they are read.
  static BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "link");
      STDCHK_ASSERT(method != nullptr);
      BIO_meth_set_read(method, read);
      BIO_meth_set_write(method, write);
      BIO_meth_set_ctrl(method, control);
      return method;
    }();
    return made;
  }
};

void TlsContext::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void TlsSession::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

Result<std::unique_ptr<TlsContext>> TlsContext::create(std::shared_ptr<const Keyring> keyring,
                                                       std::uint64_t records_max) {
  STDCHK_ASSERT(records_max > 2 * kRecordsBefore);
  std::unique_ptr<TlsContext> made(new TlsContext(std::move(keyring), records_max));
  made->context_.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = made->context_.get();
  // The system's configuration of OpenSSL may have set other values.
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipherName) != 1 ||
      SSL_CTX_set1_groups_list(context, kGroup) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1 ||
      SSL_CTX_set_max_early_data(context, 0) != 1 ||
      SSL_CTX_set_recv_max_early_data(context, 0) != 1) {
    ERR_clear_error();
    return fail(Code::kUnsupported,
                "tcp.open: this OpenSSL does not offer TLS 1.3 with AES-128-GCM and X25519");
  }
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_ENABLE_MIDDLEBOX_COMPAT |
                                     SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION |
                                     SSL_OP_ALLOW_CLIENT_RENEGOTIATION | SSL_OP_NO_ANTI_REPLAY);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_psk_use_session_callback(context, TlsCallbacks::use_session);
  SSL_CTX_set_psk_find_session_callback(context, TlsCallbacks::find_session);
  SSL_CTX_set_msg_callback(context, TlsCallbacks::on_record);
  return made;
}

TlsContext::Buffer TlsContext::take_buffer() {
  if (idle_buffers_.empty()) return Buffer(new std::byte[kOutBytes]);
  Buffer taken = std::move(idle_buffers_.back());
  idle_buffers_.pop_back();
  return taken;
}

void TlsContext::give_back(Buffer buffer) {
  if (buffer != nullptr && idle_buffers_.size() < kIdleBuffersMax) {
    idle_buffers_.push_back(std::move(buffer));
  }
}

TlsSession::TlsSession(TlsContext& context, int socket)
    : context_(context), socket_(socket), accepts_(true) {
  start();
}

TlsSession::TlsSession(TlsContext& context, int socket, const secure::Credential& credential)
    : context_(context), socket_(socket), accepts_(false), credential_(credential) {
  start();
}

void TlsSession::start() {
  ssl_.reset(SSL_new(context_.context_.get()));
  BIO* const bio = BIO_new(TlsCallbacks::method());
  STDCHK_ASSERT(ssl_ != nullptr && bio != nullptr);  // out of memory
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  SSL_set_msg_callback_arg(ssl_.get(), this);
  if (accepts_) {
    SSL_set_verify(ssl_.get(), SSL_VERIFY_NONE, nullptr);  // never asks for a certificate
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
}

TlsSession::~TlsSession() { close(); }

void TlsSession::close() {
  if (socket_ < 0) return;
  ::close(std::exchange(socket_, -1));
  context_.give_back(std::move(out_));
  out_start_ = out_end_ = 0;
}

ssl_session_st* TlsSession::make_psk() const {
  const Secret psk = derive(credential_->key, "TLS 1.3 psk", credential_->name.encode());
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl_.get(), kCipher.data());
  const auto* const key = reinterpret_cast<const unsigned char*>(psk.bytes.data());
  if (cipher != nullptr && SSL_SESSION_set1_master_key(session, key, psk.bytes.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

/// OpenSSL calls this function in place of recv(2).
int TlsSession::receive(char* into, int length) {
  auto wanted = static_cast<std::size_t>(length);
  if (!proven_) {
    wanted = std::min(wanted, kProofBytesMax - proof_bytes_);
    if (wanted == 0) {
      errno = EMSGSIZE;
      return -1;
    }
  }
  const ssize_t got = ::recv(socket_, into, wanted, 0);
  if (got > 0 && !proven_) proof_bytes_ += static_cast<std::size_t>(got);
  if (got < 0 && errno == EINTR) errno = EAGAIN;
  return static_cast<int>(got);
}

/// OpenSSL calls this function to send. Messages of the handshake are sent at once, because an
/// empty socket has room for them.
int TlsSession::take_encrypted(const char* bytes, int length) {
  const auto wanted = static_cast<std::size_t>(length);
  if (!proven_) {
    const ssize_t sent = ::send(socket_, bytes, wanted, MSG_NOSIGNAL);
    return sent == length ? length : -1;
  }
  if (out_ == nullptr) out_ = context_.take_buffer();
  if (kOutBytes - out_end_ < wanted) return -1;
  std::memcpy(out_.get() + out_end_, bytes, wanted);
  out_end_ += wanted;
  return length;
}

TlsSession::Proof TlsSession::prove() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    // A certificate proves nothing here.
    if (SSL_session_reused(ssl_.get()) != 1 || !credential_) {
      failure_ = Failure::kOther;
      return Proof::kFailed;
    }
    proven_ = true;
    records_sent_ = records_received_ = 0;
    SSL_set_default_read_buffer_len(ssl_.get(), kInBytes);
    return Proof::kProven;
  }
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ) return Proof::kUnfinished;
  if (error == SSL_ERROR_SSL) {
    const int why = ERR_GET_REASON(ERR_peek_error());
    const bool alert = why >= SSL_AD_REASON_OFFSET;
    const bool proof_failed = accepts_ && credential_.has_value();
    if (why == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
      failure_ = Failure::kLost;
    } else {
      failure_ = alert || proof_failed ? Failure::kWrongKey : Failure::kOther;
    }
  }
  ERR_clear_error();
  return Proof::kFailed;
}

TlsSession::Got TlsSession::read(MutableByteSpan into) {
  if (socket_ < 0) return {Io::kLost, 0};
  ERR_clear_error();
  std::size_t bytes = 0;
  const int result = SSL_read_ex(ssl_.get(), into.data(), into.size(), &bytes);
  if (result == 1) {
    // The peer should have made a new key before this record.
    if (records_received_ > context_.records_max_) return {Io::kLost, 0};
    return {Io::kDone, bytes};
  }
  const bool blocked = SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ;
  ERR_clear_error();
  return {blocked ? Io::kBlocked : Io::kLost, 0};
}

Secret TlsSession::derived(const char* use) const {
  Secret secret;
  STDCHK_ASSERT(
      SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(secret.bytes.data()),
                                 secret.bytes.size(), use, std::strlen(use), nullptr, 0, 0) == 1);
  return secret;
}

bool TlsSession::has_room() const { return kOutBytes - out_end_ >= kRoomWanted; }

bool TlsSession::write(ByteSpan plain) {
  STDCHK_ASSERT(!plain.empty() && plain.size() <= kRecordBytesMax);
  ERR_clear_error();
  if (records_sent_ + kRecordsBefore >= context_.records_max_ &&
      SSL_get_key_update_type(ssl_.get()) == SSL_KEY_UPDATE_NONE &&
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
    return false;
  }
  std::size_t bytes = 0;
  return SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &bytes) == 1 && bytes == plain.size();
}

TlsSession::Io TlsSession::flush() {
  if (socket_ < 0) return Io::kLost;
  while (unsent()) {
    const ssize_t sent =
        ::send(socket_, out_.get() + out_start_, out_end_ - out_start_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN ? Io::kBlocked : Io::kLost;
    out_start_ += static_cast<std::size_t>(sent);
  }
  context_.give_back(std::move(out_));
  out_start_ = out_end_ = 0;
  return Io::kDone;
}

}  // namespace stdchk::transport::tcp
