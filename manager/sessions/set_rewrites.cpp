#include "manager/sessions/set_rewrites.h"

#include <algorithm>
#include <utility>

#include "manager/sets/lost_writer.h"
#include "manager/state/folders_of.h"

namespace stdchk::manager {

std::optional<SetRewrites::Set> SetRewrites::set_of(const File& file) const {
  if (!file.parent && !file.pending) return std::nullopt;
  const FileId folder = file.parent ? file.parent : file.pending->parent;
  const auto image =
      pool_.state().set_names().image_name(folder, file.parent ? file.name : file.pending->name);
  if (!image) return std::nullopt;
  return std::pair(folder, *image);
}

bool SetRewrites::is_member(const File& file) const {
  const FileId folder = file.parent ? file.parent : file.pending ? file.pending->parent : FileId{};
  // An fsync of a file of such a name commits nothing.
  if (!folder || parse_image_name(file.parent ? file.name : file.pending->name)) return false;
  return set_of(file).has_value() || pool_.state().set_names().directory(folder);
}

bool SetRewrites::closed(const SessionRecord& session) {
  const File& file = *pool_.state().file(session.file);
  // A session that was opened later has not written the part.
  if (!file.parent || !file.newest.partial || session.opened >= file.newest.sequence) return false;
  note_closed(file, false);
  return true;
}

void SetRewrites::note_closed(const File& file, bool lost) {
  pool_.execute(Closed{file.id, lost}, [](const Result<Affected>&) {});
  for_each_folder(file, [this](FileId folder) { sets_.folder_changed(folder); });
}

void SetRewrites::begin(SessionRecord& session, const File& file) {
  const auto set = set_of(file);
  if (!set || !session.truncate || file.newest.content() == 0) return;
  const auto& [folder, image] = *set;
  session.writes_again = {
      {folder, image.application, image.timestep}, file.newest.content(), session.opened};
  rewriters_.add(*session.writes_again);
}

void SetRewrites::begin_late(SessionRecord& session, const File& file) {
  begin(session, file);
  if (!session.writes_again) return;
  const auto set = set_of(file);
  if (!set) return;
  const auto& [folder, image] = *set;
  const SetGenerations& generations = pool_.state().set_generations();
  const bool known = session.writes_again->written <= generations.next_begun(folder, image);
  if (known || generations.newest(folder, image) <= session.opened) return;
  BeginGeneration command{folder, image.application, session.opened, 0, {}};
  command.sets.push_back({image.timestep, session.opened, 0});
  pool_.execute(std::move(command), [](const Result<Affected>&) {});
  sets_.set_changed(folder, file.name);
}

void SetRewrites::end(const SessionRecord& session) {
  if (session.writes_again) rewriters_.remove(*session.writes_again);
}

void SetRewrites::end_generation(const SessionRecord& session) {
  const File& file = *pool_.state().file(session.file);
  const auto set = set_of(file);
  if (!set) return note_lost_writer(session, file);
  const auto& [folder, image] = *set;
  if (session.opened < pool_.state().set_generations().ended(folder, image)) return;
  BeginGeneration command{folder, image.application, 0, 0, {}};
  command.sets.push_back({image.timestep, 0, pool_.state().sequence() + 1});
  pool_.execute(std::move(command), [](const Result<Affected>&) {});
}

void SetRewrites::note_lost_writer(const SessionRecord& session, const File& file) {
  const State& state = pool_.state();
  const FileId folder = file.parent ? file.parent : file.pending ? file.pending->parent : FileId{};
  const FileId directory = folder ? state.set_names().directory(folder) : FileId{};
  const bool has_committed = file.newest.version > 0 && file.newest.sequence > session.opened;
  if (!directory) return;
  if (has_committed && file.parent && !file.newest.partial) note_closed(file, true);
  if (has_committed) return;
  LostWriter lost{session.opened, state.sequence()};
  const auto& xattrs = state.file(directory)->xattrs;
  if (const auto known = xattrs.find(LostWriter::kXattr); known != xattrs.end()) {
    if (const auto before = LostWriter::parse(known->second)) lost = lost.joined(*before);
  }
  msg::SetXattr change;
  change.file = directory;
  change.name = LostWriter::kXattr;
  change.value = lost.text();
  pool_.execute(ChangeXattr{std::move(change), pool_.wall_ns()}, [](const Result<Affected>&) {});
  sets_.folder_changed(directory);
}

bool SetRewrites::extends_complete_set(FileId folder, std::string_view name) const {
  const State& state = pool_.state();
  const auto image = state.set_names().image_name(folder, name);
  const File* const at = state.file(folder);
  if (!image || at == nullptr) return false;
  const std::uint64_t whole = state.set_generations().whole(folder, *image);
  if (whole == 0 || pool_.policy(*at).get(PolicyKey::kImages) <= whole) return false;
  const auto there = state.lookup(folder, name, ClientId{});
  return !there || (*there)->newest.content() == 0;
}

std::uint64_t SetRewrites::replaced_by(const SessionRecord& session, const Set& set,
                                       std::string_view name) const {
  const auto& [folder, image] = set;
  const std::uint64_t opened =
      rewriters_.opened({folder, image.application, image.timestep},
                        pool_.state().set_generations().next_begun(folder, image));
  return extends_complete_set(folder, name) ? std::max(opened, session.opened) : opened;
}

}  // namespace stdchk::manager
