// Sessions: opening, space for their chunks, reading, ending.
#include <algorithm>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/policy/image_name.h"
#include "manager/drain/drain_planner.h"
#include "manager/pool/sets.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/parity_planner.h"
#include "manager/replication/scrubber.h"
#include "manager/service/service.h"
#include "manager/space/compactor.h"
#include "manager/space/evictor.h"
#include "manager/space/garbage_collector.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kAbortedKept = 1000;

}  // namespace

// ---- opening ----------------------------------------------------------------------------------

Result<const File*> Service::file_to_open(ClientRecord& client, const msg::OpenSession& request,
                                          bool& created) {
  if (!request.parent) {
    const File* file = state_.file(request.file);
    if (file == nullptr) return fail(Code::kStale, "open");
    return file;
  }
  const auto seen = state_.lookup(request.parent, request.name, client.id);
  if (seen) {
    if (request.exclusive) return fail(Code::kExists, "open");
    return *seen;
  }
  STDCHK_ASSIGN(const File* directory, state_.directory(request.parent));
  if (!directory->parent) return fail(Code::kNotFound, "open");
  const auto others = directory->pending_children.find(request.name);
  if (others != directory->pending_children.end()) {
    if (request.exclusive) return fail(Code::kExists, "open");
    state_.join_pending(others->second, client.id);
    return state_.file(others->second);
  }
  created = true;
  const std::int64_t wall = reactor_.clock().wall_ns();
  return state_.make_pending(
      FileId{next_id()},
      NewName{request.parent, request.name, request.mode, request.uid, request.gid, wall, {}},
      client.id, wall);
}

/// Pins a similar image: of the same series, the highest timestep below this
/// one, or else the highest.
void Service::find_similar(const File& file, SessionRecord& session) {
  const std::string& name = file.parent ? file.name : file.pending ? file.pending->name : file.name;
  const auto image = parse_image_name(name);
  if (!image) return;
  const FileId parent = file.parent ? file.parent : file.pending->parent;
  const auto directory = state_.directory(parent);
  if (!directory) return;
  const std::string prefix = image->application + ".N" + std::to_string(image->node) + ".T";
  const File* best = nullptr;
  std::uint64_t best_step = 0;
  for (auto child = (*directory)->children.lower_bound(prefix);
       child != (*directory)->children.end() && child->first.compare(0, prefix.size(), prefix) == 0;
       ++child) {
    const auto other = parse_image_name(child->first);
    const File* candidate = state_.file(child->second);
    if (!other || candidate->id == file.id || candidate->type != FileType::kRegular ||
        candidate->newest.slices.empty() || candidate->newest.evicted) {
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
  if (best == nullptr || !state_.pin(best->id, best->newest.version)) return;
  session.similar = best->id;
  session.similar_version = best->newest.version;
}

/// The folder's setting takes precedence over the mount's, and the mount's over the pool's.
std::uint32_t Service::copies_of(const File& file, std::uint32_t asked) const {
  const auto folder = state_.policy(file).find(PolicyKey::kCopies);
  const std::uint64_t pool = config_.policy.find(PolicyKey::kCopies).value_or(config_.pool.copies);
  const std::uint64_t number = folder.value_or(asked > 0 ? asked : pool);
  return redundancy_of(number).value_or(Redundancy{}).number();
}

/// A client that waits for all copies writes them itself: then they exist before the commit.
std::uint32_t Service::places_of(const File& file, std::uint32_t copies, bool waits) const {
  const Redundancy wanted = redundancy_of(copies).value_or(Redundancy{});
  const bool at_once = waits || policy(file).commit() == CommitLevel::kRedundant;
  return at_once && !wanted.has_parity() ? std::max(wanted.copies, 1U) : 1;
}

void Service::serve(ClientRecord& client, const msg::OpenSession& request, const Call& call) {
  if (request.parent) watchers_.watch(request.parent, client.id, now());
  bool created = false;
  const auto opened = file_to_open(client, request, created);
  if (!opened) return call.fail(opened.error());
  const File& file = **opened;
  if (file.type == FileType::kDirectory) return call.fail(Code::kIsDirectory, "open");
  if (file.type != FileType::kRegular) return call.fail(Code::kExists, "open");
  const SessionId id{next_id()};
  SessionRecord& session = sessions_[id];
  session.id = id;
  session.client = client.id;
  session.file = file.id;
  // A file without a version has nothing to truncate: what others commit meanwhile stays.
  session.truncate = request.truncate && file.newest.version > 0;
  session.opened = state_.sequence();
  session.copies = copies_of(file, request.copies);
  session.places = places_of(file, session.copies, request.waits_for_copies);
  session.proof = policy(file).proof();
  note_rewriter(session, file);
  state_.keep(file.id);
  use(file.id, client.id);
  client.sessions.insert(id);
  if (file.newest.version > 0 && state_.pin(file.id, file.newest.version)) {
    session.base = file.newest.version;
  }
  find_similar(file, session);
  msg::OpenSession::Reply reply;
  reply.session = id;
  reply.created = created;
  reply.attributes = attributes(file);
  // `want_bytes` is for one place of each chunk: the client does not know the number of places yet.
  if (request.want_bytes > 0) reply.grants = grants(session, {request.want_bytes * session.places});
  reply.similar_file = session.similar;
  reply.similar_version = session.similar_version;
  reply.policy = policy(file);
  reply.opened = session.opened;
  reply.places = session.places;
  call.answer(std::move(reply));
}

/// Registers the image as being rewritten, as long as the session is open.
void Service::note_rewriter(SessionRecord& session, const File& file) {
  const auto set = set_of(file);
  if (!set || !session.truncate || file.newest.content() == 0) return;
  const auto& [folder, image] = *set;
  session.writes_again = {
      {folder, image.application, image.timestep}, file.newest.content(), session.opened};
  rewriters_.add(*session.writes_again);
}

SessionRecord* Service::session_of(const ClientRecord& client, SessionId id, const Call& call) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end() && found->second.client == client.id) return &found->second;
  call.fail(Code::kFenced, "manager.session");
  return nullptr;
}

