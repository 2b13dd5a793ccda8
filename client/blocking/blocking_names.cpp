#include "client/blocking/blocking_names.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "client/api/is_gone.h"
#include "client/blocking/name_leasing.h"
#include "core/base/limits.h"
#include "core/policy/access_list.h"
#include "core/policy/image_name.h"

namespace stdchk::client {
namespace {

Status check_name(std::string_view name) {
  if (name.size() > limits::kNameBytesMax) return fail(Code::kNameTooLong, "client.name");
  if (name.empty()) return fail(Code::kNotFound, "client.name");
  return {};
}

msg::NameChange new_name(msg::NameChangeKind kind, FileId parent, std::string_view name,
                         Owner owner) {
  msg::NameChange change;
  change.kind = kind;
  change.parent = parent;
  change.name = std::string(name);
  change.mode = owner.mode;
  change.uid = owner.uid;
  change.gid = owner.gid;
  return change;
}

}  // namespace

/// If this process writes the file, takes size and times from its session. Takes those of a file in
/// a held directory from there: the manager may not know the last changes.
Attributes BlockingNames::with_session_state(Attributes attributes) {
  const Lock lock(engine().shared().mutex);
  if (leased_ != nullptr) attributes = leased_->known(attributes.id).value_or(attributes);
  const SessionPtr session = engine().sessions().find(attributes.id);
  if (session == nullptr || session->ended()) return attributes;
  const Attributes now = session->attributes();
  attributes.size_bytes = now.size_bytes;
  if (session->content().dirty()) {
    attributes.mtime_ns = now.mtime_ns;
    attributes.ctime_ns = now.ctime_ns;
  }
  return attributes;
}

void BlockingNames::put_name(FileId parent, std::string_view name, const Attributes& attributes) {
  engine().metadata().forget_name(parent, name);
  engine().metadata().put(parent, name, attributes);
  note_name(attributes.id, name);
}

/// Remembers whether the file was seen under an image's name. Lock held.
void BlockingNames::note_name(FileId file, std::string_view name) {
  if (!parse_image_name(name).has_value()) {
    images_.erase(file);
    return;
  }
  if (images_.size() >= MetadataCache::kEntriesMax) images_.clear();
  images_.insert(file);
}

void BlockingNames::forget(FileId parent, std::string_view name, FileId file) {
  const Lock lock(engine().shared().mutex);
  engine().metadata().forget_entry(parent, name);
  if (file) engine().metadata().forget_file(file);
}

/// Checks the name, and looks it up if the directory is held. Returns nothing when the manager must
/// be asked. That call ends with the turn.
Result<std::optional<Attributes>> BlockingNames::lookup_held(LeasedNames::Turn& turn, FileId parent,
                                                             std::string_view name) {
  STDCHK_TRY(check_name(name));
  if (leased_ == nullptr) return std::nullopt;
  STDCHK_ASSIGN(const auto found, leased_->lookup(turn, parent, name));
  if (!found.has_value()) return std::nullopt;
  if (!found->file) return fail(Code::kNotFound, "client.lookup");
  if (found->attributes.has_value()) return found->attributes;
  return cached_attributes(found->file);
}

Result<Attributes> BlockingNames::lookup(FileId parent, std::string_view name) {
  LeasedNames::Turn turn(leased());
  STDCHK_ASSIGN(const auto held, lookup_held(turn, parent, name));
  if (held.has_value()) return *held;
  std::optional<MetadataCache::Known> known;
  {
    const Lock lock(engine().shared().mutex);
    known = engine().metadata().entry(parent, name);
    if (known.has_value()) look_ahead_.hit(parent);
  }
  if (!known.has_value()) {
    auto found = lookup_at_manager(parent, name);
    if (found.has_value()) look_ahead(parent, name);
    return found;
  }
  if (!known->attributes.has_value()) return fail(Code::kNotFound, "client.lookup");
  return with_session_state(*known->attributes);
}

/// Fetches into the cache the names that a scan of the directory looks up next. Does not wait.
void BlockingNames::look_ahead(FileId directory, std::string_view after) {
  const Lock lock(engine().shared().mutex);
  if (!look_ahead_.missed(directory, clock().now())) return;
  msg::ReadDirectory request{engine().client(), directory, std::string(after)};
  engine().call(std::move(request),
                [this, directory](const rpc::Answer& answer) { remember_page(directory, answer); });
}

/// Puts the names of a page of a listing into the cache.
void BlockingNames::remember_page(FileId directory, const rpc::Answer& answer) {
  const auto* page = reply_to<msg::ReadDirectory>(answer);
  if (page == nullptr) return;
  const Lock lock(engine().shared().mutex);
  for (const msg::DirectoryEntry& entry : page->entries) {
    engine().metadata().put(directory, entry.name, entry.attributes);
    note_name(entry.attributes.id, entry.name);
  }
}

Result<Attributes> BlockingNames::lookup_fresh(FileId parent, std::string_view name) {
  LeasedNames::Turn turn(leased());
  STDCHK_ASSIGN(const auto held, lookup_held(turn, parent, name));
  return held.has_value() ? *held : lookup_at_manager(parent, name);
}

Result<Attributes> BlockingNames::lookup_at_manager(FileId parent, std::string_view name) {
  STDCHK_TRY(check_name(name));
  const auto cache = [this, parent, key = std::string(name)](const rpc::Answer& answer) {
    const Lock lock(engine().shared().mutex);
    if (const auto* found = reply_to<msg::Lookup>(answer)) {
      engine().metadata().put(parent, key, found->attributes);
      note_name(found->attributes.id, key);
    } else if (!answer.has_value() && answer.error().error.code == Code::kNotFound) {
      engine().metadata().put_negative(parent, key);
    }
  };
  STDCHK_ASSIGN(const auto reply, ask_for(msg::Lookup{{}, parent, std::string(name)}, {}, cache));
  return with_session_state(reply.attributes);
}

Result<Attributes> BlockingNames::attributes(FileId file) {
  if (leased_ != nullptr) {
    STDCHK_ASSIGN(const auto known, leased_->attributes(file));
    if (known.has_value()) return *known;
  }
  return cached_attributes(file);
}

Result<Attributes> BlockingNames::cached_attributes(FileId file) {
  std::optional<Attributes> known;
  {
    const Lock lock(engine().shared().mutex);
    known = engine().metadata().attributes(file);
  }
  if (known.has_value()) return with_session_state(*known);
  STDCHK_ASSIGN(const auto reply,
                ask_for(msg::GetAttributes{{}, file}, {}, put_attributes<msg::GetAttributes>()));
  return with_session_state(reply.attributes);
}

Result<Attributes> BlockingNames::attributes_fresh(FileId file) {
  STDCHK_ASSIGN(const auto reply, ask_for(msg::GetAttributes{{}, file}, {},
                                          put_attributes<msg::GetAttributes>(file)));
  return reply.attributes;
}

Result<Attributes> BlockingNames::resolve(std::string_view path) {
  STDCHK_ASSIGN(Attributes at, attributes(kRootFile));
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
    if (name.empty() || name == ".") continue;
    if (at.type != FileType::kDirectory) return fail(Code::kNotDirectory, "client.resolve");
    STDCHK_ASSIGN(at, lookup(at.id, name));
  }
  return at;
}

