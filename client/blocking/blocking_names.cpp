// Calls on names and attributes; the metadata cache answers most of them without the manager.
#include "client/blocking/blocking_names.h"

#include <algorithm>
#include <chrono>

#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/policy/image_name.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

/// The longest sleep before the deadline is checked again: `clock_` need not be the system's clock.
constexpr Duration kWaitMax = 100ms;

Status check_name(std::string_view name) {
  if (name.size() > limits::kNameBytesMax) return fail(Code::kNameTooLong, "client.name");
  if (name.empty()) return fail(Code::kNotFound, "client.name");
  return {};
}

}  // namespace

Time BlockingNames::deadline() const { return clock_.now() + limits::kOperationDeadline; }

Status BlockingNames::wait(Lock& lock, Time until, const std::function<Status()>& step) {
  for (;;) {
    Status status = step();
    if (status.has_value() || status.error().code != Code::kWouldBlock) return status;
    if (clock_.now() >= until) {
      if (engine_->manager_lost()) return fail(Code::kManagerLost, "client.manager");
      return fail(Code::kDeadline, "client.wait");
    }
    engine_->shared().changed.wait_for(lock, kWaitMax);
  }
}

Result<msg::Reply> BlockingNames::ask(msg::Request request) {
  // Waits on a lock and a condition of its own: the engine's would wake every other waiting thread.
  struct Waiting {
    Mutex mutex;
    CondVar answered;
    std::optional<rpc::Answer> answer;
  };
  auto waiting = std::make_shared<Waiting>();
  const Time until = deadline();
  {
    const Lock lock(engine_->shared().mutex);
    engine_->call(std::move(request), [waiting](rpc::Answer answer) {
      {
        const MutexLock inner(waiting->mutex);
        waiting->answer = std::move(answer);
      }
      waiting->answered.notify_one();
    });
  }
  MutexLock lock(waiting->mutex);
  while (!waiting->answer.has_value()) {
    if (clock_.now() >= until) return fail(Code::kManagerLost, "client.call");
    waiting->answered.wait_for(lock, kWaitMax);
  }
  if (!waiting->answer->has_value()) return fail(waiting->answer->error().error);
  return std::move(**waiting->answer);
}

template <class R>
Result<typename R::Reply> BlockingNames::ask_for(R request) {
  if constexpr (requires { request.client; }) {
    const Lock lock(engine_->shared().mutex);
    request.client = engine_->client();
  }
  auto answer = ask(std::move(request));
  if (!answer.has_value()) return fail(answer.error());
  auto* reply = std::get_if<typename R::Reply>(&*answer);
  if (reply == nullptr) return fail(Code::kMalformed, R::kName);
  return std::move(*reply);
}

void BlockingNames::lock(const msg::SetLock& request, LockDone done) {
  const Lock lock(engine_->shared().mutex);
  engine_->locks().lock(request, std::move(done));
}

void BlockingNames::cancel_lock(std::uint64_t ticket) {
  const Lock lock(engine_->shared().mutex);
  engine_->locks().cancel(ticket);
}

Result<msg::GetLock::Reply> BlockingNames::get_lock(msg::GetLock request) {
  return ask_for(std::move(request));
}

/// If this process writes the file, takes size and times from its session.
Attributes BlockingNames::seen(Attributes attributes) {
  const Lock lock(engine_->shared().mutex);
  const SessionPtr session = engine_->sessions().find(attributes.id);
  if (session == nullptr || session->ended()) return attributes;
  const Attributes now = session->attributes();
  attributes.size_bytes = now.size_bytes;
  if (session->content().dirty()) {
    attributes.mtime_ns = now.mtime_ns;
    attributes.ctime_ns = now.ctime_ns;
  }
  return attributes;
}

void BlockingNames::remember(FileId parent, std::string_view name, const Attributes& attributes) {
  const Lock lock(engine_->shared().mutex);
  engine_->metadata().put(parent, name, attributes);
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
  const Lock lock(engine_->shared().mutex);
  engine_->metadata().forget_entry(parent, name);
  if (file) engine_->metadata().forget_file(file);
}

Result<Attributes> BlockingNames::lookup(FileId parent, std::string_view name) {
  std::optional<MetadataCache::Known> known;
  {
    const Lock lock(engine_->shared().mutex);
    known = engine_->metadata().entry(parent, name);
    if (known.has_value()) look_ahead_.hit(parent);
  }
  if (!known.has_value()) {
    auto found = lookup_fresh(parent, name);
    if (found.has_value()) look_ahead(parent, name);
    return found;
  }
  if (!known->attributes.has_value()) return fail(Code::kNotFound, "client.lookup");
  return seen(*known->attributes);
}