// ---- space ------------------------------------------------------------------------------------

/// Returns the benefactors that may get grants, sorted by free bytes, the most first.
Service::Candidates Service::candidates_without(const std::vector<BenefactorId>& avoid) const {
  Candidates candidates;
  for (const auto& [id, status] : benefactors_) {
    if (status.info.state != msg::BenefactorState::kAlive || !space_.usable(id)) continue;
    if (status.leaving) continue;
    if (std::find(avoid.begin(), avoid.end(), id) != avoid.end()) continue;
    if (space_.free_bytes(id) > 0) candidates.emplace_back(space_.free_bytes(id), id);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  return candidates;
}

/// Chooses the stripe_width benefactors with most free space, except those to avoid. With parity,
/// chooses benefactors that can form stripes. With several places of a chunk, chooses sets whose
/// members may hold each other's copies.
void Service::choose_stripe(SessionRecord& session, const Wanted& wanted) {
  session.stripe.clear();
  if (!wanted.beside.empty()) {
    auto places = further_places(wanted.beside, session.places, wanted, {});
    if (!places.empty()) session.stripe.push_back({wanted.beside.front(), std::move(places)});
    return;
  }
  const Candidates candidates = candidates_without(wanted.avoid);
  if (session.places > 1) {
    session.stripe = choose_sets(session.places, candidates, wanted);
    return;
  }
  std::vector<BenefactorId> group;
  if (const auto copies = redundancy_of(session.copies); copies && copies->has_parity()) {
    group = parity_->group_of(*copies, candidates);
  }
  const bool is_of_parity = !group.empty();
  for (const auto& [bytes, id] : candidates) {
    if (is_of_parity || group.size() == config_.pool.stripe_width) break;
    group.push_back(id);
  }
  for (const BenefactorId id : group) session.stripe.push_back({id, {id}});
}

/// Chooses sets of `places` benefactors. Together they use about stripe_width benefactors, each
/// equally often. Falls back to sets with too few members when no full set exists.
std::vector<PlaceSet> Service::choose_sets(std::uint32_t places, const Candidates& candidates,
                                           const Wanted& wanted) {
  const std::size_t width = config_.pool.stripe_width;
  // With few candidates, each candidate becomes a set's first member.
  const bool all_first = candidates.size() <= width;
  const std::size_t most = all_first ? width : (width + places - 1) / places;
  std::map<BenefactorId, std::size_t> uses;
  std::set<BenefactorId> firsts;
  std::vector<PlaceSet> whole;
  std::vector<PlaceSet> small;
  while (whole.size() < most && small.size() < most && firsts.size() < candidates.size()) {
    std::optional<BenefactorId> first;
    for (const auto& [bytes, id] : candidates) {
      if (!firsts.contains(id) && (!first || uses[id] < uses[*first])) first = id;
    }
    firsts.insert(*first);
    PlaceSet set{*first, {*first}};
    const auto further = further_places(set.members, places, wanted, uses);
    set.members.insert(set.members.end(), further.begin(), further.end());
    if (set.members.size() < places) {
      small.push_back(std::move(set));
      continue;
    }
    for (const BenefactorId id : further) ++uses[id];
    uses[*first] += all_first ? 0 : 1;
    whole.push_back(std::move(set));
  }
  return whole.empty() ? small : whole;
}

/// Adds benefactors that may hold copies of what `held` has: the least used, then the most free.
std::vector<BenefactorId> Service::further_places(std::vector<BenefactorId> held,
                                                  std::uint32_t places, const Wanted& wanted,
                                                  const std::map<BenefactorId, std::size_t>& uses) {
  std::vector<BenefactorId> out;
  const auto cost = [&](BenefactorId id) {
    const auto used = uses.find(id);
    return std::make_pair(used == uses.end() ? 0 : used->second, ~space_.free_bytes(id));
  };
  while (held.size() < places) {
    const auto takers =
        copies_->takers_beside(held, places, unit_of(wanted.unit_bytes), wanted.avoid);
    if (takers.empty()) break;
    out.push_back(*std::ranges::min_element(takers, {}, cost));
    held.push_back(out.back());
  }
  return out;
}

/// Returns the bytes that a session may take at once: half of the free space, divided among all
/// writers. So grants ahead of need shrink as the pool fills, and every writer still gets some.
std::uint64_t Service::fair_share(const SessionRecord& session) const {
  std::set<BenefactorId> members;
  for (const PlaceSet& set : session.stripe) {
    members.insert(set.members.begin(), set.members.end());
  }
  std::uint64_t free_bytes = 0;
  for (const BenefactorId id : members) free_bytes += space_.free_bytes(id);
  return free_bytes / (2 * (1 + writers_beside(session)));
}

/// Returns the smallest range worth a grant: the space of one chunk of the client, whose chunks may
/// be larger or smaller than the pool's.
std::uint64_t Service::unit_of(std::uint64_t unit_bytes) const {
  const std::uint64_t most = extent_bytes(limits::kChunkBytesMax);
  const std::uint64_t unit = std::min(unit_bytes, most);
  if (unit == 0) return extent_bytes(config_.pool.chunk_bytes);
  return (unit + limits::kExtentAlignment - 1) / limits::kExtentAlignment *
         limits::kExtentAlignment;
}

std::vector<Grant> Service::grants(SessionRecord& session, const Wanted& wanted) {
  std::vector<Grant> out;
  const std::uint64_t unit = unit_of(wanted.unit_bytes);
  const std::uint64_t most = limits::kGrantBytesDefault / unit * unit;
  choose_stripe(session, wanted);
  std::size_t members = 0;
  for (const PlaceSet& set : session.stripe) members += set.members.size();
  if (members == 0) return out;
  const std::uint64_t want_bytes = std::min({wanted.bytes, limits::kGrantsPerReplyMax * most,
                                             std::max(unit * session.places, fair_share(session))});
  // Whole chunks, equally many on each benefactor of the stripe.
  const std::uint64_t share = (want_bytes + members - 1) / members;
  const std::uint64_t whole = std::clamp((share + unit - 1) / unit * unit, unit, most);
  std::uint64_t left = want_bytes;
  std::size_t refused = 0;
  while (left > 0 && refused < session.stripe.size() &&
         out.size() + session.places <= limits::kGrantsPerReplyMax) {
    const PlaceSet& set = session.stripe[session.next_in_stripe++ % session.stripe.size()];
    const std::uint64_t each = (left + set.members.size() - 1) / set.members.size();
    const std::uint64_t want =
        each < unit ? each : std::min(whole, (each + unit - 1) / unit * unit);
    const std::size_t before = out.size();
    grant_set(session, set, want, unit, out);
    refused = out.size() == before ? refused + 1 : 0;
    for (std::size_t i = before; i < out.size(); ++i) left -= std::min(left, out[i].length);
  }
  if (!out.empty()) granted_last_ = now();
  return out;
}

/// Grants a range on each member of the set.
void Service::grant_set(SessionRecord& session, const PlaceSet& set, std::uint64_t want_bytes,
                        std::uint64_t unit, std::vector<Grant>& out) {
  const bool together = session.places > 1;
  const auto level = domains_.level_for(session.places);
  for (const BenefactorId id : set.members) {
    const auto range = space_.take(id, want_bytes, std::min(want_bytes, unit));
    if (!range) continue;
    const Grant grant{GrantId{next_id()},
                      id,
                      range->offset,
                      range->length,
                      together ? set.first : BenefactorId{},
                      together ? domains_.domain(id, level) : 0};
    writers_ += session.grants.empty() ? 1 : 0;
    session.grants[grant.id] = GrantRecord{grant, {}, false};
    out.push_back(grant);
  }
}

void Service::serve(ClientRecord& client, const msg::Place& request, const Call& call) {
  SessionRecord* session = session_of(client, request.session, call);
  if (session == nullptr) return;
  if (request.chunks.size() > limits::kPlaceBatchMax) {
    return call.fail(Code::kInvalidArgument, "place");
  }
  for (const GrantId returned : request.returned) give_back(*session, returned, true);
  place_when_possible(client.id, request.session, request, call);
}

void Service::place_when_possible(ClientId, SessionId id, msg::Place request, const Call& call) {
  SessionRecord& session = sessions_.at(id);
  msg::Place::Reply reply;
  if (request.want_bytes > 0) {
    reply.grants =
        grants(session, {request.want_bytes, request.unit_bytes, request.avoid, request.beside});
    if (!reply.grants.empty()) {
      end_shortage(session);
    } else if (request.beside.empty()) {
      note_shortage(session);
      if (replaced_files_.give_up()) {
        // Their space is free when the commands that replaced them are durable.
        settle_freed();
        request.returned.clear();
        waiting_.push_back({session.client, id, std::move(request), call});
        return;
      }
      // Space may come later by eviction, compaction or a fence; until then the request waits.
      if (!make_room(id, request.want_bytes, unit_of(request.unit_bytes)) ||
          now() >= call.deadline()) {
        return call.fail(Code::kNoSpace, "place");
      }
      request.returned.clear();
      waiting_.push_back({session.client, id, std::move(request), call});
      return;
    }
  }
  for (std::uint32_t i = 0; i < request.chunks.size(); ++i) {
    const auto& wanted = request.chunks[i];
    const ChunkIndex found = state_.chunks().find(wanted.name, wanted.length);
    if (found == kNoChunk) continue;
    Chunk existing = state_.chunks().get(found);
    // A chunk whose benefactors do not answer may be lost. The client still has the bytes and
    // stores them anew.
    if (!at_hand(existing.copies)) continue;
    if (session.holds.insert(found).second) state_.hold(found);
    reply.existing.push_back({i, std::move(existing)});
  }
  call.answer(std::move(reply));
}

/// Retries requests that wait for space. A request that finds none waits on, until shortly before
/// its deadline.
void Service::retry_waiting() {
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& one : waiting) {
    if (sessions_.count(one.session) == 0) {
      one.call.fail(Code::kFenced, "place");
    } else if (now() + limits::kHeartbeatInterval >= one.call.deadline()) {
      one.call.fail(Code::kNoSpace, "place");
    } else {
      place_when_possible(one.client, one.session, std::move(one.request), one.call);
    }
  }
}