Result<std::vector<msg::DirectoryEntry>> BlockingNames::read_directory(FileId directory) {
  LeasedNames::Turn turn(leased());
  if (leased_ == nullptr) return list(directory);
  STDCHK_ASSIGN(auto held, leased_->read_directory(turn, directory));
  if (!held.has_value()) return list(directory);
  STDCHK_TRY(complete(directory, *held));
  return std::move(*held);
}

/// Fetches the attributes that only the manager knows. Drops names of new files whose sessions have
/// ended without a version.
Status BlockingNames::complete(FileId directory, std::vector<msg::DirectoryEntry>& entries) {
  const auto is_unknown = [](const msg::DirectoryEntry& entry) {
    return entry.attributes.link_count == 0;
  };
  if (std::ranges::none_of(entries, is_unknown)) return {};
  // The listing puts all attributes into the cache.
  STDCHK_TRY(list(directory));
  for (msg::DirectoryEntry& entry : entries) {
    if (!is_unknown(entry)) continue;
    const auto now = cached_attributes(entry.attributes.id);
    if (now.has_value()) {
      entry.attributes = *now;
    } else if (!is_gone(now.error())) {
      return fail(now.error());
    }
  }
  std::erase_if(entries, is_unknown);
  return {};
}

Result<std::vector<msg::DirectoryEntry>> BlockingNames::list(FileId directory) {
  std::vector<msg::DirectoryEntry> entries;
  bool cached = false;
  {
    const Lock lock(engine().shared().mutex);
    if (const auto* listing = engine().metadata().listing(directory)) {
      cached = true;
      for (const msg::DirectoryEntry& entry : *listing) {
        // An entry whose attributes are no longer cached makes the whole listing stale: ask for all
        // of it.
        const auto known = engine().metadata().attributes(entry.attributes.id);
        if (!(cached = known.has_value())) break;
        entries.push_back({entry.name, *known});
      }
      if (!cached) entries.clear();
    }
  }
  if (!cached) {
    const auto cache = [this, directory](const rpc::Answer& answer) {
      remember_page(directory, answer);
    };
    std::string after;
    for (bool more = true; more;) {
      STDCHK_ASSIGN(auto reply, ask_for(msg::ReadDirectory{{}, directory, after}, {}, cache));
      if (reply.more && reply.entries.empty()) return fail(Code::kMalformed, "client.readdir");
      more = reply.more;
      if (!reply.entries.empty()) after = reply.entries.back().name;
      std::move(reply.entries.begin(), reply.entries.end(), std::back_inserter(entries));
    }
    const Lock lock(engine().shared().mutex);
    engine().metadata().put_listing(directory, entries);
  }
  for (msg::DirectoryEntry& entry : entries)
    entry.attributes = with_session_state(entry.attributes);
  return entries;
}

