#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "core/values/types.h"

/// Who the members of a pool are, and which key a link between two of them has.
///
/// | key            | made of                                      | known to                |
/// |----------------|----------------------------------------------|-------------------------|
/// | root secret    | random bytes                                 | manager, standby, owner |
/// | member key     | root secret, member                          | these, and that member  |
/// | link key       | accepting member's key, both ends, a number  | these, and both members |
/// | key to manager | connecting member's key, both ends           | manager, and that member|
///
/// Every key is an HKDF expansion of the key above it (core/crypto/secret.h). Who breaks into a
/// member can pose as that member only: he has no key to other members' links or to the manager's.
/// The manager makes link keys and hands them to the connecting member (Ticket). The accepting
/// member computes the same key. Reflection (RFC 9257, section 4) fails, because the two ends of a
/// link have different names.
/// The name of the accepting end is part of the key.
///
/// A ticket is made for one client number, because benefactors fence numbers. A member that opens a
/// link with a ticket can attach under that number only. The manager's epoch is in the upper bits
/// of every number, so tickets of an earlier epoch have smaller numbers.
namespace stdchk::transport::secure {

/// A Role says what a member may do. Numbers on the wire.
///
/// A coordinator drives a job in containers. It is made from the root secret, and may connect to
/// nodes only. A node is the daemon of containers on one host. It starts processes for
/// coordinators, and connects to nobody.
enum class Role : std::uint8_t {
  kClient = 1,
  kBenefactor = 2,
  kManager = 3,
  kCoordinator = 4,
  kNode = 5,
};
inline constexpr Role kLastRole = Role::kNode;

/// A Member is one process, or all processes that were started with one member's key.
struct Member {
  using Id = std::array<std::byte, 16>;
  Role role = Role::kClient;
  Id id{};  ///< random; zero: any manager of the pool
  auto operator<=>(const Member&) const = default;
};
/// A member with a random id.
Member new_member(Role role);
/// Every manager of a pool has this name, because a standby takes the manager's place.
inline constexpr Member kAnyManager{Role::kManager, {}};

/// A LinkName names a key without telling it: the connecting end sends it in clear.
struct LinkName {
  static constexpr std::size_t kBytes = 48;
  using Bytes = std::array<std::byte, kBytes>;
  Member from;              ///< the connecting end
  Member to = kAnyManager;  ///< the accepting end
  /// The client number that the manager made the key for; 0: a link to the manager.
  std::uint64_t number = 0;
  auto operator<=>(const LinkName&) const = default;

  /// from: role (1), to: role (1), zero (6), number (8, low byte first), from: id (16), to: id
  /// (16).
  Bytes encode() const;
  /// Nothing: another length, a role that does not exist, or bytes that must be zero and are not.
  static std::optional<LinkName> decode(ByteSpan bytes);
};

/// A Ticket lets one member open links to another one, under one client number.
struct Ticket {
  Member to;
  std::uint64_t number = 0;
  Secret key;
};

/// A Credential is the name that a connecting end sends, and the key that it proves to have.
struct Credential {
  LinkName name;
  Secret key;
};

/// A MemberKey is what a member's key file holds.
struct MemberKey {
  Member member;
  Secret key;
};

/// A Keyring holds what one process proves itself by, and finds the keys of those who connect.
///
/// Threads: none of its own; the reactor's of its endpoint.
/// Errors: a key that is not found is no key: the peer is refused.
class Keyring {
 public:
  /// Of a process that knows the pool's root secret: it can be any member.
  static Keyring of_root(const Secret& root, const Member& self);
  /// Of a process that was given a key of its own.
  static Keyring of_member(const MemberKey& own);

  const Member& self() const { return own_.member; }
  bool has_root() const { return root_.has_value(); }

  /// For a link to the manager, whichever process that is now.
  Credential to_manager() const;
  Credential by(const Ticket& ticket) const;
  /// For a link to the member that `ticket` names, or to the manager without a ticket (nullptr).
  Credential to(const Ticket* ticket) const {
    return ticket == nullptr ? to_manager() : by(*ticket);
  }
  /// The key of a link that a peer opens to this process. Nothing: the name is not addressed to
  /// this process, names this process as the connecting end, joins two roles that have nothing to
  /// say to each other, or is of a number below oldest_number().
  std::optional<Secret> accept(const LinkName& name) const;

  /// Tickets of smaller numbers are refused from now on. Never goes back.
  void refuse_before(std::uint64_t number);
  std::uint64_t oldest_number() const { return oldest_number_; }

  /// A secret that only this member and managers can compute from `context`.
  Secret own(std::string_view use, ByteSpan context) const;
  /// The same as a number, for numbers that belong to this member: a benefactor's life.
  std::uint64_t mark(std::uint64_t number) const;

  // Of a process with the root secret only:
  MemberKey key_of(const Member& member) const;
  Ticket ticket(const Member& from, const Member& to, std::uint64_t number) const;
  /// The answer of that member's own().
  Secret own_of(const Member& member, std::string_view use, ByteSpan context) const;
  std::uint64_t mark_of(const Member& member, std::uint64_t number) const;
  /// A secret that only managers of this pool can compute from `context`.
  Secret of_managers(std::string_view use, ByteSpan context) const;

 private:
  Keyring(std::optional<Secret> root, const MemberKey& own) : root_(root), own_(own) {}

  std::optional<Secret> root_;
  MemberKey own_;
  std::uint64_t oldest_number_ = 0;
};

/// A PeerIdentity is who has proven itself at the other end of a link.
struct PeerIdentity {
  Member member;
  std::uint64_t number = 0;  ///< of the ticket; 0 on a link to the manager
};

}  // namespace stdchk::transport::secure
