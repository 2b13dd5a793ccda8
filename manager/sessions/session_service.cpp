#include "manager/sessions/session_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/limits.h"
#include "core/policy/image_name.h"
#include "core/policy/image_placement.h"
#include "manager/drain/drainable_name.h"
#include "manager/sessions/lease_terms.h"
#include "manager/sessions/session_number.h"
#include "manager/state/access_lists.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kAbortedKept = 1000;

}  // namespace

SessionService::SessionService(Pool& pool, Neighbours neighbours)
    : pool_(pool), state_(pool.soft_state()), to_(neighbours) {}

Result<const File*> SessionService::file_to_open(ClientRecord& client,
                                                 const msg::OpenSession& request, bool& created) {
  if (!request.parent) {
    const File* file = state_.file(request.file);
    if (file == nullptr) return fail(Code::kStale, "open");
    return file;
  }
  if (request.unnamed) {
    created = true;
    return make_unnamed(request);
  }
  const auto seen = state_.lookup(request.parent, request.name, client.id);
  if (seen) {
    if (request.exclusive) return fail(Code::kExists, "open");
    return *seen;
  }
  STDCHK_ASSIGN(const File* directory, state_.directory(request.parent));
  if (!directory->parent) return fail(Code::kNotFound, "open");
  const auto others = directory->as_directory.pending_children.find(request.name);
  if (others != directory->as_directory.pending_children.end()) {
    if (request.exclusive) return fail(Code::kExists, "open");
    state_.pending().join(others->second, client.id);
    return state_.file(others->second);
  }
  STDCHK_TRY(check_drainable(pool_, request.parent, request.name));
  if (request.number) {
    if (!client.was(state_.name_leases().client(request.parent))) {
      return fail(Code::kStale, "open");
    }
    STDCHK_TRY(check_number(pool_, client, request.number));
  }
  created = true;
  const std::int64_t wall = pool_.wall_ns();
  return state_.pending().make(request.number ? request.number : FileId{pool_.next_id()},
                               NewName{request.parent,
                                       request.name,
                                       mode_for_new(*directory, request.mode, request.unmasked),
                                       request.uid,
                                       request.gid,
                                       wall,
                                       {}},
                               client.id, wall);
}

/// Makes the file of an O_TMPFILE. Only its session keeps it, until MakeLink gives it a name.
Result<const File*> SessionService::make_unnamed(const msg::OpenSession& request) {
  STDCHK_ASSIGN(const File* directory, state_.directory(request.parent));
  if (!directory->parent) return fail(Code::kNotFound, "open");
  const FileId id{pool_.next_id()};
  const std::uint32_t mode = mode_for_new(*directory, request.mode, request.unmasked);
  const std::int64_t wall = pool_.wall_ns();
  state_.pending().make_unnamed(
      id, NewName{request.parent, {}, mode, request.uid, request.gid, wall, {}}, wall);
  return state_.file(id);
}

/// Returns true when all chunks of the version have the session's home. The session may refer to
/// such a version's chunks.
bool SessionService::shares_chunks(const VersionData& version, const SessionRecord& session) const {
  const ChunkTable& chunks = state_.chunks();
  if (!chunks.has_homes()) return !session.stripe.home;
  return std::ranges::all_of(version.slices, [&](const PackedSlice& slice) {
    return chunks.home(slice.chunk) == session.stripe.home;
  });
}

