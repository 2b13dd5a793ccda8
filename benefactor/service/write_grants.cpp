#include "benefactor/service/write_grants.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/base/log.h"
#include "transport/secure/grant_proof.h"

namespace stdchk::benefactor {

void WriteGrants::grant(std::uint64_t offset, std::uint64_t length, GrantId number,
                        ClientId client) {
  if (length > std::numeric_limits<std::uint64_t>::max() - offset) return;
  add(offset, offset + length, number, client);
}

void WriteGrants::close(std::uint64_t offset, std::uint64_t length, GrantId before) {
  if (length > std::numeric_limits<std::uint64_t>::max() - offset) return;
  add(offset, offset + length, before, ClientId{});
}

bool WriteGrants::may_write(std::uint64_t offset, std::uint64_t length, ClientId client) const {
  auto next = parts_.upper_bound(offset);
  // Neighbouring parts may belong to two grants of one client, or to one split grant.
  while (next != parts_.begin()) {
    const Part& part = std::prev(next)->second;
    if (part.client != client || part.end <= offset) return false;
    if (length <= part.end - offset) return true;
    if (next == parts_.end() || next->first != part.end) return false;
    length -= part.end - offset;
    offset = part.end;
    ++next;
  }
  return false;
}

/// Gives the bytes to the client that no grant of an equal or higher number covers.
void WriteGrants::add(std::uint64_t offset, std::uint64_t end, GrantId number, ClientId client) {
  if (offset >= end) return;
  split(offset);
  split(end);
  std::uint64_t at = offset;
  while (at < end) {
    const auto next = parts_.lower_bound(at);
    const std::uint64_t from = next == parts_.end() ? end : std::min(next->first, end);
    if (at < from) {
      parts_.emplace_hint(next, at, Part{from, number, client});
      at = from;
      continue;
    }
    Part& part = next->second;
    at = part.end;
    if (part.number >= number) continue;
    if (part.client && part.client != client) ++revision_;
    part = {part.end, number, client};
  }
  join(offset, end);
}

/// Cuts the part that covers `at` in two.
void WriteGrants::split(std::uint64_t at) {
  const auto next = parts_.upper_bound(at);
  if (next == parts_.begin()) return;
  const auto part = std::prev(next);
  if (part->first == at || part->second.end <= at) return;
  parts_.emplace_hint(next, at, part->second);
  part->second.end = at;
}

/// Joins neighbouring parts of one grant that begin or end in [offset, end].
void WriteGrants::join(std::uint64_t offset, std::uint64_t end) {
  auto part = parts_.lower_bound(offset);
  if (part != parts_.begin()) --part;
  while (part != parts_.end() && part->first < end) {
    const auto next = std::next(part);
    if (next == parts_.end()) return;
    if (part->second.end == next->first && part->second.continues(next->second)) {
      part->second.end = next->second.end;
      parts_.erase(next);
    } else {
      part = next;
    }
  }
}

bool ClientWriteCheck::present(const Grant& grant) {
  Grant own = grant;
  own.benefactor = benefactor_;
  if (!transport::secure::is_proven(key_, client_, own)) {
    log::warning("client {} presents a grant that the manager has not made: its link ends",
                 client_.value);
    return false;
  }
  grants_.grant(own.offset, own.length, own.id, client_);
  return true;
}

bool ClientWriteCheck::may_write(std::uint64_t offset, std::uint64_t length) {
  if (grants_.may_write(offset, length, client_)) return true;
  log::warning("client {} writes {} bytes at {} without a grant of them: its link ends",
               client_.value, length, offset);
  return false;
}

}  // namespace stdchk::benefactor
