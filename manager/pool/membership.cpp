#include "manager/pool/membership.h"

#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "core/base/assert.h"
#include "core/crypto/secret.h"
#include "transport/secure/grant_proof.h"
#include "transport/secure/ticket.h"

namespace stdchk::manager {
namespace {

using transport::secure::Member;
using transport::secure::Role;

/// Encodes the numbers, low byte first, and then the member.
std::vector<std::byte> text_of(std::initializer_list<std::uint64_t> numbers, const Member& member) {
  std::vector<std::byte> text;
  for (const std::uint64_t number : numbers) {
    for (std::size_t i = 0; i < sizeof number; ++i) {
      text.push_back(static_cast<std::byte>(number >> (8 * i)));
    }
  }
  text.push_back(static_cast<std::byte>(member.role));
  text.insert(text.end(), member.id.begin(), member.id.end());
  return text;
}

std::string proof_text(const Secret& proof) {
  return {reinterpret_cast<const char*>(proof.bytes.data()), proof.bytes.size()};
}

bool is(const std::string& proof, const std::string& wanted) {
  return equal(std::as_bytes(std::span(proof)), std::as_bytes(std::span(wanted)));
}

/// The epoch is in a number's upper bits (Service::next_id).
Epoch epoch_of(ClientId client) { return Epoch{client.value >> 40}; }

}  // namespace

Membership::Membership(std::shared_ptr<const transport::secure::Keyring> keyring)
    : keyring_(std::move(keyring)) {
  STDCHK_ASSERT(keyring_ != nullptr && keyring_->has_root());
}

Membership Membership::trusting_all() {
  Membership all;
  all.believes_ = true;
  return all;
}

bool Membership::admits(const transport::Link& link) const {
  return believes_ || (keyring_ != nullptr && link.peer() != nullptr);
}

bool Membership::may_ask(const transport::Link& link, msg::Route route) const {
  if (believes_) return true;
  if (!admits(link)) return false;
  switch (route) {
    case msg::Route::kClientToManager:
      return link.peer()->member.role == Role::kClient;
    case msg::Route::kBenefactorToManager:
      return link.peer()->member.role == Role::kBenefactor;
    case msg::Route::kStandbyToManager:
      return link.peer()->member.role == Role::kManager;
    case msg::Route::kManagerToBenefactor:
    case msg::Route::kReaderToBenefactor:
    case msg::Route::kCoordinatorToNode:
      return false;
  }
  return false;
}

Member Membership::member_at(const transport::Link& link) {
  const auto* const peer = link.peer();
  return peer == nullptr ? Member{} : peer->member;
}

std::string Membership::proof_of(ClientId client, const Member& member) const {
  if (keyring_ == nullptr) return {};
  return proof_text(keyring_->of_managers("client number", text_of({client.value}, member)));
}

bool Membership::examine(msg::RegisterClient& request, const Member& member) const {
  if (believes_) return true;
  const bool claims = request.resume || request.newest_epoch;
  const bool proven = request.resume && request.newest_epoch == epoch_of(request.resume) &&
                      is(request.proof, proof_of(request.resume, member));
  if (!proven) {
    request.resume = {};
    request.newest_epoch = {};
  }
  return proven || !claims;
}

std::string Membership::proof_of(const IssuedNumber& issued, const Member& member) const {
  if (keyring_ == nullptr) return {};
  return proof_text(keyring_->of_managers(
      "benefactor number",
      text_of({issued.benefactor.value, issued.epoch.value, issued.sequence}, member)));
}

bool Membership::examine(msg::RegisterBenefactor& request, const Member& member) const {
  if (believes_) return true;
  const bool claims = request.newest_epoch || request.benefactor || request.newest_sequence > 0;
  const IssuedNumber issued{request.benefactor, request.newest_epoch, request.newest_sequence};
  const bool proven = claims && is(request.proof, proof_of(issued, member));
  if (!proven) {
    request.newest_epoch = {};
    request.newest_sequence = 0;
    request.benefactor = {};
    request.log_epoch = {};
    request.log_sequence = 0;
  }
  return proven || !claims;
}

bool Membership::is_only_owner_of_life(const msg::RegisterBenefactor& request,
                                       const Member& member) const {
  if (believes_) return true;
  return keyring_ != nullptr && request.life_low == keyring_->mark_of(member, request.life_high);
}

Secret Membership::grant_key(const Member& benefactor) const {
  if (keyring_ == nullptr) return {};
  return keyring_->own_of(benefactor, transport::secure::kGrantKeyUse, {});
}

Secret Membership::log_key() const {
  if (keyring_ == nullptr) return {};
  return keyring_->of_managers("metadata log", {});
}

void Membership::add_ticket(msg::BenefactorInfo& info, const Member& benefactor,
                            const Member& reader, ClientId number) const {
  if (keyring_ == nullptr || benefactor == Member{} || info.addresses.empty()) return;
  put_ticket(keyring_->ticket(reader, benefactor, number.value), info);
}

}  // namespace stdchk::manager
