#include "manager/sessions/session_number.h"

#include <span>

#include "core/crypto/secret.h"

namespace stdchk::manager {
namespace {

constexpr int kMarkShift = 24;
constexpr std::uint64_t kMarkBits = std::uint64_t{0xffff} << kMarkShift;

std::uint64_t mark_of(const Membership& membership, const ClientRecord& client) {
  const auto member =
      client.peer == nullptr ? Membership::Member{} : Membership::member_at(client.peer->link());
  // Only this member and managers know the key from which the mark comes.
  const Secret mark = derive(membership.grant_key(member), "session number", {});
  return (std::to_integer<std::uint64_t>(mark.bytes[0]) << 8 |
          std::to_integer<std::uint64_t>(mark.bytes[1]))
         << kMarkShift;
}

}  // namespace

SessionId session_number(const Membership& membership, const ClientRecord& client,
                         std::uint64_t number) {
  return SessionId{(number & ~kMarkBits) | mark_of(membership, client)};
}

bool may_own(const Membership& membership, const ClientRecord& client, SessionId session) {
  return client.peer != nullptr && (session.value & kMarkBits) == mark_of(membership, client);
}

}  // namespace stdchk::manager
