#include "tests/attack/stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "core/base/assert.h"

namespace stdchk::attack {
namespace {

constexpr const char* kCipher = "\x13\x01";
constexpr time_t kPatienceSeconds = 5;

const TlsOffer& offer_of(SSL* ssl) { return *static_cast<const TlsOffer*>(SSL_get_app_data(ssl)); }

SSL_SESSION* psk_of(SSL* ssl) {
  SSL_SESSION* const session = SSL_SESSION_new();
  const auto& key = offer_of(ssl).psk.bytes;
  SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                              key.size());
  SSL_SESSION_set_cipher(session,
                         SSL_CIPHER_find(ssl, reinterpret_cast<const unsigned char*>(kCipher)));
  SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  if (offer_of(ssl).early_data) SSL_SESSION_set_max_early_data(session, 1024);
  return session;
}

int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* length,
                SSL_SESSION** session) {
  const TlsOffer& offer = offer_of(ssl);
  *session = nullptr;
  if (offer.identity.empty()) return 1;
  *identity = reinterpret_cast<const unsigned char*>(offer.identity.data());
  *length = offer.identity.size();
  *session = psk_of(ssl);
  return 1;
}

/// Accepts any client, with the key of the offer.
int find_session(SSL* ssl, const unsigned char*, std::size_t, SSL_SESSION** session) {
  *session = offer_of(ssl).identity.empty() ? nullptr : psk_of(ssl);
  return 1;
}

/// Counts the tickets that a server sends.
void on_message(int sends, int /*version*/, int type, const void* bytes, std::size_t length, SSL*,
                void* end) {
  const bool is_handshake = sends == 0 && type == SSL3_RT_HANDSHAKE && length > 0;
  if (is_handshake && *static_cast<const std::uint8_t*>(bytes) == SSL3_MT_NEWSESSION_TICKET) {
    ++static_cast<TlsEnd*>(end)->tickets;
  }
}

void make_certificate(SSL_CTX* context) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* const name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("127.0.0.1"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_sign(certificate, key, EVP_sha256());
  STDCHK_ASSERT(SSL_CTX_use_certificate(context, certificate) == 1);
  STDCHK_ASSERT(SSL_CTX_use_PrivateKey(context, key) == 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace

int connect_to(const std::string& address, std::uint8_t host) {
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  STDCHK_ASSERT(made >= 0);
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  STDCHK_ASSERT(::bind(made, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
  STDCHK_ASSERT(::connect(made, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return made;
}

void say(int socket, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

bool is_closed_within(int socket, double seconds, std::size_t* said) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::array<char, 4096> bytes;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd wait{socket, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) == 0) return false;
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got <= 0) return true;
    if (said != nullptr) *said += static_cast<std::size_t>(got);
  }
}

TlsEnd handshake(int socket, bool as_client, const TlsOffer& offer,
                 const std::function<void(SSL*)>& after) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a socket as to a file
  const timeval patience{kPatienceSeconds, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  SSL_CTX_set_security_level(context, 0);
  SSL_CTX_set_max_proto_version(context, offer.version);
  SSL_CTX_set1_groups_list(context, offer.groups.c_str());
  SSL_CTX_set_ciphersuites(context, offer.suites.c_str());
  SSL_CTX_set_msg_callback(context, on_message);
  if (offer.without_dhe) SSL_CTX_set_options(context, SSL_OP_ALLOW_NO_DHE_KEX);
  if (offer.with_certificate) make_certificate(context);
  SSL_CTX_set_psk_use_session_callback(context, use_session);
  SSL_CTX_set_psk_find_session_callback(context, find_session);
  SSL* const ssl = SSL_new(context);
  SSL_set_app_data(ssl, const_cast<TlsOffer*>(&offer));
  SSL_set_fd(ssl, socket);
  TlsEnd end;
  SSL_set_msg_callback_arg(ssl, &end);
  if (as_client && offer.early_data) {
    std::size_t written = 0;
    SSL_set_connect_state(ssl);
    SSL_write_early_data(ssl, "early", 5, &written);
  }
  end.done = (as_client ? SSL_connect(ssl) : SSL_accept(ssl)) == 1;
  end.resumed = SSL_session_reused(ssl) == 1;
  if (as_client) end.early_data = SSL_get_early_data_status(ssl);
  if (const auto error = ERR_peek_error(); error != 0) {
    end.error = ERR_reason_error_string(error) == nullptr ? "?" : ERR_reason_error_string(error);
  }
  ERR_clear_error();
  if (end.done && after) after(ssl);
  SSL_free(ssl);
  SSL_CTX_free(context);
  ERR_clear_error();
  return end;
}

Listener::Listener(std::function<void(int)> serve)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), serve_(std::move(serve)) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  STDCHK_ASSERT(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  STDCHK_ASSERT(::listen(socket_, 16) == 0);
  thread_ = std::thread([this] {
    const int accepted = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (accepted < 0) return;
    serve_(accepted);
    ::close(accepted);
  });
}

Listener::~Listener() {
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
}

std::string Listener::address() const {
  sockaddr_in at{};
  socklen_t length = sizeof at;
  STDCHK_ASSERT(::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &length) == 0);
  return "tcp:127.0.0.1:" + std::to_string(ntohs(at.sin_port));
}

}  // namespace stdchk::attack
