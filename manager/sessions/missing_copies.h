#pragma once

#include <vector>

#include "manager/arenas/extent_checks.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"

/// Copies that a session has stored and that are lost.
namespace stdchk::manager {

/// Removes places where the session's chunk is lost, unless all its places are.
void drop_missing(const Pool& pool, SessionRecord& session, std::vector<Extent>& copies);
/// Notes the missing places. Returns false when a chunk was found at none of its places.
bool note_missing(SessionRecord& session, const std::vector<std::vector<Extent>>& places,
                  const ExtentChecks::Missing& missing);

}  // namespace stdchk::manager