/// Returns true when space may become free soon. Sources are eviction, the check before it,
/// compaction, fences, commands becoming durable, and draining a set that drain-every left out.
bool Service::make_room(SessionId asking, std::uint64_t want_bytes, std::uint64_t unit_bytes) {
  parity_->need_space();
  if (!to_free_.empty() || garbage_->gives_back()) return true;
  bool soon = resume_until_ != Time{};
  for (const auto& [key, fence] : fences_) soon |= peer_of(key.first) != nullptr;
  if (soon) return true;
  if (evict(want_bytes)) return true;
  if (compactor_->wanted(unit_bytes)) return true;
  if (sets_->want_oldest()) return true;
  // Other writers may return unused grants.
  return evictor_->is_held_up() || writers_beside(sessions_.at(asking)) > 0;
}

std::unordered_map<FileId, std::uint32_t> Service::pins_without_bytes() const {
  std::unordered_map<FileId, std::uint32_t> pins;
  for (const auto& [id, session] : sessions_) {
    if (!session.truncate || session.base == 0) continue;
    const File* file = state_.file(session.file);
    if (file != nullptr && file->newest.version == session.base) ++pins[session.file];
  }
  return pins;
}

bool Service::evict(std::uint64_t want_bytes) { return evictor_->evict(want_bytes); }

