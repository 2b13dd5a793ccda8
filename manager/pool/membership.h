#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/messages/messages.h"
#include "core/messages/routes.h"
#include "core/values/types.h"
#include "transport/secure/keyring.h"
#include "transport/transport.h"

namespace stdchk::manager {

/// A Membership tells a manager which member is at the other end of a link, and what that member
/// was given before. Each client number, benefactor number and life belongs to one member.
/// It has no state: the manager hands out a proof with each number, and members bring it back. Only
/// managers of the pool can make proofs, so a restarted, standby or rebuilt manager checks them.
///
/// Threads: the reactor's. Errors: a number without its proof counts as not given.
class Membership {
 public:
  using Member = transport::secure::Member;
  using Role = transport::secure::Role;

  /// A Membership without members: no peer has proven its key.
  Membership() = default;
  /// `keyring` must have the root secret.
  explicit Membership(std::shared_ptr<const transport::secure::Keyring> keyring);
  /// Trusts the claims of every peer. Use it only where all ends are parts of one program and links
  /// carry no proof.
  static Membership trusting_all();

  /// True when the peer has proven which member it is.
  bool admits(const transport::Link& link) const;
  /// Returns true when the peer may send requests of that route to a manager.
  bool may_ask(const transport::Link& link, msg::Route route) const;
  /// Returns the proven member at the other end; zeros without a proof.
  static Member member_at(const transport::Link& link);

  /// Proves later that the member was given this client number.
  std::string proof_of(ClientId client, const Member& member) const;
  /// Without a valid proof, clears the client's claims of earlier numbers, and returns false.
  bool examine(msg::RegisterClient& request, const Member& member) const;

  /// A benefactor's number, and a journal record of that epoch that was answered to it.
  struct IssuedNumber {
    BenefactorId benefactor;
    Epoch epoch;
    std::uint64_t sequence = 0;
  };
  std::string proof_of(const IssuedNumber& issued, const Member& member) const;
  /// The same for benefactors. Without a valid proof, also clears the claims about its log.
  bool examine(msg::RegisterBenefactor& request, const Member& member) const;
  /// Returns true when no other member can have registered this life.
  bool is_only_owner_of_life(const msg::RegisterBenefactor& request, const Member& member) const;

  /// The key that proves grants on this benefactor (transport/secure/grant_proof.h).
  Secret grant_key(const Member& benefactor) const;
  /// The key that proves records of the metadata log. Only managers have it.
  Secret log_key() const;

  /// Lets `reader` open links to the benefactor, under that number.
  void add_ticket(msg::BenefactorInfo& info, const Member& benefactor, const Member& reader,
                  ClientId number) const;

 private:
  std::shared_ptr<const transport::secure::Keyring> keyring_;
  bool believes_ = false;
};

}  // namespace stdchk::manager
