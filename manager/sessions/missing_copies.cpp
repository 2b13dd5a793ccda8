#include "manager/sessions/missing_copies.h"

#include <algorithm>
#include <iterator>

namespace stdchk::manager {

void drop_missing(const Pool& pool, SessionRecord& session, std::vector<Extent>& copies) {
  const auto is_missing = [&](const Extent& copy) {
    return !pool.is_readable(copy) || session.missing.contains(copy);
  };
  if (std::ranges::all_of(copies, is_missing)) return;
  for (const Extent& copy : copies) {
    if (is_missing(copy)) session.missing.insert(copy);
  }
  std::erase_if(copies, is_missing);
}

bool note_missing(SessionRecord& session, const std::vector<std::vector<Extent>>& places,
                  const ExtentChecks::Missing& missing) {
  if (!missing.why) return true;
  for (const auto& copies : places) {
    const auto is_missing = [&](const Extent& copy) { return missing.contains(copy); };
    if (std::ranges::all_of(copies, is_missing)) return false;
    std::ranges::copy_if(copies, std::inserter(session.missing, session.missing.end()), is_missing);
  }
  return true;
}

}  // namespace stdchk::manager