// ---- ending -----------------------------------------------------------------------------------

void Service::give_back(SessionRecord& session, GrantId id, bool clean) {
  const auto found = session.grants.find(id);
  if (found == session.grants.end()) return;
  const GrantRecord& record = found->second;
  const bool quarantine = !clean || record.tainted;
  record.for_each_unused([&](std::uint64_t offset, std::uint64_t bytes) {
    if (quarantine) {
      space_.quarantine(record.grant.benefactor, {offset, bytes}, session.client);
    } else {
      space_.give(record.grant.benefactor, {offset, bytes});
    }
  });
  session.grants.erase(found);
  writers_ -= session.grants.empty() ? 1 : 0;
}

void Service::serve(ClientRecord& client, const msg::CloseSession& request, const Call& call) {
  SessionRecord* session = session_of(client, request.session, call);
  if (session == nullptr) return;
  if (request.aborted) {
    const File* file = state_.file(session->file);
    aborted_.push_back(
        {state_.path(*file), request.aborted_bytes, reactor_.clock().wall_ns(), client.host_name});
    if (aborted_.size() > kAbortedKept) aborted_.pop_front();
    end_generation(*session);
  }
  end_session(request.session, !request.writes_in_flight);
  call.answer(msg::CloseSession::Reply{});
}