/// Pins a similar image: of the same series, the highest timestep below this
/// one, or else the highest.
void SessionService::find_similar(const File& file, SessionRecord& session) {
  const std::string& name = file.parent ? file.name : file.pending ? file.pending->name : file.name;
  const FileId parent = file.parent ? file.parent : file.pending ? file.pending->parent : FileId{};
  const auto directory = state_.directory(parent);
  const SetNaming* const naming = directory ? state_.set_names().naming(**directory) : nullptr;
  const auto image = naming == nullptr ? std::nullopt : naming->parse(name);
  if (!image) return;
  const std::string prefix(naming->until_timestep(name));
  const File* best = nullptr;
  std::uint64_t best_step = 0;
  for (auto child = (*directory)->as_directory.children.lower_bound(prefix);
       child != (*directory)->as_directory.children.end() &&
       child->first.compare(0, prefix.size(), prefix) == 0;
       ++child) {
    const auto other = naming->parse(child->first);
    const File* candidate = state_.file(child->second);
    if (!other || other->node != image->node || candidate->id == file.id ||
        candidate->type != FileType::kRegular || candidate->newest.slices.empty() ||
        candidate->newest.evicted) {
      continue;
    }
    const bool below = other->timestep < image->timestep;
    const bool best_below = best != nullptr && best_step < image->timestep;
    if (best == nullptr || (below && !best_below) ||
        (below == best_below && other->timestep > best_step)) {
      best = candidate;
      best_step = other->timestep;
    }
  }
  if (best == nullptr || !shares_chunks(best->newest, session)) return;
  if (!state_.pin(best->id, best->newest.version)) return;
  session.similar.file = best->id;
  session.similar.version = best->newest.version;
}

/// The folder's setting takes precedence over the mount's, and the mount's over the pool's.
std::uint32_t SessionService::copies_of(const File& file, std::uint32_t asked) const {
  const auto folder = state_.files().policy(file).find(PolicyKey::kCopies);
  const std::uint64_t pool =
      pool_.config().policy.find(PolicyKey::kCopies).value_or(pool_.config().pool.copies);
  const std::uint64_t number = folder.value_or(asked > 0 ? asked : pool);
  return redundancy_of(number).value_or(Redundancy{}).number();
}

/// A client that waits for all copies writes them itself: then they exist before the commit.
std::uint32_t SessionService::places_of(const File& file, std::uint32_t copies, bool waits) const {
  const Redundancy wanted = redundancy_of(copies).value_or(Redundancy{});
  const bool at_once = waits || pool_.policy(file).commit() == CommitLevel::kRedundant;
  return at_once && !wanted.has_parity() ? std::max(wanted.copies, 1U) : 1;
}

void SessionService::serve(ClientRecord& client, const msg::OpenSession& request,
                           const Call& call) {
  if (request.parent) to_.notices.watch(request.parent, client.id);
  bool created = false;
  const auto opened = file_to_open(client, request, created);
  if (!opened) return call.fail(opened.error());
  const File& file = **opened;
  if (file.type == FileType::kDirectory) return call.fail(Code::kIsDirectory, "open");
  if (file.type != FileType::kRegular) return call.fail(Code::kExists, "open");
  SessionId id;
  do {
    id = session_number(pool_.config().membership, client, pool_.next_id());
  } while (to_.sessions.contains(id));
  SessionRecord& session = begin(client, id, file, request.copies, request.waits_for_copies);
  // A file without a version has nothing to truncate: what others commit meanwhile stays.
  session.truncate = request.truncate && file.newest.version > 0;
  session.opened = state_.sequence();
  to_.rewrites.begin(session, file);
  if (file.newest.version > 0 && state_.pin(file.id, file.newest.version)) {
    session.base = file.newest.version;
  }
  to_.placement.settle_home(session);
  find_similar(file, session);
  msg::OpenSession::Reply reply;
  reply.session = id;
  reply.created = created;
  reply.attributes = to_.attributes.of(file);
  // `want_bytes` is for one place of each chunk: the client does not know the number of places yet.
  if (request.want_bytes > 0)
    reply.grants = to_.placement.grants(session, {request.want_bytes * session.places});
  reply.similar_file = session.similar.file;
  reply.similar_version = session.similar.version;
  reply.policy = pool_.policy(file);
  reply.opened = session.opened;
  reply.places = session.places;
  call.answer(std::move(reply));
}

SessionRecord* SessionService::find(const ClientRecord& client, SessionId id, const Call& call) {
  SessionRecord* const found = to_.sessions.find(id);
  if (found != nullptr && found->client == client.id) return found;
  call.fail(Code::kFenced, "manager.session");
  return nullptr;
}

