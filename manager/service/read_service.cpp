#include "manager/service/read_service.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::manager {
namespace {

/// The most users of a file that are looked at to find out whether several hosts read it.
constexpr std::size_t kUsersMax = 64;

}  // namespace

ReadService::ReadService(Pool& pool, Neighbours neighbours)
    : pool_(pool), state_(pool.state()), to_(neighbours) {}

void ReadService::serve(ClientRecord& client, const msg::GetMap& request, const Call& call) {
  const File* file = state_.file(request.file);
  const VersionData* version = state_.version(request.file, request.version);
  if (file == nullptr || version == nullptr) return call.fail(Code::kStale, "get map");
  if (file->type != FileType::kRegular) return call.fail(Code::kInvalidArgument, "get map");
  if (client.pins.emplace(file->id, version->version).second) {
    if (!pool_.pin(file->id, version->version)) return call.fail(Code::kStale, "get map");
    to_.notices.use(file->id, client.id);
  }
  to_.notices.watch(file->parent, client.id);
  msg::GetMap::Reply reply;
  reply.shared = is_shared({file->id, version->version});
  const std::optional<std::string> drained = to_.drain.drained_path(*file, *version);
  reply.attributes = to_.attributes.of(*file, *version);
  reply.slice_count = version->slices.size();
  if (request.first_slice < reply.slice_count) {
    reply.page =
        state_.contents().map_page(*version, request.first_slice, limits::kMapPageSlicesMax);
  }
  // A chunk without copies was evicted: its bytes are in the drained file, at the same offset. This
  // holds for older versions that were set aside, too. A chunk of an undrained version keeps its
  // dead copies: the drained file does not have its bytes.
  bool evicted = false;
  for (Chunk& chunk : reply.page.chunks) {
    const auto dead = [&](const Extent& copy) { return !pool_.is_readable(copy); };
    const bool any = !std::all_of(chunk.copies.begin(), chunk.copies.end(), dead);
    // If a copy is left, even a dead one, the reader asks for the chunk's stripe.
    if (any || (version->drained && !has_stripe(chunk))) std::erase_if(chunk.copies, dead);
    std::stable_partition(chunk.copies.begin(), chunk.copies.end(), [&](const Extent& copy) {
      return pool_.peer_of(copy.benefactor) != nullptr;
    });
    evicted |= chunk.copies.empty();
  }
  if (evicted && !drained) {
    // Waits until the change is over: now the path could name another file.
    if (pool_.now() + limits::kHeartbeatInterval >= call.deadline()) {
      return call.fail(Code::kBusy, "get map");
    }
    waiting_maps_.push_back({client.id, request, call});
    return;
  }
  if (evicted || version->drained) reply.drained_path = drained.value_or("");
  call.answer(std::move(reply));
}

/// Returns true when readers on so many hosts with benefactors have the version open.
bool ReadService::is_read_on(const NearCopies::Key& key, std::size_t hosts) const {
  std::set<BenefactorId> targets;
  return to_.notices.any_user(key.file, kUsersMax, [&](ClientId id) {
    const auto client = to_.clients.find(id);
    if (client == to_.clients.end() || !client->second.pins.contains({key.file, key.version})) {
      return false;
    }
    const auto target = to_.near.benefactor_on(client->second.host_token);
    if (target) targets.insert(*target);
    return targets.size() >= hosts;
  });
}

/// Returns true when readers on several hosts have the version open. Tells them the first time.
bool ReadService::is_shared(const NearCopies::Key& key) {
  if (to_.near.is_shared(key)) return true;
  if (!is_read_on(key, NearCopies::kHostsMin) || !to_.near.share(key)) return false;
  to_.notices.file_shared(key.file);
  return true;
}

void ReadService::serve(ClientRecord& client, const msg::FindNear& request, const Call& call) {
  const NearCopies::Key key{request.file, request.version};
  const VersionData* const version = client.pins.contains({key.file, key.version})
                                         ? state_.version(key.file, key.version)
                                         : nullptr;
  const auto target = to_.near.benefactor_on(client.host_token);
  msg::FindNear::Reply none;
  none.alone = version == nullptr || !target || !is_shared(key);
  if (none.alone) return call.answer(none);
  const auto slice = std::ranges::partition_point(
      version->slices, [&](const PackedSlice& each) { return each.end() <= request.offset; });
  if (slice == version->slices.end() || slice->file_offset > request.offset) {
    return call.answer(none);
  }
  to_.near.find(key, {slice->chunk, request.offset, *target},
                [call](const std::optional<Extent>& at) {
                  msg::FindNear::Reply reply;
                  if (at) reply.benefactor = at->benefactor;
                  if (at) reply.offset = at->offset;
                  call.answer(std::move(reply));
                });
}

bool ReadService::has_stripe(const Chunk& chunk) const {
  const ChunkIndex found = state_.contents().find_member(chunk);
  return found != kNoChunk && pool_.is_reconstructible(found);
}