/// Returns the folder and the parts of the name, committed or pending, when the file is an image.
std::optional<std::pair<FileId, ImageName>> Service::set_of(const File& file) {
  if (!file.parent && !file.pending) return std::nullopt;
  const auto image = parse_image_name(file.parent ? file.name : file.pending->name);
  if (!image) return std::nullopt;
  return std::pair(file.parent ? file.parent : file.pending->parent, *image);
}

/// Ends the generation of the set: an image was given up half written, so this generation lacks it.
void Service::end_generation(const SessionRecord& session) {
  const auto set = set_of(*state_.file(session.file));
  if (!set) return;
  const auto& [folder, image] = *set;
  if (session.opened < state_.set_generations().ended(folder, image)) return;
  BeginGeneration command{folder, image.application, 0, 0, {}};
  command.sets.push_back({image.timestep, 0, state_.sequence() + 1});
  execute(std::move(command), [](const Result<Outcome>&) {});
}

void Service::end_session(SessionId id, bool clean) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  SessionRecord session = std::move(found->second);
  sessions_.erase(found);
  resumptions_.erase(id);
  if (session.writes_again) rewriters_.remove(*session.writes_again);
  end_shortage(session);
  while (!session.grants.empty()) give_back(session, session.grants.begin()->first, clean);
  for (const ChunkIndex held : session.holds) state_.release(held);
  if (session.base != 0) state_.unpin(session.file, session.base);
  if (session.similar) state_.unpin(session.similar, session.similar_version);
  const auto client = clients_.find(session.client);
  if (client != clients_.end()) client->second.sessions.erase(id);
  // A client that gave the file up no longer sees its pending name, even while others write it.
  const bool writes = client != clients_.end() &&
                      std::ranges::any_of(client->second.sessions, [&](SessionId other) {
                        return sessions_.at(other).file == session.file;
                      });
  if (!writes) state_.leave_pending(session.file, session.client);
  unuse(session.file, session.client);
  state_.unkeep(session.file);
  settle_freed();
  if (!waiting_.empty()) retry_waiting();
}

