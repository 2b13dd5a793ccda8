#include "client/blocking/leased_names.h"

#include <algorithm>

#include "core/base/limits.h"

namespace stdchk::client {
namespace {

using Kind = msg::NameChangeKind;
using Stage = HeldNames::Stage;

tl::unexpected<Error> would_block() { return fail(Code::kWouldBlock, "client.lease"); }

}  // namespace

LeasedNames::LeasedNames(BlockingQuestions& questions)
    : questions_(questions), engine_(questions.engine()), leases_(engine_) {
  const Lock lock(engine_.shared().mutex);
  leases_.set_settle([this](FileId directory) {
    engine_lock.assert_held();
    std::vector<EmptyOpenPtr> here;
    for (const auto& [file, open] : empties_) {
      const HeldNames::File* const named = leases_.names().file(file);
      if (named != nullptr && named->parent == directory) here.push_back(open);
    }
    for (const EmptyOpenPtr& open : here) (void)start_session(*open);
  });
}

LeasedNames::Turn::~Turn() {
  if (names_ != nullptr && !directories_.empty()) names_->end_turn(*this);
}

void LeasedNames::end_turn(const Turn& turn) {
  const Lock lock(engine_.shared().mutex);
  for (const FileId directory : turn.directories_) leases_.end(directory, turn.changed_);
}

// ---- parts of calls ---------------------------------------------------------------------------

Status LeasedNames::wait(Lock& lock, const std::function<Status()>& step) {
  return questions_.wait(lock, questions_.deadline(), step, &leases_.changed());
}

/// Decides how a call about these directories is answered. Leases on some of them are returned: a
/// call is answered by one side.
Status LeasedNames::choose(Turn& turn, Directories directories, Way& way) {
  for (const FileId directory : directories) STDCHK_TRY(leases_.may_begin(directory));
  const auto is_held = [this](FileId directory) {
    engine_lock.assert_held();
    return leases_.is_held(directory);
  };
  if (std::ranges::all_of(directories, is_held)) {
    // Changes that the disk cannot keep up with wait.
    if (leases_.batches().is_full()) return would_block();
    way = Way::kHere;
    return {};
  }
  if (std::ranges::any_of(directories, is_held)) return to_manager(directories);
  way = Way::kManager;
  for (const FileId directory : directories) {
    leases_.begin(directory);
    turn.directories_.push_back(directory);
  }
  return {};
}

/// The manager has to serve the call: returns the leases, and has the call wait for that.
Status LeasedNames::to_manager(const std::vector<FileId>& directories) {
  leases_.give_back(directories);
  return would_block();
}

Status LeasedNames::take_number(FileId& number) {
  NameBatches& batches = leases_.batches();
  number = batches.numbers().take();
  if (number) return {};
  // Each batch asks for numbers when few are left.
  if (batches.is_durable(batches.newest())) batches.send(true);
  return would_block();
}

msg::NameChange LeasedNames::change_of(Kind kind, FileId parent, std::string_view name,
                                       FileId file) {
  msg::NameChange change;
  change.kind = kind;
  change.parent = parent;
  change.name = std::string(name);
  change.file = file;
  change.time_ns = leases_.batches().now_ns();
  return change;
}

void LeasedNames::add(msg::NameChange change) { leases_.batches().add(std::move(change)); }

bool LeasedNames::drains() { return !engine_.config().drain_directory.empty(); }

Status LeasedNames::check_new_name(FileId parent, std::string_view name) {
  const HeldNames::Directory& directory = *leases_.names().directory(parent);
  if (is_name_for_manager(name, directory, drains()) || !leases_.has_room_for_name()) {
    return to_manager({parent});
  }
  return {};
}

/// Returns how far the manager knows the file. A session that has committed has given it its name.
Stage LeasedNames::stage_of(FileId file) {
  const HeldNames::File* const named = leases_.names().file(file);
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
Status LeasedNames::verify(FileId parent, std::string_view name) {
  FileId file;
  msg::Lookup question;
  {
    const Lock lock(engine_.shared().mutex);
    if (!leases_.is_held(parent) || leases_.names().find(parent, name, &file) == nullptr) return {};
    if (stage_of(file) != Stage::kPending || empties_.contains(file)) return {};
    if (engine_.sessions().find(file) != nullptr) return {};
    question = msg::Lookup{engine_.client(), parent, std::string(name)};
  }
  const auto answer = questions_.ask(std::move(question));
  if (!answer && answer.error().code != Code::kNotFound) return fail(answer.error());
  const Lock lock(engine_.shared().mutex);
  if (stage_of(file) != Stage::kPending || engine_.sessions().find(file) != nullptr) return {};
  if (answer) {
    leases_.names().set_stage(file, Stage::kStored);
  } else {
    leases_.names().erase(file);
  }
  return {};
}

// ---- answers ----------------------------------------------------------------------------------

Result<std::optional<LeasedNames::Found>> LeasedNames::lookup(Turn& turn, FileId parent,
                                                              std::string_view name) {
  STDCHK_TRY(verify(parent, name));
  Way way = Way::kManager;
  Found found;
  Lock lock(engine_.shared().mutex);
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_TRY(choose(turn, {parent}, way));
    if (way == Way::kManager) return {};
    if (leases_.names().find(parent, name, &found.file) == nullptr) return {};
    // Directories inside have leases of their own.
    STDCHK_TRY(leases_.may_answer_about(found.file));
    found.attributes = leases_.names().attributes(found.file);
    return {};
  });
  STDCHK_TRY(done);
  return way == Way::kHere ? std::optional(found) : std::nullopt;
}

