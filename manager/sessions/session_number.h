#pragma once

#include <cstdint>

#include "core/values/types.h"
#include "manager/clients/clients.h"
#include "manager/pool/membership.h"

/// The number of a session names the member that has opened it. So a restarted manager, or a
/// standby that has taken over, lets only this member go on with the session.
///
/// | bits  | content                                                       |
/// |-------|---------------------------------------------------------------|
/// | 63-40 | the epoch, as in all numbers that the manager gives           |
/// | 39-24 | the mark of the member, which only managers can compute       |
/// | 23-0  | the low bits of a counter                                     |
///
/// A mark has 16 bits. A member cannot choose its mark, and the mark follows from its key. So a
/// member has the mark of another certain member with a probability of 1 in 65,536.
namespace stdchk::manager {

/// Returns the session number that `client`'s member gets for `number` of Pool::next_id(). Numbers
/// with equal low 24 bits give equal session numbers.
SessionId session_number(const Membership& membership, const ClientRecord& client,
                         std::uint64_t number);

/// Returns false when another member than that of `client` has opened the session.
bool may_own(const Membership& membership, const ClientRecord& client, SessionId session);

}  // namespace stdchk::manager
