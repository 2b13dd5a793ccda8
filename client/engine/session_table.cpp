#include "client/engine/session_table.h"

namespace stdchk::client {

SessionPtr SessionTable::find(FileId file) const {
  const auto found = by_file_.find(file);
  return found == by_file_.end() ? nullptr : found->second;
}

SessionPtr SessionTable::find(SessionId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

void SessionTable::add(const SessionPtr& session) {
  by_file_[session->file()] = session;
  by_id_[session->id()] = session;
  const Resumer& resumer = session->resumer();
  if (resumer.is_pending() && resumer.parent()) {
    pending_[{resumer.parent(), resumer.name()}] = session->file();
  }
  // The next manager would not know the directory whose access list such a file has.
  const bool has_directory = !resumer.is_pending() || resumer.parent();
  if (!has_directory && session->attributes().has_access_list) session->resumer().forbid_resume();
}

void SessionTable::remove(const Session& session) {
  by_id_.erase(session.id());
  drop_name(session);
  // Another session may have opened the file meanwhile.
  const auto found = by_file_.find(session.file());
  if (found != by_file_.end() && found->second.get() == &session) by_file_.erase(found);
}

void SessionTable::let_go() {
  by_id_.clear();
  pending_.clear();
  for (const auto& [file, session] : by_file_) session->let_go();
  by_file_.clear();
}

void SessionTable::note_lost(const Session& session) {
  note_lost(session.file(), *session.error());
}

void SessionTable::note_lost(FileId file, const Error& why) {
  if (lost_.size() < kLostMax) lost_.insert_or_assign(file, why);
}

std::optional<Error> SessionTable::take_lost(FileId file) {
  const auto lost = lost_.extract(file);
  return lost.empty() ? std::nullopt : std::optional(lost.mapped());
}

}  // namespace stdchk::client