/// Fetches into the cache the names that a scan of the directory looks up next. Does not wait.
void BlockingNames::look_ahead(FileId directory, std::string_view after) {
  const Lock lock(engine_->shared().mutex);
  if (!look_ahead_.missed(directory, clock_.now())) return;
  msg::ReadDirectory request{engine_->client(), directory, std::string(after)};
  engine_->call(std::move(request), [this, directory](rpc::Answer answer) {
    if (!answer.has_value()) return;
    auto* reply = std::get_if<msg::ReadDirectory::Reply>(&*answer);
    if (reply == nullptr) return;
    const Lock inner(engine_->shared().mutex);
    for (const msg::DirectoryEntry& entry : reply->entries) {
      engine_->metadata().put(directory, entry.name, entry.attributes);
      note_name(entry.attributes.id, entry.name);
    }
  });
}

Result<Attributes> BlockingNames::lookup_fresh(FileId parent, std::string_view name) {
  STDCHK_TRY(check_name(name));
  auto reply = ask_for(msg::Lookup{{}, parent, std::string(name)});
  if (reply.has_value()) {
    remember(parent, name, reply->attributes);
    return seen(reply->attributes);
  }
  if (reply.error().code == Code::kNotFound) {
    const Lock lock(engine_->shared().mutex);
    engine_->metadata().put_negative(parent, name);
  }
  return fail(reply.error());
}

Result<Attributes> BlockingNames::attributes(FileId file) {
  std::optional<Attributes> known;
  {
    const Lock lock(engine_->shared().mutex);
    known = engine_->metadata().attributes(file);
  }
  if (known.has_value()) return seen(*known);
  STDCHK_ASSIGN(const auto reply, ask_for(msg::GetAttributes{{}, file}));
  {
    const Lock lock(engine_->shared().mutex);
    engine_->metadata().put(reply.attributes);
  }
  return seen(reply.attributes);
}

Result<Attributes> BlockingNames::attributes_fresh(FileId file) {
  STDCHK_ASSIGN(const auto reply, ask_for(msg::GetAttributes{{}, file}));
  const Lock lock(engine_->shared().mutex);
  engine_->metadata().forget_file(file);
  engine_->metadata().put(reply.attributes);
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
  std::vector<msg::DirectoryEntry> entries;
  bool cached = false;
  {
    const Lock lock(engine_->shared().mutex);
    if (const auto* listing = engine_->metadata().listing(directory)) {
      cached = true;
      for (const msg::DirectoryEntry& entry : *listing) {
        // An entry whose attributes are no longer cached makes the whole listing stale: ask for all
        // of it.
        const auto known = engine_->metadata().attributes(entry.attributes.id);
        if (!(cached = known.has_value())) break;
        entries.push_back({entry.name, *known});
      }
      if (!cached) entries.clear();
    }
  }
  if (!cached) {
    std::string after;
    for (bool more = true; more;) {
      STDCHK_ASSIGN(auto reply, ask_for(msg::ReadDirectory{{}, directory, after}));
      if (reply.more && reply.entries.empty()) return fail(Code::kMalformed, "client.readdir");
      more = reply.more;
      if (!reply.entries.empty()) after = reply.entries.back().name;
      std::move(reply.entries.begin(), reply.entries.end(), std::back_inserter(entries));
    }
    const Lock lock(engine_->shared().mutex);
    engine_->metadata().put_listing(directory, entries);
    for (const auto& entry : entries) note_name(entry.attributes.id, entry.name);
  }
  for (msg::DirectoryEntry& entry : entries) entry.attributes = seen(entry.attributes);
  return entries;
}

Result<Attributes> BlockingNames::set_attributes(const msg::SetAttributes& change) {
  STDCHK_ASSIGN(const auto reply, ask_for(change));
  {
    const Lock lock(engine_->shared().mutex);
    engine_->metadata().put(reply.attributes);
  }
  return seen(reply.attributes);
}

/// Drops a negative cache entry for the name, and caches the attributes of the new file or folder.
template <class Reply>
Result<Attributes> BlockingNames::made(FileId parent, std::string_view name,
                                       const Result<Reply>& reply) {
  forget(parent, name, FileId{});
  if (!reply.has_value()) return fail(reply.error());
  remember(parent, name, reply->attributes);
  return reply->attributes;
}

Result<Attributes> BlockingNames::make_directory(FileId parent, std::string_view name,
                                                 Owner owner) {
  STDCHK_TRY(check_name(name));
  return made(
      parent, name,
      ask_for(msg::MakeDirectory{{}, parent, std::string(name), owner.mode, owner.uid, owner.gid}));
}

Result<Attributes> BlockingNames::make_symlink(FileId parent, std::string_view name,
                                               std::string_view target, Owner owner) {
  STDCHK_TRY(check_name(name));
  return made(parent, name,
              ask_for(msg::MakeSymlink{
                  {}, parent, std::string(name), std::string(target), owner.uid, owner.gid}));
}

Result<std::string> BlockingNames::read_symlink(FileId file) {
  STDCHK_ASSIGN(auto reply, ask_for(msg::ReadSymlink{file}));
  return std::move(reply.target);
}

Result<Attributes> BlockingNames::make_node(FileId parent, std::string_view name, FileType type,
                                            Owner owner, std::uint32_t device) {
  STDCHK_TRY(check_name(name));
  return made(parent, name,
              ask_for(msg::MakeNode{
                  {}, parent, std::string(name), type, owner.mode, owner.uid, owner.gid, device}));
}

