#include "client/names/leased_calls.h"

#include <algorithm>
#include <utility>

namespace stdchk::client {
namespace {

using Kind = msg::NameChangeKind;
using Stage = HeldDirectories::Stage;

/// Says whether the manager has answered.
bool has_answer(const Engine::Opening& opening) {
  const std::optional<Status>& status = opening.status;
  return status.has_value() && (*status || status->error().code != Code::kManagerLost);
}

/// Says whether a session must be opened: none was, or the open has failed and may succeed now.
bool needs_session(const EmptyOpen& open) {
  if (!open.opening) return true;
  const std::optional<Status>& status = open.opening->status;
  return status.has_value() && !*status && retry_class(status->error().code) == Retry::kBackOff;
}

tl::unexpected<Error> would_block() { return fail(Code::kWouldBlock, "client.lease"); }

}  // namespace

LeasedCalls::LeasedCalls(Engine& engine) : engine_(engine), leases_(engine_) {
  const Lock lock(engine_.shared().mutex);
  leases_.set_settle([this](FileId directory) {
    engine_lock.assert_held();
    std::vector<EmptyOpenPtr> here;
    for (const auto& [file, open] : empties_) {
      const HeldDirectories::File* const named = leases_.names().file(file);
      if (named != nullptr && named->parent == directory) here.push_back(open);
    }
    bool is_settled = true;
    for (const EmptyOpenPtr& open : here) {
      if (open->opening && has_answer(*open->opening)) continue;
      is_settled = !start_session(*open) && is_settled;
    }
    return is_settled;
  });
}

LeasedCalls::Turn::~Turn() {
  if (calls_ != nullptr && !directories_.empty()) calls_->end_turn(*this);
}

void LeasedCalls::end_turn(const Turn& turn) {
  const Lock lock(engine_.shared().mutex);
  for (const FileId directory : turn.directories_) leases_.end(directory, turn.changed_);
}

// ---- parts of calls ---------------------------------------------------------------------------

/// Decides how a call about these directories is answered. Leases on some of them are returned: a
/// call is answered by one side.
Result<LeasedCalls::Way> LeasedCalls::choose(Turn& turn, Directories directories) {
  for (const FileId directory : directories) STDCHK_TRY(leases_.may_begin(directory));
  const auto is_held = [this](FileId directory) {
    engine_lock.assert_held();
    return leases_.is_held(directory);
  };
  if (std::ranges::all_of(directories, is_held)) return Way::kHere;
  if (std::ranges::any_of(directories, is_held)) return fail(to_manager(directories).error());
  for (const FileId directory : directories) {
    leases_.begin(directory);
    turn.directories_.push_back(directory);
  }
  return Way::kManager;
}

/// Changes wait that the manager's disk cannot keep up with. Look-ups do not.
Result<LeasedCalls::Way> LeasedCalls::choose_for_change(Turn& turn, Directories directories) {
  STDCHK_ASSIGN(const Way way, choose(turn, directories));
  if (way == Way::kHere && leases_.batches().is_full()) return would_block();
  return way;
}

/// The manager has to serve the call: returns the leases, and has the call wait for that.
Status LeasedCalls::to_manager(const std::vector<FileId>& directories) {
  leases_.give_back(directories);
  return would_block();
}

Result<FileId> LeasedCalls::take_number() {
  NameBatches& batches = leases_.batches();
  if (const FileId number = batches.numbers().take()) return number;
  // Each batch asks for numbers when few are left.
  if (batches.is_durable(batches.newest())) batches.send(true);
  return would_block();
}

msg::NameChange LeasedCalls::change_of(Kind kind, FileId parent, std::string_view name,
                                       FileId file) {
  msg::NameChange change;
  change.kind = kind;
  change.parent = parent;
  change.name = std::string(name);
  change.file = file;
  change.time_ns = leases_.batches().now_ns();
  return change;
}

void LeasedCalls::add(msg::NameChange change) { leases_.batches().add(std::move(change)); }

void LeasedCalls::add_name(EmptyOpen& open) {
  for (auto& change : leases_.names().store(open.file, leases_.batches().now_ns(), drains())) {
    add(std::move(change));
  }
  open.is_stored = true;
}

bool LeasedCalls::drains() { return !engine_.config().drain_directory.empty(); }

Status LeasedCalls::check_new_name(FileId parent, std::string_view name) {
  const HeldDirectories::Directory& directory = *leases_.names().directory(parent);
  if (is_name_for_manager(name, directory, drains()) || !leases_.has_room_for_name()) {
    return to_manager({parent});
  }
  return {};
}

/// Returns how far the manager knows the file. A session that has committed has given it its name.
Stage LeasedCalls::stage_of(FileId file) {
  const HeldDirectories::File* const named = leases_.names().file(file);
  if (named == nullptr || named->stage != Stage::kPending) {
    return named == nullptr ? Stage::kStored : named->stage;
  }
  const SessionPtr session = engine_.sessions().find(file);
  if (session == nullptr || session->attributes().version == 0) return Stage::kPending;
  leases_.names().set_stage(file, Stage::kStored);
  return Stage::kStored;
}

/// The session of a new file may have ended without a version: then the name is gone. Asks the
/// manager in that case.
Status LeasedCalls::verify(Turn& turn, FileId parent, std::string_view name) {
  FileId file;
  if (!leases_.is_held(parent) || leases_.names().find(parent, name, &file) == nullptr) return {};
  if (stage_of(file) != Stage::kPending || empties_.contains(file)) return {};
  if (engine_.sessions().find(file) != nullptr) return {};
  std::shared_ptr<std::optional<Status>>& asked = turn.asked_[file];
  if (asked == nullptr) {
    asked = std::make_shared<std::optional<Status>>();
    engine_.call(msg::Lookup{engine_.client(), parent, std::string(name)},
                 [this, asked](const rpc::Answer& answer) {
                   const Lock lock(engine_.shared().mutex);
                   *asked = answer.has_value() ? Status{} : fail(answer.error().error);
                   changed().notify_all();
                 });
  }
  if (!asked->has_value()) return would_block();
  const Status& said = **asked;
  if (said) {
    leases_.names().set_stage(file, Stage::kStored);
  } else if (said.error().code == Code::kNotFound) {
    leases_.names().erase(file);
  } else {
    return said;
  }
  return {};
}

// ---- answers ----------------------------------------------------------------------------------

Result<std::optional<LeasedCalls::Found>> LeasedCalls::lookup(Turn& turn, FileId parent,
                                                              std::string_view name) {
  STDCHK_TRY(verify(turn, parent, name));
  STDCHK_ASSIGN(const Way way, choose(turn, {parent}));
  if (way == Way::kManager) return std::nullopt;
  Found found;
  if (leases_.names().find(parent, name, &found.file) == nullptr) return found;
  // Directories inside have leases of their own.
  STDCHK_TRY(leases_.may_answer_about(found.file));
  found.attributes = leases_.names().attributes(found.file);
  return found;
}

Result<std::optional<Attributes>> LeasedCalls::attributes(FileId file) {
  STDCHK_TRY(leases_.may_answer_about(file));
  return leases_.names().attributes(file);
}

Result<std::optional<std::vector<msg::DirectoryEntry>>> LeasedCalls::read_directory(
    Turn& turn, FileId directory) {
  STDCHK_ASSIGN(const Way way, choose(turn, {directory}));
  if (way == Way::kManager) return std::nullopt;
  std::vector<msg::DirectoryEntry> entries;
  for (const auto& [name, file] : leases_.names().directory(directory)->names) {
    auto attributes = leases_.names().attributes(file);
    if (!attributes) {
      attributes.emplace();
      attributes->id = file;
      attributes->type = leases_.names().file(file)->type;
      attributes->link_count = 0;  // the caller asks the manager
    }
    entries.push_back({name, *attributes});
  }
  return entries;
}

// ---- changes ----------------------------------------------------------------------------------

Result<std::optional<Attributes>> LeasedCalls::set_attributes(const msg::SetAttributes& change) {
  STDCHK_TRY(leases_.may_answer_about(change.file));
  HeldDirectories& names = leases_.names();
  if (!names.attributes(change.file)) return std::nullopt;
  if (leases_.batches().is_full()) return would_block();
  msg::NameChange made = change_of(Kind::kAttributes, {}, {}, change.file);
  made.mask = change.mask;
  made.mode = change.mode;
  made.uid = change.uid;
  made.gid = change.gid;
  made.atime_ns = change.atime_ns;
  made.mtime_ns = change.mtime_ns;
  names.change_attributes(made);
  if (stage_of(change.file) != Stage::kEmpty) add(std::move(made));
  return names.attributes(change.file);
}

Result<std::optional<Attributes>> LeasedCalls::make(Turn& turn, const msg::NameChange& change) {
  STDCHK_TRY(verify(turn, change.parent, change.name));
  STDCHK_ASSIGN(const Way way, choose_for_change(turn, {change.parent}));
  if (way == Way::kManager) return std::nullopt;
  HeldDirectories& names = leases_.names();
  if (names.find(change.parent, change.name) != nullptr) {
    return fail(Code::kExists, "client.make");
  }
  STDCHK_TRY(check_new_name(change.parent, change.name));
  msg::NameChange now = change;
  STDCHK_ASSIGN(now.file, take_number());
  now.time_ns = leases_.batches().now_ns();
  now.lease = now.kind == Kind::kAddDirectory && leases_.has_room_for_directory();
  const Attributes made = names.make(now);
  add(std::move(now));
  return made;
}

/// Before an open, empty file loses its name, it gets a session: it may still be written.
Status LeasedCalls::settle(FileId file) {
  const auto found = empties_.find(file);
  if (found == empties_.end() || !needs_session(*found->second)) return {};
  EmptyOpen& open = *found->second;
  if (!open.is_stored) add_name(open);
  return start_session(open);
}

Result<EmptyOpenPtr> LeasedCalls::begin_settling(FileId parent, std::string_view name) {
  FileId file;
  if (!leases_.is_held(parent) || !leases_.may_begin(parent)) return nullptr;
  if (leases_.names().find(parent, name, &file) == nullptr) return nullptr;
  STDCHK_TRY(settle(file));
  return empty_open(file);
}

/// Says whether the file may lose its name now. An open that came meanwhile gets its session first.
Status LeasedCalls::check_settled(FileId file) {
  STDCHK_TRY(settle(file));
  const auto found = empties_.find(file);
  if (found == empties_.end()) return {};
  if (!found->second->opening->status.has_value()) return would_block();
  empties_.erase(found);
  return {};
}

Result<std::optional<std::uint32_t>> LeasedCalls::remove(Turn& turn, FileId parent,
                                                         std::string_view name, bool directory) {
  STDCHK_TRY(verify(turn, parent, name));
  STDCHK_ASSIGN(const Way way, choose_for_change(turn, {parent}));
  if (way == Way::kManager) return std::nullopt;
  STDCHK_TRY(remove_here(parent, name, directory));
  return std::uint32_t{0};
}

Status LeasedCalls::remove_here(FileId parent, std::string_view name, bool directory) {
  HeldDirectories& names = leases_.names();
  FileId file;
  const HeldDirectories::File* const named = names.find(parent, name, &file);
  if (named == nullptr) return fail(Code::kNotFound, "client.remove");
  const bool is_directory = named->type == FileType::kDirectory;
  if (directory && !is_directory) return fail(Code::kNotDirectory, "client.remove");
  if (!directory && is_directory) return fail(Code::kIsDirectory, "client.remove");
  if (is_directory) {
    STDCHK_TRY(leases_.may_begin(file));
    if (!leases_.is_held(file)) return to_manager({parent});
    if (!names.directory(file)->names.empty()) return fail(Code::kNotEmpty, "client.remove");
  }
  if (stage_of(file) == Stage::kPending) return to_manager({parent});
  STDCHK_TRY(check_settled(file));
  const msg::NameChange change =
      change_of(is_directory ? Kind::kRemoveDirectory : Kind::kRemoveFile, parent, name, file);
  names.remove(change);
  engine_.metadata().forget_file(file);
  add(change);
  return {};
}

Result<std::optional<std::uint32_t>> LeasedCalls::rename(Turn& turn, const msg::Rename& change) {
  STDCHK_TRY(verify(turn, change.from_parent, change.from_name));
  STDCHK_TRY(verify(turn, change.to_parent, change.to_name));
  const bool is_one = change.from_parent == change.to_parent;
  STDCHK_ASSIGN(const Way way,
                is_one ? choose_for_change(turn, {change.from_parent})
                       : choose_for_change(turn, {change.from_parent, change.to_parent}));
  if (way == Way::kManager) return std::nullopt;
  STDCHK_ASSIGN(const std::uint32_t left, rename_here(change));
  return left;
}

/// Returns the links that a replaced file has left, and 1 when none was replaced.
Result<std::uint32_t> LeasedCalls::rename_here(const msg::Rename& change) {
  HeldDirectories& names = leases_.names();
  FileId moved;
  FileId replaced;
  const HeldDirectories::File* const from =
      names.find(change.from_parent, change.from_name, &moved);
  if (from == nullptr) return fail(Code::kNotFound, "client.rename");
  // Leases of others may lie below a directory, so the manager moves it. The manager also recalls
  // the leases below: paths to them may lead through directories that are not held.
  if (from->type == FileType::kDirectory || change.exchange) {
    return fail(to_manager({change.from_parent, change.to_parent}).error());
  }
  STDCHK_TRY(check_new_name(change.to_parent, change.to_name));
  const HeldDirectories::File* const to = names.find(change.to_parent, change.to_name, &replaced);
  if (to != nullptr && change.no_replace) return fail(Code::kExists, "client.rename");
  if (replaced == moved) return 1U;
  if (to != nullptr && to->type == FileType::kDirectory) {
    return fail(Code::kIsDirectory, "client.rename");
  }
  const Stage stage = stage_of(moved);
  const bool is_pending = stage == Stage::kPending || stage_of(replaced) == Stage::kPending;
  if (is_pending || (stage == Stage::kEmpty && to != nullptr)) {
    return fail(to_manager({change.from_parent, change.to_parent}).error());
  }
  if (to != nullptr) STDCHK_TRY(check_settled(replaced));
  msg::NameChange made = change_of(Kind::kRename, change.from_parent, change.from_name, moved);
  made.to_parent = change.to_parent;
  made.to_name = change.to_name;
  const std::uint32_t left = to == nullptr ? 1 : 0;
  names.rename(made);
  engine_.metadata().forget_file(moved);
  if (replaced) engine_.metadata().forget_file(replaced);
  if (stage != Stage::kEmpty) add(std::move(made));
  return left;
}

Result<std::optional<LeasedCalls::Created>> LeasedCalls::create(Turn& turn, FileId parent,
                                                                std::string_view name,
                                                                bool exclusive, Owner owner) {
  STDCHK_TRY(verify(turn, parent, name));
  STDCHK_ASSIGN(const Way way, choose_for_change(turn, {parent}));
  if (way == Way::kManager) return std::nullopt;
  HeldDirectories& names = leases_.names();
  Created out;
  if (const auto* there = names.find(parent, name, &out.existing)) {
    if (exclusive) return fail(Code::kExists, "client.create");
    if (there->type == FileType::kDirectory) return fail(Code::kIsDirectory, "client.create");
    if (there->type != FileType::kRegular) return fail(Code::kExists, "client.create");
    return out;
  }
  STDCHK_TRY(check_new_name(parent, name));
  STDCHK_ASSIGN(const FileId number, take_number());
  msg::NameChange made = change_of(Kind::kAddFile, parent, name, number);
  made.mode = owner.mode;
  made.uid = owner.uid;
  made.gid = owner.gid;
  out.attributes = *names.make_file(made, made.time_ns).attributes;
  out.made = std::make_shared<EmptyOpen>(EmptyOpen{number, false, out.attributes, {}, nullptr});
  empties_[number] = out.made;
  return out;
}

Status LeasedCalls::leave(Turn& turn, FileId directory, FileId file) {
  const HeldDirectories::File* const named = file ? leases_.names().file(file) : nullptr;
  std::vector<FileId> directories{directory};
  if (named != nullptr && named->parent != directory) directories.push_back(named->parent);
  const auto is_held = [this](FileId one) {
    engine_lock.assert_held();
    return leases_.is_held(one);
  };
  if (std::ranges::any_of(directories, is_held)) return to_manager(directories);
  for (const FileId one : directories) STDCHK_TRY(leases_.may_begin(one));
  for (const FileId one : directories) {
    if (const auto chosen = choose(turn, {one}); !chosen) return fail(chosen.error());
  }
  return {};
}

Status LeasedCalls::leave_all() {
  if (leases_.names().empty()) return {};
  return to_manager(leases_.names().directories());
}

LeasedCalls::SyncPoint LeasedCalls::begin_sync() {
  leases_.batches().send();
  return {leases_.batches().newest(), leases_.losses()};
}

Status LeasedCalls::end_sync(const SyncPoint& point) {
  if (leases_.losses() != point.losses) return fail(Code::kFenced, "client.sync");
  return leases_.batches().is_durable(point.batch) ? Status{} : would_block();
}

// ---- files that are open and empty ------------------------------------------------------------

EmptyOpenPtr LeasedCalls::empty_open(FileId file) const {
  const auto found = empties_.find(file);
  return found == empties_.end() ? nullptr : found->second;
}

Status LeasedCalls::start_session(EmptyOpen& open) {
  if (!needs_session(open)) return {};
  HeldDirectories& names = leases_.names();
  const HeldDirectories::File* const named = names.file(open.file);
  if (named != nullptr && named->attributes) open.attributes = *named->attributes;
  msg::OpenSession request;
  if (open.is_stored) {
    request.file = open.file;
  } else {
    if (named == nullptr) return fail(Code::kFenced, "client.open: the lease is lost");
    request.parent = named->parent;
    request.name = named->name;
    request.mode = open.attributes.mode;
    request.uid = open.attributes.uid;
    request.gid = open.attributes.gid;
    request.number = open.file;
    if (named->times_set != 0) {
      open.times = msg::SetAttributes{};
      open.times->file = open.file;
      open.times->mask = named->times_set;
      open.times->atime_ns = open.attributes.atime_ns;
      open.times->mtime_ns = open.attributes.mtime_ns;
    }
    names.set_stage(open.file, Stage::kPending);
    names.touch(named->parent, leases_.batches().now_ns());
  }
  names.forget_attributes(open.file);
  open.opening = engine_.open_session(std::move(request));
  return {};
}

Status LeasedCalls::store(EmptyOpen& open) {
  if (open.is_stored || open.opening) return {};
  if (leases_.names().file(open.file) == nullptr) {
    return fail(Code::kFenced, "client.close: the lease is lost");
  }
  STDCHK_TRY(leases_.may_answer_about(open.file));
  if (leases_.batches().is_full()) return would_block();
  add_name(open);
  open.attributes = *leases_.names().attributes(open.file);
  return {};
}

void LeasedCalls::drop(const EmptyOpen& open) {
  empties_.erase(open.file);
  if (!open.is_stored && !open.opening) leases_.names().erase(open.file);
}

}  // namespace stdchk::client