Result<Attributes> BlockingNames::set_attributes(const msg::SetAttributes& change) {
  if (leased_ != nullptr) {
    STDCHK_ASSIGN(const auto changed, leased_->set_attributes(change));
    if (changed.has_value()) return *changed;
  }
  const auto reply = ask_for(change, {}, put_attributes<msg::SetAttributes>());
  {
    // A lease may have begun since. The manager may have executed a request that failed.
    const Lock lock(engine().shared().mutex);
    engine().leases().file_changed(change.file);
  }
  if (!reply.has_value()) return fail(reply.error());
  return with_session_state(reply->attributes);
}

/// Asks for a new file or folder. Drops a negative cache entry for its name, and caches its
/// attributes.
template <class R>
Result<Attributes> BlockingNames::make(R request, LeasedNames::Turn& turn) {
  const FileId parent = request.parent;
  const std::string name = request.name;
  const auto cache = [this, parent, name](const rpc::Answer& answer) {
    const auto* made = reply_to<R>(answer);
    if (made == nullptr) return;
    const Lock lock(engine().shared().mutex);
    put_name(parent, name, made->attributes);
  };
  const auto reply = ask_for(std::move(request), {parent}, cache);
  if (!reply.has_value()) {
    forget(parent, name, FileId{});
    return fail(reply.error());
  }
  turn.set_changed();
  return reply->attributes;
}

