#include "manager/sessions/commit_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "manager/sessions/missing_copies.h"

namespace stdchk::manager {
namespace {

// Bound for a commit whose last part is missing.
constexpr std::size_t kPartSlicesMax = std::size_t{1} << 24;

/// Finds the newest grant with this extent. Space freed from an older grant may have been granted
/// to the same session again.
GrantRecord* grant_of(SessionRecord& session, const Extent& copy, std::uint64_t bytes) {
  const auto in = [&](const auto& entry) {
    return entry.second.grant.benefactor == copy.benefactor &&
           entry.second.contains(copy.offset, bytes);
  };
  const auto found = std::find_if(session.grants.rbegin(), session.grants.rend(), in);
  return found == session.grants.rend() ? nullptr : &found->second;
}

/// Moves what a session has appended, from `from` on, to the end of the newest version: others have
/// appended meanwhile, too.
void append(CommitVersion& command, std::uint64_t from, std::uint64_t end) {
  if (end <= from) return;
  const std::uint64_t distance = end - from;
  std::vector<Slice> moved;
  moved.reserve(command.written.slices.size() + 1);
  for (Slice slice : command.written.slices) {
    if (slice.file_offset < from && slice.length > from - slice.file_offset) {
      // The kernel writes whole pages: the beginning of this slice was in the file before.
      Slice before = slice;
      before.length = static_cast<std::uint32_t>(from - slice.file_offset);
      moved.push_back(before);
      slice.file_offset += before.length;
      slice.chunk_offset += before.length;
      slice.length -= before.length;
    }
    if (slice.file_offset >= from) slice.file_offset += distance;
    moved.push_back(slice);
  }
  command.written.slices = std::move(moved);
  // Behind `from` the session's own bytes moved. The others' bytes there stay.
  for (Hole& hole : command.holes) {
    if (hole.offset < from) hole.length = std::min(hole.length, from - hole.offset);
  }
  std::erase_if(command.holes, [from](const Hole& hole) { return hole.offset >= from; });
  if (command.size_bytes >= from) command.size_bytes += distance;
}

/// Returns the changes that the command makes to the copies of existing chunks,
/// one change after the other.
ChangeCopies copies_changed(const ChunkTable& chunks, const CommitVersion& command) {
  ChangeCopies out;
  for (std::size_t i = 0; i < command.written.chunks.size(); ++i) {
    const Chunk& chunk = command.written.chunks[i];
    const BenefactorId home = i < command.homes.size() ? command.homes[i] : BenefactorId{};
    const bool named = chunk.name.is_named();
    const ChunkIndex found = named ? chunks.find(chunk.name, chunk.length, home) : kNoChunk;
    if (found == kNoChunk || !chunks.has_copies(found)) continue;
    const std::vector<Extent> had = chunks.get(found).copies;
    std::vector<Extent> add = chunk.copies;
    std::erase_if(add, [&](const Extent& copy) { return std::ranges::count(had, copy) > 0; });
    std::vector<Extent> drop = had;
    std::erase_if(drop,
                  [&](const Extent& copy) { return std::ranges::count(chunk.copies, copy) > 0; });
    std::vector<Extent> now = had;
    for (std::size_t k = 0; k < std::max(add.size(), drop.size()); ++k) {
      ChangeCopies::Change change{now.front(), chunk.name, chunk.length, {}, {}};
      if (k < drop.size()) change.at = change.drop = drop[k];
      std::erase(now, change.drop);
      if (k < add.size()) now.push_back(change.add = add[k]);
      out.changes.push_back(change);
    }
  }
  return out;
}

}  // namespace

CommitService::CommitService(Pool& pool, Neighbours neighbours)
    : pool_(pool), state_(pool.soft_state()), to_(neighbours) {}

/// Finds the pool's chunk for a chunk with a name. `own`: it lies in a grant of this session.
/// Otherwise the session refers to a chunk that the manager has shown it. Such a chunk may have
/// another home, if the session has got a new home since.
ChunkIndex CommitService::find(const SessionRecord& session, const Chunk& chunk, bool own) const {
  const ChunkTable& chunks = state_.chunks();
  const ChunkIndex found = chunks.find(chunk.name, chunk.length, session.stripe.home);
  if (own || !chunks.has_homes()) return found;
  if (found != kNoChunk && pool_.is_readable(found)) return found;
  const ChunkIndex there = chunks.find_at(chunk.name, chunk.length, chunk.copies.front());
  if (there != kNoChunk) return there;
  const auto all = chunks.find_all(chunk.name, chunk.length);
  const auto readable =
      std::ranges::find_if(all, [this](ChunkIndex each) { return pool_.is_readable(each); });
  return readable == all.end() ? found : *readable;
}

/// Enforces rule M1: the chunk lies in a grant of this session, or the pool has it. A named chunk
/// that the pool has takes the pool's copies: other clients may have written it meanwhile. If no
/// benefactor of these copies answers, the session's own extents come first.
Status CommitService::resolve_chunk(SessionRecord& session, Chunk& chunk, BenefactorId& home,
                                    const std::map<Extent, std::uint32_t>& of_file,
                                    Carved& carved) {
  if (chunk.length == 0 || chunk.length > limits::kChunkBytesMax || chunk.copies.empty()) {
    return fail(Code::kInvalidArgument, "commit");
  }
  drop_missing(pool_, session, chunk.copies);
  const std::uint64_t bytes = extent_bytes(chunk.length);
  std::vector<Extent> silent;
  home = session.stripe.home;
  if (chunk.name.is_named()) {
    const Extent& stored = chunk.copies.front();
    const bool own = grant_of(session, stored, bytes) != nullptr;
    const ChunkIndex found = find(session, chunk, own);
    if (found != kNoChunk && pool_.is_readable(found)) {
      Chunk had = state_.chunks().get(found);
      // The pool's copy may be this session's own from an earlier commit.
      const bool known =
          std::find(had.copies.begin(), had.copies.end(), stored) != had.copies.end();
      if (known || pool_.is_reachable(had.copies) || !own) {
        chunk = std::move(had);
        home = state_.chunks().home(found);
        return {};
      }
      silent = std::move(had.copies);
    }
  } else if (const auto had = of_file.find(chunk.copies.front()); had != of_file.end()) {
    // The extent is as long as it was written: a longer chunk would show its neighbour's bytes.
    return had->second == chunk.length ? Status{} : fail(Code::kInvalidArgument, "commit");
  }
  for (const Extent& copy : chunk.copies) {
    if (!pool_.is_readable(copy) || session.missing.contains(copy))
      return fail(Code::kDataLost, "commit");
    GrantRecord* in = grant_of(session, copy, bytes);
    if (in == nullptr || copy.offset % limits::kExtentAlignment != 0 ||
        in->overlaps_used(copy.offset, bytes)) {
      return fail(Code::kInvalidArgument, "commit");
    }
    // Marked now so that two chunks of one commit cannot overlap; undone when the commit fails.
    in->used[copy.offset] = bytes;
    carved.push_back({in, {copy.offset, bytes}});
  }
  for (const Extent& copy : silent) {
    const auto same = [&](const Extent& own) { return own.benefactor == copy.benefactor; };
    if (chunk.copies.size() < limits::kCopiesMax &&
        std::none_of(chunk.copies.begin(), chunk.copies.end(), same)) {
      chunk.copies.push_back(copy);
    }
  }
  return {};
}

/// Returns the lengths of the file's chunks without names, by place. Empty when the session has
/// written no such chunk.
std::map<Extent, std::uint32_t> CommitService::unnamed_chunks(const SessionRecord& session,
                                                              const ChunkMap& written) const {
  std::map<Extent, std::uint32_t> of_file;
  if (std::ranges::all_of(written.chunks,
                          [](const Chunk& chunk) { return chunk.name.is_named(); })) {
    return of_file;
  }
  for (const PackedSlice& slice : state_.file(session.file)->newest.slices) {
    const Chunk chunk = state_.chunks().get(slice.chunk);
    if (chunk.name.is_named()) continue;
    for (const Extent& copy : chunk.copies) of_file.emplace(copy, chunk.length);
  }
  return of_file;
}

Status CommitService::resolve(SessionRecord& session, CommitVersion& command, Carved& carved) {
  ChunkMap& written = command.written;
  // Refuses chunks that no slice names: they would be freed at once, unknown to their grants.
  std::vector<bool> named(written.chunks.size(), false);
  for (const Slice& slice : written.slices) {
    if (slice.chunk >= named.size()) return fail(Code::kInvalidArgument, "commit");
    named[slice.chunk] = true;
  }
  if (std::find(named.begin(), named.end(), false) != named.end()) {
    return fail(Code::kInvalidArgument, "commit");
  }
  const std::map<Extent, std::uint32_t> of_file = unnamed_chunks(session, written);
  // Equal chunks of one commit become one chunk in the first extent; the
  // other extents are returned.
  std::map<ChunkName, std::uint32_t> first;
  ChunkMap unique;
  std::vector<std::uint32_t> numbers;
  for (Chunk& chunk : written.chunks) {
    const auto next = static_cast<std::uint32_t>(unique.chunks.size());
    if (chunk.name.is_named()) {
      const auto [at, added] = first.emplace(chunk.name, next);
      if (!added && unique.chunks[at->second].length == chunk.length) {
        numbers.push_back(at->second);
        continue;
      }
    }
    BenefactorId home;
    STDCHK_TRY(resolve_chunk(session, chunk, home, of_file, carved));
    command.homes.push_back(home);
    numbers.push_back(next);
    unique.chunks.push_back(std::move(chunk));
  }
  for (Slice& slice : written.slices) slice.chunk = numbers[slice.chunk];
  unique.slices = std::move(written.slices);
  std::sort(unique.slices.begin(), unique.slices.end(),
            [](const Slice& a, const Slice& b) { return a.file_offset < b.file_offset; });
  written = std::move(unique);
  const bool any = std::ranges::any_of(command.homes, [](BenefactorId home) { return bool{home}; });
  if (!any) command.homes.clear();
  return {};
}

/// Counts the slices that others committed since this session's base and that
/// the written slices overlap.
std::uint32_t CommitService::conflicts(const SessionRecord& session,
                                       const ChunkMap& written) const {
  const VersionData& newest = state_.file(session.file)->newest;
  if (newest.version == session.base) return 0;
  const VersionData* base =
      session.base == 0 ? nullptr : state_.version(session.file, session.base);
  std::uint32_t count = 0;
  auto over = written.slices.begin();
  for (const PackedSlice& slice : newest.slices) {
    while (over != written.slices.end() && over->file_offset + over->length <= slice.file_offset) {
      ++over;
    }
    if (over == written.slices.end()) break;
    if (over->file_offset >= slice.end()) continue;
    const auto by_offset = [](const PackedSlice& a, const PackedSlice& b) {
      return a.file_offset < b.file_offset;
    };
    const bool of_base = base != nullptr && [&] {
      auto at = std::lower_bound(base->slices.begin(), base->slices.end(), slice, by_offset);
      return at != base->slices.end() && *at == slice;
    }();
    if (!of_base) ++count;
  }
  return count;
}

void CommitService::mark_tainted(SessionRecord& session, const std::vector<Extent>& abandoned) {
  for (const Extent& extent : abandoned) {
    for (auto& [id, record] : session.grants) {
      if (record.grant.benefactor == extent.benefactor &&
          record.contains(extent.offset, limits::kExtentAlignment)) {
        record.tainted = true;
      }
    }
  }
}

void CommitService::serve(ClientRecord& client, msg::Commit& request, const Call& call) {
  SessionRecord* session = to_.sessions.find(client, request.session, call);
  if (session == nullptr) return;
  const bool repeat = request.part < session->commit.next_part;
  if (request.part > session->commit.next_part ||
      request.written.slices.size() > limits::kMapPageSlicesMax ||
      request.written.chunks.size() > limits::kMapPageSlicesMax) {
    return call.fail(Code::kInvalidArgument, "commit");
  }
  if (session->commit.parts.slices.size() > kPartSlicesMax)
    return call.fail(Code::kTooLarge, "commit");
  if (!repeat) {
    const auto shift = static_cast<std::uint32_t>(session->commit.parts.chunks.size());
    for (Slice slice : request.written.slices) {
      if (slice.chunk >= request.written.chunks.size()) {
        session->commit.parts = {};
        session->commit.next_part = 0;
        return call.fail(Code::kInvalidArgument, "commit");
      }
      slice.chunk += shift;
      session->commit.parts.slices.push_back(slice);
    }
    auto& chunks = request.written.chunks;
    std::move(chunks.begin(), chunks.end(), std::back_inserter(session->commit.parts.chunks));
    session->commit.next_part = request.part + 1;
  }
  if (!request.last) {
    msg::Commit::Reply reply;
    reply.attributes = to_.attributes.of(*state_.file(session->file));
    return call.answer(reply);
  }
  commit_last(client, *session, request, call);
}

/// Returns true when a stored chunk has places only on benefactors that do not answer now. The
/// session learns whether the chunk exists when a benefactor answers again or counts as gone.
bool CommitService::has_unreachable_chunk(SessionRecord& session) {
  return std::ranges::any_of(session.commit.parts.chunks, [&](const Chunk& chunk) {
    if (chunk.copies.empty() || chunk.length > limits::kChunkBytesMax) return false;
    return !pool_.is_reachable(chunk.copies) &&
           std::ranges::any_of(chunk.copies, [&](const Extent& copy) {
             return pool_.is_readable(copy) &&
                    grant_of(session, copy, extent_bytes(chunk.length)) != nullptr;
           });
  });
}

/// Retries commits that wait for a benefactor.
void CommitService::retry() {
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (const Waiting& one : waiting) {
    const auto client = to_.clients.find(one.client);
    SessionRecord* const session = to_.session_table.find(one.request.session);
    if (client == to_.clients.end() || session == nullptr) {
      one.call.fail(Code::kFenced, "commit");
    } else {
      commit_last(client->second, *session, one.request, one.call);
    }
  }
}

/// Lets the benefactors check the session's stored chunks, and commits if they are intact.
void CommitService::prove(ClientId client, SessionRecord& session, const msg::Commit& request,
                          const Call& call) {
  ExtentChecks::Extents extents;
  std::vector<std::vector<Extent>> places;
  for (Chunk& chunk : session.commit.parts.chunks) {
    if (chunk.copies.empty() || chunk.length > limits::kChunkBytesMax) continue;
    drop_missing(pool_, session, chunk.copies);
    std::vector<Extent> own;
    for (const Extent& copy : chunk.copies) {
      if (grant_of(session, copy, extent_bytes(chunk.length)) == nullptr) continue;
      extents[copy.benefactor].push_back({copy.offset, chunk.length, chunk.crc, chunk.name});
      own.push_back(copy);
    }
    if (!own.empty()) places.push_back(std::move(own));
  }
  to_.checks.start(std::move(extents), call.deadline() - limits::kHeartbeatInterval,
                   [this, client, request, call,
                    places = std::move(places)](const ExtentChecks::Missing& missing) {
                     const auto writer = to_.clients.find(client);
                     SessionRecord* const found = to_.session_table.find(request.session);
                     if (writer == to_.clients.end() || found == nullptr) {
                       return call.fail(Code::kFenced, "commit");
                     }
                     SessionRecord& proven = *found;
                     proven.commit.proven = note_missing(proven, places, missing);
                     if (proven.commit.proven)
                       return commit_last(writer->second, proven, request, call);
                     proven.commit.parts = {};
                     proven.commit.next_part = 0;
                     call.fail(*missing.why, "A benefactor lacks a chunk that was stored there.");
                   });
}

/// Commits the session's slices when all parts have come, or answers the call with an error.
void CommitService::commit_last(ClientRecord& client, SessionRecord& session,
                                const msg::Commit& request, const Call& call) {
  if (has_unreachable_chunk(session)) {
    if (pool_.now() + limits::kHeartbeatInterval < call.deadline()) {
      waiting_.push_back({client.id, request, call});
      return;
    }
    session.commit.parts = {};
    session.commit.next_part = 0;
    return call.fail(Code::kDataLost, "commit",
                     "A benefactor with chunks of this commit does not answer.");
  }
  if (session.proof == Proof::kChecksum && !session.commit.proven) {
    return prove(client.id, session, request, call);
  }
  session.commit.proven = false;
  to_.sessions.settle_home(session);  // a resumed session may not have asked for space
  CommitVersion command = command_of(session, request);
  mark_tainted(session, request.abandoned);
  Carved carved;
  if (const auto status = resolve(session, command, carved); !status) {
    for (auto& [record, range] : carved) record->used.erase(range.offset);
    return call.fail(status.error());
  }
  commit(client, session, request, std::move(command), carved, call);
}

/// Takes the session's slices.
CommitVersion CommitService::command_of(SessionRecord& session, const msg::Commit& request) {
  CommitVersion command;
  command.file = session.file;
  std::swap(command.written, session.commit.parts);
  session.commit.parts = {};
  session.commit.next_part = 0;
  command.create = state_.pending().new_name(session.file);
  if (command.create) {
    to_.replaced.keep_file_at(command.create->parent, command.create->name);
  }
  command.cut_before = session.truncate || request.cut_before;
  command.cut_bytes = session.truncate ? 0 : request.cut_bytes;
  command.holes = request.holes;
  command.set_size = request.set_size;
  command.size_bytes = request.size_bytes;
  command.mtime_ns = request.mtime_ns;
  command.now_ns = pool_.wall_ns();
  command.mirror = pool_.has_drain();
  command.copies = session.copies;
  command.opened = session.opened;
  command.naming = request.naming;
  command.same_as = request.same_as;
  command.partial = !request.end && to_.rewrites.is_member(*state_.file(session.file));
  if (request.appends && !command.cut_before && !request.set_size) {
    append(command, request.append_from, state_.file(session.file)->newest.size_bytes);
  }
  return command;
}

std::uint64_t CommitService::begun(const Committed& what) const {
  return what.set ? state_.set_generations().begun(what.set->first, what.set->second) : 0;
}

std::uint64_t CommitService::whole(const Committed& what) const {
  return what.set ? state_.set_generations().whole(what.set->first, what.set->second) : 0;
}

/// Executes the command. The state changes now; the answer follows when the change is durable.
void CommitService::commit(ClientRecord& client, SessionRecord& session, const msg::Commit& request,
                           CommitVersion command, const Carved& carved, const Call& call) {
  Committed what{session.file, command.create, to_.rewrites.set_of(*state_.file(session.file))};
  what.begun_before = begun(what);
  what.whole_before = whole(what);
  if (what.set) {
    const File& file = *state_.file(session.file);
    command.replacing = to_.rewrites.replaced_by(session, *what.set,
                                                 file.parent ? file.name : command.create->name);
  }
  const auto reply = std::make_shared<msg::Commit::Reply>();
  reply->conflicts = conflicts(session, command.written);
  const auto done = [call, reply](const Result<Affected>& outcome) {
    if (!outcome) return call.fail(outcome.error());
    call.answer(*reply);
  };
  const bool durable = what.create || state_.file(what.file)->parent;
  const Version before = state_.file(what.file)->newest.version;
  if (durable) {
    pool_.execute(std::move(command), done);
  } else {
    // The journal does not get this version, but must know the new places of chunks that other
    // files use.
    ChangeCopies changed = copies_changed(state_.chunks(), command);
    if (!changed.changes.empty()) {
      pool_.execute(std::move(changed), [](const Result<Affected>&) {});
    }
    if (const auto outcome = state_.apply_unjournalled(command); !outcome) done(outcome);
  }
  const File& file = *state_.file(what.file);
  if (file.newest.version == before) {
    for (auto& [record, range] : carved) record->used.erase(range.offset);
    return;
  }
  to_.totals.add_conflicts(reply->conflicts);
  reply->attributes = to_.attributes.of(file);
  if (what.create) reply->directory = to_.attributes.of_id(what.create->parent);
  const FileId directory = what.create ? what.create->parent : file.parent;
  if (directory) to_.notices.watch(directory, client.id);
  if (!durable) done(Affected{what.file, {}});
  committed(client, session, what);
  if (request.end) to_.sessions.end(session.id, true);
}

/// Notifies the clients and planners that the new version concerns.
void CommitService::committed(ClientRecord& client, SessionRecord& session, const Committed& what) {
  const File& file = *state_.file(what.file);
  session.truncate = false;
  if (state_.pin(what.file, file.newest.version)) {
    if (session.base != 0) state_.unpin(what.file, session.base);
    session.base = file.newest.version;
  }
  pool_.journal().settle_freed();
  if (session.copies > 1) to_.copies.examine(file.newest);
  if (file.parent) to_.totals.note_image(file);
  if (what.create) to_.notices.entry_changed(what.create->parent, what.create->name, client.id);
  to_.notices.file_changed(what.file, client.id);
  const bool was_whole = what.whole_before > 0 && whole(what) == 0;
  if (was_whole || begun(what) != what.begun_before) {
    to_.sets.set_changed(what.set->first, file.name);
  }
}

}  // namespace stdchk::manager