void SessionService::serve(ClientRecord& client, const msg::Place& request, const Call& call) {
  SessionRecord* session = find(client, request.session, call);
  if (session == nullptr) return;
  if (request.chunks.size() > limits::kPlaceBatchMax) {
    return call.fail(Code::kInvalidArgument, "place");
  }
  to_.placement.place(*session, request, call);
}

void SessionService::serve(ClientRecord& client, const msg::CloseSession& request,
                           const Call& call) {
  SessionRecord* session = find(client, request.session, call);
  if (session == nullptr) return;
  if (request.aborted) {
    const File* file = state_.file(session->file);
    aborted_.push_back(
        {state_.path(*file), request.aborted_bytes, pool_.wall_ns(), client.host_name});
    if (aborted_.size() > kAbortedKept) aborted_.pop_front();
    to_.rewrites.end_generation(*session);
  }
  const bool is_last = to_.sessions.count_of(session->file) == 1;
  const bool journalled = !request.aborted && is_last && to_.rewrites.closed(*session);
  end(request.session, !request.writes_in_flight);
  if (!journalled) return call.answer(msg::CloseSession::Reply{});
  pool_.journal().when_durable([call] { call.answer(msg::CloseSession::Reply{}); });
}

void SessionService::end(SessionId id, bool clean) {
  if (!to_.sessions.contains(id)) return;
  SessionRecord session = to_.sessions.end(id);
  to_.rewrites.end(session);
  to_.totals.end_shortage(session);
  while (!session.grants.empty())
    to_.placement.give_back(session, session.grants.begin()->first, clean);
  for (const ChunkIndex held : session.holds) state_.release(held);
  if (session.base != 0) state_.unpin(session.file, session.base);
  if (session.similar.file) state_.unpin(session.similar.file, session.similar.version);
  const auto client = to_.clients.find(session.client);
  if (client != to_.clients.end()) client->second.sessions.erase({session.file, id});
  // A client that gave the file up no longer sees its pending name, even while others write it.
  const bool writes = client != to_.clients.end() && client->second.writes(session.file);
  if (!writes) state_.pending().leave(session.file, session.client);
  to_.notices.unuse(session.file, session.client);
  state_.unkeep(session.file);
  pool_.journal().settle_freed();
  to_.placement.retry();
}

void SessionService::serve(ClientRecord&, const msg::ListAborted&, const Call& call) {
  msg::ListAborted::Reply reply;
  std::size_t bytes = 0;
  for (auto entry = aborted_.rbegin(); entry != aborted_.rend(); ++entry) {
    bytes += entry->path.size() + entry->host_name.size() + 64;
    if (bytes > limits::kMessageBytesMax / 2) break;
    reply.entries.push_back(*entry);
  }
  call.answer(std::move(reply));
}

SessionRecord& SessionService::begin(ClientRecord& client, SessionId id, const File& file,
                                     std::uint32_t asked_copies, bool waits_for_copies) {
  SessionRecord& session = to_.sessions.begin(id, client.id, file.id);
  session.copies = copies_of(file, asked_copies);
  session.places = places_of(file, session.copies, waits_for_copies);
  const Policy policy = pool_.policy(file);
  session.proof = policy.proof();
  // Parity needs the chunks on different nodes: a mount may ask for it by --copies.
  const bool has_parity = redundancy_of(session.copies).value_or(Redundancy{}).has_parity();
  if (placement_of(policy) == ImagePlacement::kNode && !has_parity) {
    session.stripe.node = pool_.domains().node_of(client.host_name, client.host_token);
  }
  state_.keep(file.id);
  to_.notices.use(file.id, client.id);
  client.sessions.emplace(file.id, id);
  return session;
}

void SessionService::give_up(SessionId id, bool clean) {
  to_.rewrites.end_generation(to_.sessions.at(id));
  end(id, clean);
}

}  // namespace stdchk::manager