Result<Attributes> BlockingNames::make_directory(FileId parent, std::string_view name,
                                                 Owner owner) {
  STDCHK_TRY(check_name(name));
  LeasedNames::Turn turn(leased());
  if (leased_ != nullptr) {
    msg::NameChange change = new_name(msg::NameChangeKind::kAddDirectory, parent, name, owner);
    STDCHK_ASSIGN(const auto made, leased_->make(turn, change));
    if (made.has_value()) return *made;
  }
  return make(
      msg::MakeDirectory{
          {}, parent, std::string(name), owner.mode, owner.uid, owner.gid, owner.unmasked},
      turn);
}

Result<Attributes> BlockingNames::make_symlink(FileId parent, std::string_view name,
                                               std::string_view target, Owner owner) {
  STDCHK_TRY(check_name(name));
  LeasedNames::Turn turn(leased());
  const bool is_good = !target.empty() && target.size() <= limits::kSymlinkBytesMax;
  if (leased_ != nullptr && is_good) {
    msg::NameChange change = new_name(msg::NameChangeKind::kAddSymlink, parent, name, owner);
    change.target = std::string(target);
    STDCHK_ASSIGN(const auto made, leased_->make(turn, change));
    if (made.has_value()) return *made;
  }
  return make(
      msg::MakeSymlink{{}, parent, std::string(name), std::string(target), owner.uid, owner.gid},
      turn);
}

Result<std::string> BlockingNames::read_symlink(FileId file) {
  STDCHK_ASSIGN(auto reply, ask_for(msg::ReadSymlink{file}));
  return std::move(reply.target);
}

Result<Attributes> BlockingNames::make_node(FileId parent, std::string_view name, FileType type,
                                            Owner owner, std::uint32_t device) {
  STDCHK_TRY(check_name(name));
  LeasedNames::Turn turn(leased());
  if (leased_ != nullptr) STDCHK_TRY(leased_->leave(turn, parent));
  return make(msg::MakeNode{{},
                            parent,
                            std::string(name),
                            type,
                            owner.mode,
                            owner.uid,
                            owner.gid,
                            device,
                            owner.unmasked},
              turn);
}

Result<Attributes> BlockingNames::make_link(FileId file, FileId parent, std::string_view name) {
  STDCHK_TRY(check_name(name));
  STDCHK_TRY(settle(file));
  LeasedNames::Turn turn(leased());
  if (leased_ != nullptr) STDCHK_TRY(leased_->leave(turn, parent, file));
  return make(msg::MakeLink{{}, file, parent, std::string(name)}, turn);
}

/// After a repeated call, the manager's answer does not name the file: the caller must ask.
Result<std::uint32_t> BlockingNames::remove(FileId parent, std::string_view name, bool directory) {
  STDCHK_TRY(check_name(name));
  LeasedNames::Turn turn(leased());
  if (leased_ != nullptr) {
    STDCHK_ASSIGN(const auto left, leased_->remove(turn, parent, name, directory));
    if (left.has_value()) return *left;
  }
  const auto cache = [this, parent, key = std::string(name)](const rpc::Answer& answer) {
    const auto* removed = reply_to<msg::Remove>(answer);
    if (removed == nullptr || !removed->directory.id) return;
    const Lock lock(engine().shared().mutex);
    engine().metadata().forget_name(parent, key);
    engine().metadata().forget_file(removed->file);
    engine().metadata().put(removed->directory);
  };
  const auto reply = ask_for(msg::Remove{{}, parent, std::string(name), directory}, {}, cache);
  if (reply.has_value()) turn.set_changed();
  if (reply.has_value() && reply->directory.id) return reply->names_left;
  forget(parent, name, reply.has_value() ? reply->file : FileId{});
  if (!reply.has_value()) return fail(reply.error());
  return reply->file ? reply->names_left : 1;
}