Result<Attributes> BlockingNames::make_link(FileId file, FileId parent, std::string_view name) {
  STDCHK_TRY(check_name(name));
  return made(parent, name, ask_for(msg::MakeLink{{}, file, parent, std::string(name)}));
}

/// After a repeated call, the manager's answer does not name the file: the caller must ask.
Result<std::uint32_t> BlockingNames::remove(FileId parent, std::string_view name, bool directory) {
  STDCHK_TRY(check_name(name));
  auto reply = ask_for(msg::Remove{{}, parent, std::string(name), directory});
  if (!reply.has_value() || !reply->directory.id) {
    forget(parent, name, reply.has_value() ? reply->file : FileId{});
    if (!reply.has_value()) return fail(reply.error());
    return reply->file ? reply->names_left : 1;
  }
  const Lock lock(engine_->shared().mutex);
  engine_->metadata().forget_name(parent, name);
  engine_->metadata().forget_file(reply->file);
  engine_->metadata().put(reply->directory);
  return reply->names_left;
}

Result<std::uint32_t> BlockingNames::rename(const msg::Rename& change) {
  STDCHK_TRY(check_name(change.from_name));
  STDCHK_TRY(check_name(change.to_name));
  auto reply = ask_for(change);
  forget(change.from_parent, change.from_name, reply.has_value() ? reply->moved : FileId{});
  forget(change.to_parent, change.to_name, reply.has_value() ? reply->replaced : FileId{});
  if (!reply.has_value()) return fail(reply.error());
  return reply->replaced ? reply->names_left : 1;
}

Status BlockingNames::set_xattr(const msg::SetXattr& change) {
  auto reply = ask_for(change);
  if (!reply.has_value()) return fail(reply.error());
  const Lock lock(engine_->shared().mutex);
  engine_->metadata().forget_file(change.file);
  return {};
}

Result<std::vector<std::pair<std::string, std::string>>> BlockingNames::xattrs(FileId file) {
  STDCHK_ASSIGN(auto reply, ask_for(msg::GetXattrs{file}));
  return std::move(reply.attributes);
}

Result<msg::GetPolicy::Reply> BlockingNames::policy(FileId file) {
  return ask_for(msg::GetPolicy{file});
}

Status BlockingNames::set_policy(FileId directory, const Policy& changes) {
  auto reply = ask_for(msg::SetPolicy{{}, directory, changes});
  if (!reply.has_value()) return fail(reply.error());
  const Lock lock(engine_->shared().mutex);
  engine_->metadata().forget_file(directory);
  return {};
}

Result<msg::ListSets::Reply> BlockingNames::sets(FileId directory) {
  return ask_for(msg::ListSets{directory});
}

Result<msg::GetDebt::Reply> BlockingNames::debt(FileId file, Version version) {
  return ask_for(msg::GetDebt{file, version});
}

Result<msg::StatPool::Reply> BlockingNames::stat_pool() { return ask_for(msg::StatPool{}); }

Result<std::pair<Attributes, ChunkMap>> BlockingNames::map(FileId file) {
  Lock lock(engine_->shared().mutex);
  VersionMapPtr map = engine_->maps().open(file);
  const Status loaded = wait(lock, deadline(), [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    if (map->error.has_value()) return fail(*map->error);
    if (map->complete) return {};
    engine_->maps().load_next(map);
    return fail(Code::kWouldBlock, "client.map");
  });
  STDCHK_TRY(loaded);
  return std::pair(map->attributes, map->map.unpacked());
}

Result<std::vector<msg::BenefactorInfo>> BlockingNames::benefactors() {
  STDCHK_ASSIGN(auto reply, ask_for(msg::ListBenefactors{}));
  return std::move(reply.benefactors);
}

Result<msg::DrainNow::Reply> BlockingNames::drain(FileId below) {
  return ask_for(msg::DrainNow{below});
}

Status BlockingNames::wait_redundant(FileId file, Version version) {
  std::uint64_t least = ~std::uint64_t{0};
  Time until = deadline();
  for (auto pause = 5ms;; pause = std::min(2 * pause, 200ms)) {
    const auto debt = ask_for(msg::GetDebt{file, version});
    // A newer version has replaced this one, and its own close waits for its copies.
    if (!debt && debt.error().code == Code::kStale) return {};
    if (!debt) return fail(debt.error());
    if (debt->chunks == 0) return {};
    if (debt->impossible) return fail(Code::kNoSpace, "client.copies: too few benefactors");
    if (debt->bytes < least) until = deadline();
    least = std::min(least, debt->bytes);
    if (clock_.now() >= until) return fail(Code::kDeadline, "client.copies");
    std::this_thread::sleep_for(pause);
  }
}

Result<std::vector<msg::ListAborted::Entry>> BlockingNames::aborted() {
  STDCHK_ASSIGN(auto reply, ask_for(msg::ListAborted{}));
  return std::move(reply.entries);
}

}  // namespace stdchk::client