// ---- reading ----------------------------------------------------------------------------------

void Service::serve(ClientRecord& client, const msg::GetMap& request, const Call& call) {
  const File* file = state_.file(request.file);
  const VersionData* version = state_.version(request.file, request.version);
  if (file == nullptr || version == nullptr) return call.fail(Code::kStale, "get map");
  if (file->type != FileType::kRegular) return call.fail(Code::kInvalidArgument, "get map");
  if (client.pins.emplace(file->id, version->version).second) {
    if (!state_.pin(file->id, version->version)) return call.fail(Code::kStale, "get map");
    use(file->id, client.id);
  }
  watchers_.watch(file->parent, client.id, now());
  msg::GetMap::Reply reply;
  const std::optional<std::string> drained = drained_path(*file, *version);
  reply.attributes = attributes(*file, *version);
  reply.slice_count = version->slices.size();
  if (request.first_slice < reply.slice_count) {
    reply.page = state_.map_page(*version, request.first_slice, limits::kMapPageSlicesMax);
  }
  // A chunk without copies was evicted: its bytes are in the drained file, at the same offset. This
  // holds for older versions that were set aside, too. A chunk of an undrained version keeps its
  // dead copies: the drained file does not have its bytes.
  bool evicted = false;
  for (Chunk& chunk : reply.page.chunks) {
    const auto dead = [&](const Extent& copy) { return !live(copy); };
    const bool any = !std::all_of(chunk.copies.begin(), chunk.copies.end(), dead);
    // If a copy is left, even a dead one, the reader asks for the chunk's stripe.
    if (any || (version->drained && !has_stripe(chunk))) std::erase_if(chunk.copies, dead);
    std::stable_partition(chunk.copies.begin(), chunk.copies.end(),
                          [&](const Extent& copy) { return peer_of(copy.benefactor) != nullptr; });
    evicted |= chunk.copies.empty();
  }
  if (evicted && !drained) {
    // Waits until the change is over: now the path could name another file.
    if (now() + limits::kHeartbeatInterval >= call.deadline()) {
      return call.fail(Code::kBusy, "get map");
    }
    waiting_maps_.push_back({client.id, request, call});
    return;
  }
  if (evicted || version->drained) reply.drained_path = drained.value_or("");
  call.answer(std::move(reply));
}