Result<std::uint32_t> BlockingNames::rename(const msg::Rename& change) {
  STDCHK_TRY(check_name(change.from_name));
  STDCHK_TRY(check_name(change.to_name));
  LeasedNames::Turn turn(leased());
  if (leased_ != nullptr) {
    STDCHK_ASSIGN(const auto left, leased_->rename(turn, change));
    if (left.has_value()) return *left;
  }
  std::vector<FileId> directories{change.from_parent};
  if (change.to_parent != change.from_parent) directories.push_back(change.to_parent);
  auto reply = ask_for(change, directories);
  if (!reply.has_value()) {
    forget(change.from_parent, change.from_name, FileId{});
    forget(change.to_parent, change.to_name, FileId{});
    return fail(reply.error());
  }
  turn.set_changed();
  const Lock lock(engine().shared().mutex);
  MetadataCache& cache = engine().metadata();
  cache.forget_name(change.from_parent, change.from_name);
  cache.forget_name(change.to_parent, change.to_name);
  for (const FileId file : {reply->moved, reply->replaced}) {
    if (file) cache.forget_file(file);
  }
  return reply->replaced ? reply->names_left : 1;
}

Status BlockingNames::set_xattr(const msg::SetXattr& change) {
  STDCHK_TRY(settle(change.file));
  // A rule of sets lets the manager change names in the directories below.
  const bool may_rule = change.name.starts_with("user.stdchk.");
  if (leased_ != nullptr && may_rule) STDCHK_TRY(leased_->leave_all());
  // The manager changes the mode with an access list, and gives new files those that a directory
  // has for them.
  LeasedNames::Turn turn(leased());
  if (leased_ != nullptr && is_access_list(change.name)) {
    STDCHK_TRY(leased_->leave(turn, change.file, change.file));
  }
  const auto reply = ask_for(change, {}, put_attributes<msg::SetXattr>(change.file));
  const Lock lock(engine().shared().mutex);
  engine().leases().file_changed(change.file);
  if (reply.has_value()) return {};
  engine().metadata().forget_file(change.file);  // the manager may have executed the request
  return fail(reply.error());
}

Result<std::vector<std::pair<std::string, std::string>>> BlockingNames::xattrs(FileId file) {
  STDCHK_TRY(settle(file));
  STDCHK_ASSIGN(auto reply, ask_for(msg::GetXattrs{file}));
  return std::move(reply.attributes);
}

Result<std::pair<Attributes, ChunkMap>> BlockingNames::map(FileId file) {
  STDCHK_TRY(settle(file));
  return BlockingQuestions::map(file);
}

void BlockingNames::lock(const msg::SetLock& request, LockDone done) {
  if (const Status known = settle(request.file); !known) return done(fail(known.error()));
  BlockingQuestions::lock(request, std::move(done));
}

Result<msg::GetLock::Reply> BlockingNames::get_lock(msg::GetLock request) {
  STDCHK_TRY(settle(request.file));
  return BlockingQuestions::get_lock(std::move(request));
}

Result<msg::GetPolicy::Reply> BlockingNames::policy(FileId file) {
  STDCHK_TRY(settle(file));
  return ask_for(msg::GetPolicy{file});
}

Outcome<void> BlockingNames::set_policy(FileId directory, const Policy& changes) {
  if (const rpc::Answer answer = answer_to(msg::SetPolicy{{}, directory, changes}); !answer) {
    return problem({answer.error().error, answer.error().text()});
  }
  const Lock lock(engine().shared().mutex);
  engine().metadata().forget_file(directory);
  return {};
}

Status BlockingNames::sync_names(FileId about) {
  if (leased_ == nullptr) return {};
  const Status done = leased_->sync();
  const Lock lock(engine().shared().mutex);
  const auto lost = engine().sessions().take_lost(about);
  return lost.has_value() ? fail(*lost) : done;
}

void lease_names(Filesystem& filesystem) {
  if (auto* const own = dynamic_cast<BlockingNames*>(&filesystem)) own->lease_names();
}

Status sync_names(Filesystem& filesystem, FileId about) {
  auto* const own = dynamic_cast<BlockingNames*>(&filesystem);
  return own == nullptr ? Status{} : own->sync_names(about);
}

}  // namespace stdchk::client
