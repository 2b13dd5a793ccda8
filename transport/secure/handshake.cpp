#include "transport/secure/handshake.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/assert.h"

namespace stdchk::transport::secure {
namespace {

enum class Kind : std::uint8_t { kHello = 1, kChallenge = 2, kProof = 3, kRefusal = 4 };

constexpr std::string_view kMagic = "stdchk-link";
constexpr std::size_t kHeadBytes = 16;
constexpr std::size_t kNonceBytes = std::tuple_size_v<Handshake::Nonce>;
constexpr std::size_t kProofBytes = std::tuple_size_v<Digest>;
constexpr std::size_t kPublicBytes = std::tuple_size_v<ExchangePublic>;
constexpr std::size_t kNonceAt = kHeadBytes + LinkName::kBytes;  // in the hello
constexpr std::size_t kHelloBytes = kNonceAt + kNonceBytes + kPublicBytes;
constexpr std::size_t kSaidBytes = kHeadBytes + kNonceBytes + kPublicBytes;  // of the challenge
constexpr std::size_t kChallengeBytes = kSaidBytes + kProofBytes;

struct Head {
  Kind kind;
  Role role;
  std::uint16_t version;
};

/// magic (11), kind (1), version (2, low byte first), role (1), zero (1).
std::vector<std::byte> make(Kind kind, Role role, std::initializer_list<ByteSpan> parts) {
  std::vector<std::byte> message(kHeadBytes);
  std::ranges::copy(std::as_bytes(std::span(kMagic)), message.begin());
  message[11] = static_cast<std::byte>(kind);
  message[12] = static_cast<std::byte>(kProtocolVersion & 0xFF);
  message[13] = static_cast<std::byte>(kProtocolVersion >> 8);
  message[14] = static_cast<std::byte>(role);
  for (const ByteSpan part : parts) message.insert(message.end(), part.begin(), part.end());
  return message;
}

/// Returns nothing when the message has no valid head.
std::optional<Head> head_of(ByteSpan message) {
  if (message.size() < kHeadBytes) return std::nullopt;
  const auto number = [&](std::size_t at) { return std::to_integer<std::uint8_t>(message[at]); };
  const Head head{static_cast<Kind>(number(11)), static_cast<Role>(number(14)),
                  static_cast<std::uint16_t>(number(12) | number(13) << 8)};
  if (!std::ranges::equal(message.first(kMagic.size()), std::as_bytes(std::span(kMagic))) ||
      head.role < Role::kClient || head.role > kLastRole || number(15) != 0) {
    return std::nullopt;
  }
  return head;
}

Handshake::Step failed(const Error& why) { return {{}, false, fail(why)}; }
Handshake::Step failed(Code code, const char* where) { return failed(Error{code, 0, where}); }

// describe() puts the place before the sentence: here it says what to look at.
constexpr Error kWrongKey{
    Code::kRefused, 0,
    "handshake: the keys differ; --secret-file or STDCHK_SECRET_FILE must "
    "name the file that `stdchk up` or `stdchk member-key` made for this pool"};
constexpr Error kWrongVersion{
    Code::kRefused, 0,
    "handshake: the protocol's versions differ; use one version of stdchk "
    "on all hosts"};

}  // namespace

Handshake::Fresh Handshake::fresh() {
  Fresh fresh;
  fill_random(fresh.nonce);
  fresh.key = new_exchange_key();
  return fresh;
}

Handshake Handshake::connecting(const Credential& credential, const Fresh& fresh) {
  Handshake made(nullptr, credential.name.from.role, fresh);
  made.credential_ = credential;
  made.peer_ = {credential.name.to, credential.name.number};
  return made;
}

Handshake Handshake::accepting(const Keyring& keyring, const Fresh& fresh) {
  return {&keyring, keyring.self().role, fresh};
}

std::vector<std::byte> Handshake::hello() {
  STDCHK_ASSERT(keyring_ == nullptr && said_.empty());
  said_ =
      make(Kind::kHello, role_, {credential_.name.encode(), fresh_.nonce, public_of(fresh_.key)});
  return said_;
}

Handshake::Step Handshake::take(ByteSpan message) {
  if (keyring_ == nullptr) return take_challenge(message);
  return said_.empty() ? take_hello(message) : take_proof(message);
}

/// HKDF (RFC 5869): this is the extraction; proof() and keys() expand. The link's key is the salt,
/// so an attacker needs both secrets. Returns false when no honest peer would send `public_value`.
bool Handshake::agree_on(const Secret& link_key, ByteSpan public_value) {
  ExchangePublic value;
  std::ranges::copy(public_value, value.begin());
  const auto shared = agree(fresh_.key, value);
  if (!shared) return false;
  agreed_ = {keyed_digest(link_key, {shared->bytes})};
  return true;
}

Handshake::Step Handshake::take_hello(ByteSpan message) {
  constexpr const char* kWhere = "handshake.hello";
  const auto head = head_of(message);
  if (!head || head->kind != Kind::kHello) return failed(Code::kMalformed, kWhere);
  if (head->version != kProtocolVersion) {
    return {make(Kind::kRefusal, role_, {}), false, fail(kWrongVersion)};
  }
  if (message.size() != kHelloBytes) return failed(Code::kMalformed, kWhere);
  const auto name = LinkName::decode(message.subspan(kHeadBytes, LinkName::kBytes));
  if (!name || name->from.role != head->role) return failed(Code::kMalformed, kWhere);
  const auto key = keyring_->accept(*name);
  if (!key) return failed(kWrongKey);
  if (!agree_on(*key, message.last(kPublicBytes))) return failed(Code::kMalformed, kWhere);
  peer_ = {name->from, name->number};
  said_.assign(message.begin(), message.end());
  auto challenge = make(Kind::kChallenge, role_, {fresh_.nonce, public_of(fresh_.key)});
  said_.insert(said_.end(), challenge.begin(), challenge.end());
  const Digest proven = proof(End::kAccepting);
  challenge.insert(challenge.end(), proven.begin(), proven.end());
  return {std::move(challenge), false, {}};
}

Handshake::Step Handshake::take_challenge(ByteSpan message) {
  constexpr const char* kWhere = "handshake.challenge";
  const auto head = head_of(message);
  if (!head || (head->kind != Kind::kChallenge && head->kind != Kind::kRefusal)) {
    return failed(Code::kMalformed, kWhere);
  }
  if (head->version != kProtocolVersion) return failed(kWrongVersion);
  if (head->kind != Kind::kChallenge || message.size() != kChallengeBytes ||
      head->role != peer_.member.role) {
    return failed(Code::kMalformed, kWhere);
  }
  const ByteSpan said = message.first(kSaidBytes);
  if (!agree_on(credential_.key, said.last(kPublicBytes))) return failed(Code::kMalformed, kWhere);
  said_.insert(said_.end(), said.begin(), said.end());
  if (!equal(message.last(kProofBytes), proof(End::kAccepting))) return failed(kWrongKey);
  return {make(Kind::kProof, role_, {proof(End::kConnecting)}), true, {}};
}

Handshake::Step Handshake::take_proof(ByteSpan message) const {
  constexpr const char* kWhere = "handshake.proof";
  const auto head = head_of(message);
  if (!head || head->kind != Kind::kProof || message.size() != kHeadBytes + kProofBytes ||
      head->version != kProtocolVersion || head->role != peer_.member.role) {
    return failed(Code::kMalformed, kWhere);
  }
  if (!equal(message.subspan(kHeadBytes), proof(End::kConnecting))) return failed(kWrongKey);
  return {{}, true, {}};
}

Digest Handshake::proof(End of) const {
  const bool connecting = of == End::kConnecting;
  return derive(agreed_, connecting ? "proof of who connects" : "proof of who accepts", said_)
      .bytes;
}

LinkKeys Handshake::keys() const {
  const Secret from_connecting = derive(agreed_, "key of who connects", said_);
  const Secret from_accepting = derive(agreed_, "key of who accepts", said_);
  if (keyring_ == nullptr) return {from_connecting, from_accepting};
  return {from_accepting, from_connecting};
}

}  // namespace stdchk::transport::secure