std::optional<Attributes> LeasedNames::known(FileId file) {
  if (!leases_.may_answer_about(file)) return std::nullopt;
  return leases_.names().attributes(file);
}

Result<std::optional<Attributes>> LeasedNames::attributes(FileId file) {
  Lock lock(engine_.shared().mutex);
  std::optional<Attributes> out;
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_TRY(leases_.may_answer_about(file));
    out = leases_.names().attributes(file);
    return {};
  });
  STDCHK_TRY(done);
  return out;
}

Result<std::optional<std::vector<msg::DirectoryEntry>>> LeasedNames::read_directory(
    Turn& turn, FileId directory) {
  Way way = Way::kManager;
  std::vector<msg::DirectoryEntry> entries;
  Lock lock(engine_.shared().mutex);
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_TRY(choose(turn, {directory}, way));
    if (way == Way::kManager) return {};
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
    return {};
  });
  STDCHK_TRY(done);
  return way == Way::kHere ? std::optional(std::move(entries)) : std::nullopt;
}

// ---- changes ----------------------------------------------------------------------------------

Result<std::optional<Attributes>> LeasedNames::set_attributes(const msg::SetAttributes& change) {
  Lock lock(engine_.shared().mutex);
  std::optional<Attributes> out;
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_TRY(leases_.may_answer_about(change.file));
    HeldNames& names = leases_.names();
    if (!names.attributes(change.file)) return {};
    if (leases_.batches().is_full()) return would_block();
    msg::NameChange made = change_of(Kind::kAttributes, {}, {}, change.file);
    made.mask = change.mask;
    made.mode = change.mode;
    made.uid = change.uid;
    made.gid = change.gid;
    made.atime_ns = change.atime_ns;
    made.mtime_ns = change.mtime_ns;
    names.change_attributes(made);
    out = names.attributes(change.file);
    if (stage_of(change.file) != Stage::kEmpty) add(std::move(made));
    return {};
  });
  STDCHK_TRY(done);
  return out;
}

Result<std::optional<Attributes>> LeasedNames::make(Turn& turn, const msg::NameChange& change) {
  STDCHK_TRY(verify(change.parent, change.name));
  Way way = Way::kManager;
  Attributes made;
  Lock lock(engine_.shared().mutex);
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_TRY(choose(turn, {change.parent}, way));
    if (way == Way::kManager) return {};
    HeldNames& names = leases_.names();
    if (names.find(change.parent, change.name) != nullptr) {
      return fail(Code::kExists, "client.make");
    }
    STDCHK_TRY(check_new_name(change.parent, change.name));
    msg::NameChange now = change;
    STDCHK_TRY(take_number(now.file));
    now.time_ns = leases_.batches().now_ns();
    now.lease = now.kind == Kind::kAddDirectory && leases_.has_room_for_directory();
    made = names.make(now);
    add(std::move(now));
    return {};
  });
  STDCHK_TRY(done);
  return way == Way::kHere ? std::optional(made) : std::nullopt;
}

/// Before an open, empty file loses its name, it gets a session: it may still be written.
Status LeasedNames::begin_settling(FileId file) {
  const auto found = empties_.find(file);
  if (found == empties_.end() || found->second->opening) return {};
  EmptyOpen& open = *found->second;
  if (!open.is_stored) add(leases_.names().store(file, leases_.batches().now_ns(), drains()));
  open.is_stored = true;
  return start_session(open);
}

/// Waits for the session of begin_settling().
Status LeasedNames::settle_name(FileId parent, std::string_view name) {
  Lock lock(engine_.shared().mutex);
  FileId file;
  if (!leases_.is_held(parent) || !leases_.may_begin(parent)) return {};
  if (leases_.names().find(parent, name, &file) == nullptr || !empties_.contains(file)) return {};
  STDCHK_TRY(begin_settling(file));
  return wait_for_session(lock, empties_.at(file));
}