void ReadService::serve(ClientRecord&, const msg::GetStripe& request, const Call& call) {
  msg::GetStripe::Reply reply;
  const ChunkIndex chunk =
      state_.contents().find_member(Chunk{request.name, request.length, 0, {request.at}});
  const Stripe* const stripe = chunk == kNoChunk ? nullptr : state_.stripes().of(chunk);
  if (stripe == nullptr) return call.answer(reply);
  reply.data = stripe->data;
  reply.parity = stripe->parity();
  reply.number = static_cast<std::uint32_t>(stripe->number_of(chunk));
  for (std::uint32_t i = 0; i < stripe->members.size(); ++i) {
    const Chunk member = state_.chunks().get(stripe->members[i]);
    const auto there =
        std::find_if(member.copies.begin(), member.copies.end(), [&](const Extent& copy) {
          return pool_.is_readable(copy) && pool_.peer_of(copy.benefactor) != nullptr;
        });
    if (i == reply.number || there == member.copies.end()) continue;
    reply.blocks.push_back({i, member.length, *there});
  }
  call.answer(std::move(reply));
}

/// Retries requests that wait for the drain directory.
void ReadService::retry() {
  std::deque<WaitingConfirm> confirms;
  confirms.swap(waiting_confirms_);
  for (const WaitingConfirm& one : confirms) confirm(one.request, one.call);
  std::deque<WaitingMap> waiting;
  waiting.swap(waiting_maps_);
  for (const WaitingMap& one : waiting) {
    const auto client = to_.clients.find(one.client);
    if (client == to_.clients.end()) {
      one.call.fail(Code::kFenced, "get map");
    } else {
      serve(client->second, one.request, one.call);
    }
  }
}

/// The benefactor's own check decides. A chunk that has moved since was read
/// at its old place: ignored.
void ReadService::serve(ClientRecord&, const msg::ReportWrongCopy& request, const Call& call) {
  const VersionData* version = state_.version(request.file, request.version);
  if (version != nullptr) {
    for (const PackedSlice& slice : version->slices) {
      const auto copies = state_.chunks().get(slice.chunk).copies;
      if (std::find(copies.begin(), copies.end(), request.at) == copies.end()) continue;
      to_.scrubber.queue_suspected(slice.chunk, request.at);
      break;
    }
  }
  call.answer(msg::ReportWrongCopy::Reply{});
}

void ReadService::serve(ClientRecord& client, const msg::Unpin& request, const Call& call) {
  if (client.pins.erase({request.file, request.version}) > 0) {
    to_.notices.unuse(request.file, client.id);
    pool_.unpin(request.file, request.version);
    const NearCopies::Key key{request.file, request.version};
    // A reader alone reads faster from the stored copies.
    if (to_.near.is_shared(key) && !is_read_on(key, NearCopies::kHostsKept)) to_.near.end(key);
  }
  // The client's writers do not compare with that version any more.
  for (const auto& [file, id] : client.sessions) {
    SessionRecord& session = to_.sessions.at(id);
    if (session.similar.file != request.file || session.similar.version != request.version)
      continue;
    session.similar.file = {};
    pool_.unpin(request.file, request.version);
  }
  call.answer(msg::Unpin::Reply{});
}

void ReadService::serve(ClientRecord&, const msg::ConfirmDrained& request, const Call& call) {
  confirm(request, call);
}

/// Checks the files in the drain directory, after changes of their names there have ended.
void ReadService::confirm(const msg::ConfirmDrained& request, const Call& call) {
  const auto moves = [this](FileId id) {
    const File* file = state_.file(id);
    return file != nullptr && file->parent && file->newest.drained && to_.drain.moves(*file);
  };
  if (std::ranges::any_of(request.files, moves)) {
    if (pool_.now() + limits::kHeartbeatInterval >= call.deadline()) {
      return call.fail(Code::kBusy, "confirm drained: a change of names in the drain directory");
    }
    waiting_confirms_.push_back({request, call});
    return;
  }
  const auto unknown = request.compares_evicted ? DrainChecks::Unknown::kIsCompared
                                                : DrainChecks::Unknown::kIsComparedInMemory;
  to_.drain_checks.look_up(request.files, unknown, call.deadline(),
                           [request, call](const Result<DrainChecks::Found>& found) {
                             if (!found) return call.fail(found.error());
                             msg::ConfirmDrained::Reply reply;
                             for (std::uint32_t i = 0; i < request.files.size(); ++i) {
                               if (found->missing.count(request.files[i]) > 0) {
                                 reply.missing.push_back(i);
                               } else if (found->there.count(request.files[i]) == 0) {
                                 reply.undrained.push_back(i);
                               }
                             }
                             call.answer(std::move(reply));
                           });
}

}  // namespace stdchk::manager
