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

/// The members of a pool, and the key of a link between two members.
///
/// | key            | derived from                                | known to the holders, and to |
/// |----------------|---------------------------------------------|------------------------------|
/// | root secret    | random bytes                                |                              |
/// | member key     | root secret, member                         | the member                   |
/// | link key       | accepting member's key, both ends, a number | both members                 |
/// | key to manager | connecting member's key, both ends          | the connecting member        |
///
/// The holders of the root secret are the manager, its standby, and the owner of the pool.
///
/// Every key is an HKDF expansion of the key above it (core/crypto/secret.h). An attacker who
/// breaks into a member can pose as that member only. He gets no key of a link between other
/// members, nor of their links to the manager. The manager makes link keys and hands them to the
/// connecting member (Ticket). The accepting member computes the same key. The names of both ends
/// are part of the key, and they differ, so reflection (RFC 9257, section 4) fails.
///
/// A ticket is made for one client number, because benefactors fence numbers. A member that opens a
/// link with a ticket can attach under that number only. The manager's epoch is in the upper bits
/// of every number, so tickets of an earlier epoch have smaller numbers.
namespace stdchk::transport::secure {

/// A Role says what a member may do. The numbers are sent on the wire.
///
/// A coordinator drives a job in containers. It uses the root secret, and may connect to nodes
/// only. A node is the daemon of containers on one host. It starts processes for coordinators, and
/// connects to nobody.
enum class Role : std::uint8_t {
  kClient = 1,
  kBenefactor = 2,
  kManager = 3,
  kCoordinator = 4,
  kNode = 5,
};
inline constexpr Role kLastRole = Role::kNode;

/// A Member is one process, or all processes that use the same member key.
struct Member {
  using Id = std::array<std::byte, 16>;
  Role role = Role::kClient;
  Id id{};  ///< random; zero: any manager of the pool
  auto operator<=>(const Member&) const = default;
};
/// Returns a member with a random id.
Member new_member(Role role);
/// Every manager of a pool has this name, because a standby takes the manager's place.
inline constexpr Member kAnyManager{Role::kManager, {}};

/// A LinkName identifies the key of a link. It is not secret: the connecting end sends it in clear.
struct LinkName {
  static constexpr std::size_t kBytes = 48;
  using Bytes = std::array<std::byte, kBytes>;
  Member from;              ///< the connecting end
  Member to = kAnyManager;  ///< the accepting end
  /// The client number that the manager made the key for; 0: a link to the manager.
  std::uint64_t number = 0;
  auto operator<=>(const LinkName&) const = default;

  /// Format: role of `from` (1 byte), role of `to` (1), zeros (6), number (8, little endian), id of
  /// `from` (16), id of `to` (16).
  Bytes encode() const;
  /// Returns nothing for a wrong length, an unknown role, or a zero field with other bytes.
  static std::optional<LinkName> decode(ByteSpan bytes);
};

/// A Ticket lets one member open links to the member `to`, under one client number.
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

/// A Keyring holds the keys that prove the identity of one process. It also computes the keys of
/// peers that connect to this process.
///
/// Threads: the reactor's thread of its endpoint.
/// Errors: without a key for a peer's link, the peer must be refused.
class Keyring {
 public:
  /// Makes the keyring of a process that knows the pool's root secret. It can be any member.
  static Keyring of_root(const Secret& root, const Member& self);
  /// Makes the keyring of a process that has the key of one member.
  static Keyring of_member(const MemberKey& own);

  const Member& self() const { return own_.member; }
  bool has_root() const { return root_.has_value(); }

  /// Returns the credential for a link to the manager, whichever process is the manager now.
  Credential to_manager() const;
  Credential by(const Ticket& ticket) const;
  /// Returns the credential for a link to the member that `ticket` names. nullptr: the manager.
  Credential to(const Ticket* ticket) const {
    return ticket == nullptr ? to_manager() : by(*ticket);
  }
  /// Returns the key of a link that a peer opens to this process.
  ///
  /// Returns nothing, so that the peer is refused, in these cases. The link ends at another member.
  /// It begins at this process. Links between these two roles are not allowed. Its number is below
  /// oldest_number().
  std::optional<Secret> accept(const LinkName& name) const;

  /// Refuses tickets with smaller numbers from now on. A smaller `number` than before is ignored.
  void refuse_before(std::uint64_t number);
  std::uint64_t oldest_number() const { return oldest_number_; }

  /// Returns a secret that only this member and managers can compute from `context`.
  Secret own(std::string_view use, ByteSpan context) const;
  /// Returns a proof that `number` belongs to this member. `number` is a benefactor's life.
  std::uint64_t mark(std::uint64_t number) const;

  // Only for a process with the root secret:
  MemberKey key_of(const Member& member) const;
  Ticket ticket(const Member& from, const Member& to, std::uint64_t number) const;
  /// Returns the secret that own() returns in the process of `member`.
  Secret own_of(const Member& member, std::string_view use, ByteSpan context) const;
  /// Returns the proof that mark() returns in the process of `member`.
  std::uint64_t mark_of(const Member& member, std::uint64_t number) const;
  /// Returns a secret that only managers of this pool can compute from `context`.
  Secret of_managers(std::string_view use, ByteSpan context) const;

 private:
  Keyring(std::optional<Secret> root, const MemberKey& own) : root_(root), own_(own) {}

  std::optional<Secret> root_;
  MemberKey own_;
  std::uint64_t oldest_number_ = 0;
};

/// A PeerIdentity is the proven member at the other end of a link.
struct PeerIdentity {
  Member member;
  std::uint64_t number = 0;  ///< number of the ticket; 0 on a link to the manager
};

}  // namespace stdchk::transport::secure
