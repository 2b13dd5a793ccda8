#pragma once

#include <cstddef>

#include "core/base/result.h"
#include "core/messages/messages.h"
#include "manager/clients/clients.h"
#include "manager/clients/notices.h"
#include "manager/pool/pool.h"

/// The terms of leases on directories (docs/decisions/0075).
namespace stdchk::manager {

/// A directory with more names is not leased.
inline constexpr std::size_t kLeasedNamesMax = 4096;

/// Returns true when the client may hold the directory: no other client uses it, and the manager
/// itself changes no names in it.
bool may_lease(const Pool& pool, const Clients& clients, const Notices& notices,
               const ClientRecord& client, FileId directory);

/// Checks what the journalled state cannot check, because it depends on running sessions and on the
/// numbers that clients were given. Every change must pass before the batch is journalled.
Status check_batch(const Pool& pool, const ClientRecord& client, const msg::ApplyNames& batch);

/// Checks that the client may make a file under the number that it has chosen.
Status check_number(const Pool& pool, const ClientRecord& client, FileId number);

}  // namespace stdchk::manager
