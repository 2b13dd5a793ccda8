#include "transport/secure/handshake.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/assert.h"

namespace stdchk::transport::secure {
namespace {

enum class Kind : std::uint8_t { kHello = 1, kChallenge = 2, kProof = 3, kRefusal = 4 };

constexpr std::string_view kMagic = "stdchk-link";
constexpr std::size_t kHeadBytes = 16;
constexpr std::size_t kNonceBytes = std::tuple_size_v<Handshake::Nonce>;
constexpr std::size_t kProofBytes = std::tuple_size_v<Digest>;
constexpr std::size_t kHelloBytes = kHeadBytes + kNonceBytes;

struct Head {
  Kind kind;
  Role role;
  std::uint16_t version;
};

/// magic (11), kind (1), version (2, low byte first), role (1), zero (1).
std::vector<std::byte> make(Kind kind, Role role, ByteSpan first, ByteSpan second = {}) {
  std::vector<std::byte> message(kHeadBytes + first.size() + second.size());
  std::ranges::copy(std::as_bytes(std::span(kMagic)), message.begin());
  message[11] = static_cast<std::byte>(kind);
  message[12] = static_cast<std::byte>(kProtocolVersion & 0xFF);
  message[13] = static_cast<std::byte>(kProtocolVersion >> 8);
  message[14] = static_cast<std::byte>(role);
  const auto behind = std::ranges::copy(first, message.begin() + kHeadBytes).out;
  std::ranges::copy(second, behind);
  return message;
}

/// No head, or not one of `kind`: nothing.
std::optional<Head> head_of(ByteSpan message) {
  if (message.size() < kHeadBytes) return std::nullopt;
  const auto number = [&](std::size_t at) { return std::to_integer<std::uint8_t>(message[at]); };
  const Head head{static_cast<Kind>(number(11)), static_cast<Role>(number(14)),
                  static_cast<std::uint16_t>(number(12) | number(13) << 8)};
  if (!std::ranges::equal(message.first(kMagic.size()), std::as_bytes(std::span(kMagic))) ||
      head.role < Role::kClient || head.role > Role::kManager || number(15) != 0) {
    return std::nullopt;
  }
  return head;
}

Handshake::Step failed(const Error& why) { return {{}, false, fail(why)}; }
Handshake::Step failed(Code code, const char* where) { return failed(Error{code, 0, where}); }

// describe() puts the place before the sentence: here it says what to look at.
constexpr Error kWrongSecret{Code::kRefused, 0,
                             "handshake: the secrets differ; --secret-file or STDCHK_SECRET_FILE "
                             "must name the file that `stdchk up` made for this pool"};
constexpr Error kWrongVersion{
    Code::kRefused, 0,
    "handshake: the protocol's versions differ; use one version of stdchk "
    "on all hosts"};

}  // namespace

Handshake::Handshake(End end, const Secret& secret, Role role, const Nonce& nonce)
    : end_(end), secret_(secret), role_(role), nonce_(nonce) {}

std::vector<std::byte> Handshake::hello() {
  STDCHK_ASSERT(end_ == End::kConnecting && said_.empty());
  said_ = make(Kind::kHello, role_, nonce_);
  return said_;
}

Handshake::Step Handshake::take(ByteSpan message) {
  if (end_ == End::kConnecting) return take_challenge(message);
  return said_.empty() ? take_hello(message) : take_proof(message);
}

Handshake::Step Handshake::take_hello(ByteSpan message) {
  constexpr const char* kWhere = "handshake.hello";
  const auto head = head_of(message);
  if (!head || head->kind != Kind::kHello) return failed(Code::kMalformed, kWhere);
  if (head->version != kProtocolVersion) {
    return {make(Kind::kRefusal, role_, {}), false, fail(kWrongVersion)};
  }
  if (message.size() != kHelloBytes || head->role == Role::kManager) {
    return failed(Code::kMalformed, kWhere);
  }
  peer_ = head->role;
  said_.assign(message.begin(), message.end());
  const auto challenge = make(Kind::kChallenge, role_, nonce_);
  said_.insert(said_.end(), challenge.begin(), challenge.end());
  return {make(Kind::kChallenge, role_, nonce_, proof(End::kAccepting)), false, {}};
}

Handshake::Step Handshake::take_challenge(ByteSpan message) {
  constexpr const char* kWhere = "handshake.challenge";
  const auto head = head_of(message);
  if (!head || (head->kind != Kind::kChallenge && head->kind != Kind::kRefusal)) {
    return failed(Code::kMalformed, kWhere);
  }
  if (head->version != kProtocolVersion) return failed(kWrongVersion);
  if (head->kind != Kind::kChallenge || message.size() != kHelloBytes + kProofBytes ||
      head->role == Role::kClient) {
    return failed(Code::kMalformed, kWhere);
  }
  peer_ = head->role;
  said_.insert(said_.end(), message.begin(), message.begin() + kHelloBytes);
  if (!equal(message.subspan(kHelloBytes), proof(End::kAccepting))) {
    return failed(kWrongSecret);
  }
  return {make(Kind::kProof, role_, proof(End::kConnecting)), true, {}};
}

Handshake::Step Handshake::take_proof(ByteSpan message) const {
  constexpr const char* kWhere = "handshake.proof";
  const auto head = head_of(message);
  if (!head || head->kind != Kind::kProof || message.size() != kHeadBytes + kProofBytes ||
      head->version != kProtocolVersion || head->role != peer_) {
    return failed(Code::kMalformed, kWhere);
  }
  if (!equal(message.subspan(kHeadBytes), proof(End::kConnecting))) {
    return failed(kWrongSecret);
  }
  return {{}, true, {}};
}

Digest Handshake::proof(End of) const {
  const bool connecting = of == End::kConnecting;
  return derive(secret_, connecting ? "proof of who connects" : "proof of who accepts", said_)
      .bytes;
}

LinkKeys Handshake::keys() const {
  const Secret from_connecting = derive(secret_, "key of who connects", said_);
  const Secret from_accepting = derive(secret_, "key of who accepts", said_);
  if (end_ == End::kConnecting) return {from_connecting, from_accepting};
  return {from_accepting, from_connecting};
}

}  // namespace stdchk::transport::secure