/// Says whether the file may lose its name now. An open that came meanwhile gets its session first.
Status LeasedNames::check_settled(FileId file) {
  STDCHK_TRY(begin_settling(file));
  const auto found = empties_.find(file);
  if (found == empties_.end()) return {};
  if (!found->second->opening->status.has_value()) return would_block();
  empties_.erase(found);
  return {};
}

/// An error of the open is left to those who use the file.
Status LeasedNames::wait_for_session(Lock& lock, const EmptyOpenPtr& open) {
  return questions_.wait(
      lock, questions_.deadline(),
      [&]() STDCHK_REQUIRES(engine_lock) {
        return open->opening->status.has_value() ? Status{} : would_block();
      },
      &open->opening->answered);
}

Result<std::optional<std::uint32_t>> LeasedNames::remove(Turn& turn, FileId parent,
                                                         std::string_view name, bool directory) {
  STDCHK_TRY(verify(parent, name));
  if (!directory) STDCHK_TRY(settle_name(parent, name));
  Way way = Way::kManager;
  Lock lock(engine_.shared().mutex);
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_TRY(choose(turn, {parent}, way));
    return way == Way::kManager ? Status{} : remove_here(parent, name, directory);
  });
  STDCHK_TRY(done);
  return way == Way::kHere ? std::optional<std::uint32_t>(0) : std::nullopt;
}

Status LeasedNames::remove_here(FileId parent, std::string_view name, bool directory) {
  HeldNames& names = leases_.names();
  FileId file;
  const HeldNames::File* const named = names.find(parent, name, &file);
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

Result<std::optional<std::uint32_t>> LeasedNames::rename(Turn& turn, const msg::Rename& change) {
  STDCHK_TRY(verify(change.from_parent, change.from_name));
  STDCHK_TRY(verify(change.to_parent, change.to_name));
  const bool is_itself =
      change.from_parent == change.to_parent && change.from_name == change.to_name;
  if (!is_itself && !change.no_replace && !change.exchange) {
    STDCHK_TRY(settle_name(change.to_parent, change.to_name));
  }
  Way way = Way::kManager;
  std::uint32_t left = 1;
  Lock lock(engine_.shared().mutex);
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    const bool is_one = change.from_parent == change.to_parent;
    STDCHK_TRY(is_one ? choose(turn, {change.from_parent}, way)
                      : choose(turn, {change.from_parent, change.to_parent}, way));
    return way == Way::kManager ? Status{} : rename_here(change, left);
  });
  STDCHK_TRY(done);
  return way == Way::kHere ? std::optional(left) : std::nullopt;
}

Status LeasedNames::rename_here(const msg::Rename& change, std::uint32_t& left) {
  HeldNames& names = leases_.names();
  FileId moved;
  FileId replaced;
  const HeldNames::File* const from = names.find(change.from_parent, change.from_name, &moved);
  if (from == nullptr) return fail(Code::kNotFound, "client.rename");
  // Leases of others may lie below a directory, so the manager moves it.
  if (from->type == FileType::kDirectory || change.exchange) {
    return to_manager(names.directories());
  }
  STDCHK_TRY(check_new_name(change.to_parent, change.to_name));
  const HeldNames::File* const to = names.find(change.to_parent, change.to_name, &replaced);
  if (to != nullptr && change.no_replace) return fail(Code::kExists, "client.rename");
  if (replaced == moved) return {};
  if (to != nullptr && to->type == FileType::kDirectory) {
    return fail(Code::kIsDirectory, "client.rename");
  }
  const Stage stage = stage_of(moved);
  const bool is_pending = stage == Stage::kPending || stage_of(replaced) == Stage::kPending;
  if (is_pending || (stage == Stage::kEmpty && to != nullptr)) {
    return to_manager({change.from_parent, change.to_parent});
  }
  if (to != nullptr) STDCHK_TRY(check_settled(replaced));
  msg::NameChange made = change_of(Kind::kRename, change.from_parent, change.from_name, moved);
  made.to_parent = change.to_parent;
  made.to_name = change.to_name;
  left = to == nullptr ? 1 : 0;
  names.rename(made);
  engine_.metadata().forget_file(moved);
  if (replaced) engine_.metadata().forget_file(replaced);
  if (stage != Stage::kEmpty) add(std::move(made));
  return {};
}

