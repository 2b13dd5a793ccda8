#include "manager/clients/sessions.h"

namespace stdchk::manager {

bool GrantRecord::overlaps_used(std::uint64_t offset, std::uint64_t bytes) const {
  auto next = used.lower_bound(offset);
  if (next != used.end() && next->first < offset + bytes) return true;
  if (next == used.begin()) return false;
  --next;
  return next->first + next->second > offset;
}

SessionRecord* SessionTable::find(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

SessionRecord& SessionTable::begin(SessionId id, ClientId client, FileId file) {
  SessionRecord& session = sessions_[id];
  session.id = id;
  session.client = client;
  session.file = file;
  ++counts_[file];
  return session;
}

SessionRecord SessionTable::end(SessionId id) {
  const auto found = sessions_.find(id);
  SessionRecord session = std::move(found->second);
  sessions_.erase(found);
  const auto count = counts_.find(session.file);
  if (--count->second == 0) counts_.erase(count);
  return session;
}

std::size_t SessionTable::count_of(FileId file) const {
  const auto found = counts_.find(file);
  return found == counts_.end() ? 0 : found->second;
}

void SessionTable::add_grant(SessionRecord& session, const Grant& grant) {
  writers_ += session.grants.empty() ? 1 : 0;
  session.grants[grant.id] = GrantRecord{grant, {}, false};
}

void SessionTable::drop_grant(SessionRecord& session,
                              std::map<GrantId, GrantRecord>::iterator grant) {
  session.grants.erase(grant);
  writers_ -= session.grants.empty() ? 1 : 0;
}

std::uint64_t SessionTable::granted_bytes() const {
  std::uint64_t out = 0;
  for (const auto& [id, session] : sessions_) {
    for (const auto& [number, record] : session.grants) {
      record.for_each_unused([&](std::uint64_t, std::uint64_t bytes) { out += bytes; });
    }
  }
  return out;
}

std::size_t SessionTable::grant_count() const {
  std::size_t out = 0;
  for (const auto& [id, session] : sessions_) out += session.grants.size();
  return out;
}

std::unordered_map<FileId, std::uint32_t> SessionTable::pins_without_bytes(
    const State& state) const {
  std::unordered_map<FileId, std::uint32_t> pins;
  for (const auto& [id, session] : sessions_) {
    if (!session.truncate || session.base == 0) continue;
    const File* file = state.file(session.file);
    if (file != nullptr && file->newest.version == session.base) ++pins[session.file];
  }
  return pins;
}

}  // namespace stdchk::manager