bool Service::has_stripe(const Chunk& chunk) const {
  const ChunkIndex found = state_.find_member(chunk);
  return found != kNoChunk && can_be_made(found);
}

void Service::serve(ClientRecord&, const msg::GetStripe& request, const Call& call) {
  msg::GetStripe::Reply reply;
  const ChunkIndex chunk = state_.find_member(Chunk{request.name, request.length, 0, {request.at}});
  const Stripe* const stripe = chunk == kNoChunk ? nullptr : state_.stripes().of(chunk);
  if (stripe == nullptr) return call.answer(reply);
  reply.data = stripe->data;
  reply.parity = stripe->parity();
  reply.number = static_cast<std::uint32_t>(stripe->number_of(chunk));
  for (std::uint32_t i = 0; i < stripe->members.size(); ++i) {
    const Chunk member = state_.chunks().get(stripe->members[i]);
    const auto there = std::find_if(
        member.copies.begin(), member.copies.end(),
        [&](const Extent& copy) { return live(copy) && peer_of(copy.benefactor) != nullptr; });
    if (i == reply.number || there == member.copies.end()) continue;
    reply.blocks.push_back({i, member.length, *there});
  }
  call.answer(std::move(reply));
}

std::optional<std::string> Service::drained_path(const File& file,
                                                 const VersionData& version) const {
  if (version.aside != 0) {
    if (state_.mirror_queue().count(version.aside) > 0) return std::nullopt;
    return std::string(msg::kTemporaryFolder) + "/" + msg::temporary_name(file.id, version.aside);
  }
  if (!file.parent || drain_->moves(file)) return std::nullopt;
  // An older version that was not set aside and needs no drained bytes has no file under that name.
  if (&version != &file.newest && !state_.needs_drained(version)) return std::nullopt;
  return state_.path(file);
}

bool Service::moves_in_drain(const File& file) const { return drain_->moves(file); }

/// Retries requests that wait for the drain directory.
void Service::retry_maps() {
  std::deque<WaitingConfirm> confirms;
  confirms.swap(waiting_confirms_);
  for (const WaitingConfirm& one : confirms) confirm(one.request, one.call);
  std::deque<WaitingMap> waiting;
  waiting.swap(waiting_maps_);
  for (const WaitingMap& one : waiting) {
    const auto client = clients_.find(one.client);
    if (client == clients_.end()) {
      one.call.fail(Code::kFenced, "get map");
    } else {
      serve(client->second, one.request, one.call);
    }
  }
}

/// The benefactor's own check decides. A chunk that has moved since was read
/// at its old place: ignored.
void Service::serve(ClientRecord&, const msg::ReportWrongCopy& request, const Call& call) {
  const VersionData* version = state_.version(request.file, request.version);
  if (version != nullptr) {
    for (const PackedSlice& slice : version->slices) {
      const auto copies = state_.chunks().get(slice.chunk).copies;
      if (std::find(copies.begin(), copies.end(), request.at) == copies.end()) continue;
      scrubber_->suspect(slice.chunk, request.at);
      break;
    }
  }
  call.answer(msg::ReportWrongCopy::Reply{});
}

void Service::serve(ClientRecord& client, const msg::Unpin& request, const Call& call) {
  if (client.pins.erase({request.file, request.version}) > 0) {
    unuse(request.file, client.id);
    unpin(request.file, request.version);
  }
  // The client's writers do not compare with that version any more.
  for (const SessionId id : client.sessions) {
    SessionRecord& session = sessions_.at(id);
    if (session.similar != request.file || session.similar_version != request.version) continue;
    session.similar = {};
    unpin(request.file, request.version);
  }
  call.answer(msg::Unpin::Reply{});
}

}  // namespace stdchk::manager