Result<std::optional<LeasedNames::Created>> LeasedNames::create(Turn& turn, FileId parent,
                                                                std::string_view name,
                                                                bool exclusive, Owner owner) {
  STDCHK_TRY(verify(parent, name));
  Way way = Way::kManager;
  Created out;
  Lock lock(engine_.shared().mutex);
  const Status done = wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_TRY(choose(turn, {parent}, way));
    if (way == Way::kManager) return {};
    HeldNames& names = leases_.names();
    if (const auto* there = names.find(parent, name, &out.existing)) {
      if (exclusive) return fail(Code::kExists, "client.create");
      if (there->type == FileType::kDirectory) return fail(Code::kIsDirectory, "client.create");
      return there->type == FileType::kRegular ? Status{} : fail(Code::kExists, "client.create");
    }
    STDCHK_TRY(check_new_name(parent, name));
    FileId number;
    STDCHK_TRY(take_number(number));
    msg::NameChange made = change_of(Kind::kAddFile, parent, name, number);
    made.mode = owner.mode;
    made.uid = owner.uid;
    made.gid = owner.gid;
    out.attributes = *names.make_file(made, made.time_ns).attributes;
    out.made = std::make_shared<EmptyOpen>(EmptyOpen{number, false, out.attributes, nullptr});
    empties_[number] = out.made;
    return {};
  });
  STDCHK_TRY(done);
  return way == Way::kHere ? std::optional(std::move(out)) : std::nullopt;
}

Status LeasedNames::leave(Turn& turn, FileId directory, FileId file) {
  Way way = Way::kManager;
  Lock lock(engine_.shared().mutex);
  return wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    const HeldNames::File* const named = file ? leases_.names().file(file) : nullptr;
    std::vector<FileId> directories{directory};
    if (named != nullptr && named->parent != directory) directories.push_back(named->parent);
    const auto is_held = [this](FileId one) {
      engine_lock.assert_held();
      return leases_.is_held(one);
    };
    if (std::ranges::any_of(directories, is_held)) return to_manager(directories);
    for (const FileId one : directories) STDCHK_TRY(leases_.may_begin(one));
    for (const FileId one : directories) STDCHK_TRY(choose(turn, {one}, way));
    return {};
  });
}

Status LeasedNames::leave_all() {
  Lock lock(engine_.shared().mutex);
  return wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    if (leases_.names().empty()) return {};
    return to_manager(leases_.names().directories());
  });
}

Status LeasedNames::sync() {
  Lock lock(engine_.shared().mutex);
  NameBatches& batches = leases_.batches();
  const std::uint64_t losses = leases_.losses();
  batches.send();
  const std::uint64_t newest = batches.newest();
  return wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    if (leases_.losses() != losses) return fail(Code::kFenced, "client.sync");
    return batches.is_durable(newest) ? Status{} : would_block();
  });
}

// ---- files that are open and empty ------------------------------------------------------------

void LeasedNames::forget_attributes(FileId file) { leases_.names().forget_attributes(file); }

Status LeasedNames::settle(FileId file) {
  Lock lock(engine_.shared().mutex);
  const auto found = empties_.find(file);
  if (found == empties_.end()) return {};
  const EmptyOpenPtr open = found->second;
  STDCHK_TRY(start_session(*open));
  STDCHK_TRY(wait_for_session(lock, open));
  return *open->opening->status;
}

Status LeasedNames::start_session(EmptyOpen& open) {
  if (open.opening) return {};
  HeldNames& names = leases_.names();
  const HeldNames::File* const named = names.file(open.file);
  msg::OpenSession request;
  if (open.is_stored) {
    request.file = open.file;
  } else {
    if (named == nullptr) return fail(Code::kFenced, "client.open: the lease is lost");
    request.parent = named->parent;
    request.name = named->name;
    request.mode = named->attributes->mode;
    request.uid = named->attributes->uid;
    request.gid = named->attributes->gid;
    request.number = open.file;
    names.set_stage(open.file, Stage::kPending);
    names.touch(named->parent, leases_.batches().now_ns());
  }
  if (named != nullptr && named->attributes) open.attributes = *named->attributes;
  names.forget_attributes(open.file);
  open.opening = engine_.open_session(std::move(request));
  return {};
}

Status LeasedNames::store(EmptyOpen& open) {
  Lock lock(engine_.shared().mutex);
  return wait(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    if (open.is_stored || open.opening) return {};
    if (leases_.names().file(open.file) == nullptr) {
      return fail(Code::kFenced, "client.close: the lease is lost");
    }
    STDCHK_TRY(leases_.may_answer_about(open.file));
    if (leases_.batches().is_full()) return would_block();
    add(leases_.names().store(open.file, leases_.batches().now_ns(), drains()));
    open.attributes = *leases_.names().attributes(open.file);
    open.is_stored = true;
    return {};
  });
}

void LeasedNames::drop(EmptyOpen& open) {
  empties_.erase(open.file);
  if (!open.is_stored && !open.opening) leases_.names().erase(open.file);
}

}  // namespace stdchk::client
