// Commits: the slices that a session wrote become a version.
#include <algorithm>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/policy/image_name.h"
#include "manager/pool/sets.h"
#include "manager/replication/copy_planner.h"
#include "manager/service/service.h"

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

/// Returns the changes that the map makes to the copies of existing chunks,
/// one change after the other.
ChangeCopies copies_changed(const ChunkTable& chunks, const ChunkMap& map) {
  ChangeCopies out;
  for (const Chunk& chunk : map.chunks) {
    const bool named = chunk.name.is_named();
    const ChunkIndex found = named ? chunks.find(chunk.name, chunk.length) : kNoChunk;
    if (found == kNoChunk || !chunks.has_copies(found)) continue;
    const std::vector<Extent> had = chunks.get(found).copies;
    std::vector<Extent> add = chunk.copies;
    std::erase_if(add, [&](const Extent& copy) { return std::ranges::count(had, copy) > 0; });
    std::vector<Extent> drop = had;
    std::erase_if(drop,
                  [&](const Extent& copy) { return std::ranges::count(chunk.copies, copy) > 0; });
    std::vector<Extent> now = had;
    for (std::size_t i = 0; i < std::max(add.size(), drop.size()); ++i) {
      ChangeCopies::Change change{now.front(), chunk.name, chunk.length, {}, {}};
      if (i < drop.size()) change.at = change.drop = drop[i];
      std::erase(now, change.drop);
      if (i < add.size()) now.push_back(change.add = add[i]);
      out.changes.push_back(change);
    }
  }
  return out;
}

}  // namespace

/// Removes places where the session's chunk is lost, unless all its places are.
void Service::drop_missing(SessionRecord& session, std::vector<Extent>& copies) const {
  const auto is_missing = [&](const Extent& copy) {
    return !live(copy) || session.missing.contains(copy);
  };
  if (std::ranges::all_of(copies, is_missing)) return;
  for (const Extent& copy : copies) {
    if (is_missing(copy)) session.missing.insert(copy);
  }
  std::erase_if(copies, is_missing);
}

/// Notes the missing places. Returns false when a chunk was found at none of its places.
bool Service::note_missing(SessionRecord& session, const std::vector<std::vector<Extent>>& places,
                           const ExtentChecks::Missing& missing) {
  if (!missing.why) return true;
  for (const auto& copies : places) {
    const auto is_missing = [&](const Extent& copy) { return missing.contains(copy); };
    if (std::ranges::all_of(copies, is_missing)) return false;
    std::ranges::copy_if(copies, std::inserter(session.missing, session.missing.end()), is_missing);
  }
  return true;
}

/// Enforces rule M1: the chunk lies in a grant of this session, or the pool has it. A named chunk
/// that the pool has takes the pool's copies: other clients may have written it meanwhile. If no
/// benefactor of these copies answers, the session's own extents come first.
Status Service::resolve_chunk(SessionRecord& session, Chunk& chunk,
                              const std::map<Extent, std::uint32_t>& of_file, Carved& carved) {
  if (chunk.length == 0 || chunk.length > limits::kChunkBytesMax || chunk.copies.empty()) {
    return fail(Code::kInvalidArgument, "commit");
  }
  drop_missing(session, chunk.copies);
  const std::uint64_t bytes = extent_bytes(chunk.length);
  std::vector<Extent> silent;
  if (chunk.name.is_named()) {
    const ChunkIndex found = state_.chunks().find(chunk.name, chunk.length);
    if (found != kNoChunk && live(found)) {
      Chunk had = state_.chunks().get(found);
      const Extent& told = chunk.copies.front();
      // The pool's copy may be this session's own from an earlier commit.
      const bool known = std::find(had.copies.begin(), had.copies.end(), told) != had.copies.end();
      if (known || at_hand(had.copies) || grant_of(session, told, bytes) == nullptr) {
        chunk = std::move(had);
        return {};
      }
      silent = std::move(had.copies);
    }
  } else if (const auto had = of_file.find(chunk.copies.front()); had != of_file.end()) {
    // The extent is as long as it was written: a longer chunk would show its neighbour's bytes.
    return had->second == chunk.length ? Status{} : fail(Code::kInvalidArgument, "commit");
  }
  for (const Extent& copy : chunk.copies) {
    if (!live(copy) || session.missing.contains(copy)) return fail(Code::kDataLost, "commit");
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

Status Service::resolve(SessionRecord& session, ChunkMap& written, Carved& carved) {
  // Refuses chunks that no slice names: they would be freed at once, unknown to their grants.
  std::vector<bool> named(written.chunks.size(), false);
  for (const Slice& slice : written.slices) {
    if (slice.chunk >= named.size()) return fail(Code::kInvalidArgument, "commit");
    named[slice.chunk] = true;
  }
  if (std::find(named.begin(), named.end(), false) != named.end()) {
    return fail(Code::kInvalidArgument, "commit");
  }
  std::map<Extent, std::uint32_t> of_file;  ///< the file's chunks without names, and their lengths
  const VersionData& newest = state_.file(session.file)->newest;
  const bool unnamed = std::any_of(written.chunks.begin(), written.chunks.end(),
                                   [](const Chunk& chunk) { return !chunk.name.is_named(); });
  if (unnamed) {
    for (const PackedSlice& slice : newest.slices) {
      const Chunk chunk = state_.chunks().get(slice.chunk);
      if (chunk.name.is_named()) continue;
      for (const Extent& copy : chunk.copies) of_file.emplace(copy, chunk.length);
    }
  }
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
    STDCHK_TRY(resolve_chunk(session, chunk, of_file, carved));
    numbers.push_back(next);
    unique.chunks.push_back(std::move(chunk));
  }
  for (Slice& slice : written.slices) slice.chunk = numbers[slice.chunk];
  unique.slices = std::move(written.slices);
  std::sort(unique.slices.begin(), unique.slices.end(),
            [](const Slice& a, const Slice& b) { return a.file_offset < b.file_offset; });
  written = std::move(unique);
  return {};
}

/// Counts the slices that others committed since this session's base and that
/// the written slices overlap.
std::uint32_t Service::conflicts(const SessionRecord& session, const ChunkMap& written) const {
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

void Service::taint(SessionRecord& session, const std::vector<Extent>& abandoned) {
  for (const Extent& extent : abandoned) {
    for (auto& [id, record] : session.grants) {
      if (record.grant.benefactor == extent.benefactor &&
          record.contains(extent.offset, limits::kExtentAlignment)) {
        record.tainted = true;
      }
    }
  }
}

void Service::serve(ClientRecord& client, msg::Commit& request, const Call& call) {
  SessionRecord* session = session_of(client, request.session, call);
  if (session == nullptr) return;
  const bool repeat = request.part < session->next_part;
  if (request.part > session->next_part ||
      request.written.slices.size() > limits::kMapPageSlicesMax ||
      request.written.chunks.size() > limits::kMapPageSlicesMax) {
    return call.fail(Code::kInvalidArgument, "commit");
  }
  if (session->parts.slices.size() > kPartSlicesMax) return call.fail(Code::kTooLarge, "commit");
  if (!repeat) {
    const auto shift = static_cast<std::uint32_t>(session->parts.chunks.size());
    for (Slice slice : request.written.slices) {
      if (slice.chunk >= request.written.chunks.size()) {
        session->parts = {};
        session->next_part = 0;
        return call.fail(Code::kInvalidArgument, "commit");
      }
      slice.chunk += shift;
      session->parts.slices.push_back(slice);
    }
    auto& chunks = request.written.chunks;
    std::move(chunks.begin(), chunks.end(), std::back_inserter(session->parts.chunks));
    session->next_part = request.part + 1;
  }
  if (!request.last) {
    msg::Commit::Reply reply;
    reply.attributes = attributes(*state_.file(session->file));
    return call.answer(reply);
  }
  commit_last(client, *session, request, call);
}

/// Returns true when a stored chunk has places only on benefactors that do not answer now. The
/// session learns whether the chunk exists when a benefactor answers again or counts as gone.
bool Service::is_in_doubt(SessionRecord& session) {
  return std::ranges::any_of(session.parts.chunks, [&](const Chunk& chunk) {
    if (chunk.copies.empty() || chunk.length > limits::kChunkBytesMax) return false;
    return !at_hand(chunk.copies) && std::ranges::any_of(chunk.copies, [&](const Extent& copy) {
      return live(copy) && grant_of(session, copy, extent_bytes(chunk.length)) != nullptr;
    });
  });
}

/// Retries commits that wait for a benefactor.
void Service::retry_commits() {
  std::deque<WaitingCommit> waiting;
  waiting.swap(waiting_commits_);
  for (const WaitingCommit& one : waiting) {
    const auto client = clients_.find(one.client);
    const auto session = sessions_.find(one.request.session);
    if (client == clients_.end() || session == sessions_.end()) {
      one.call.fail(Code::kFenced, "commit");
    } else {
      commit_last(client->second, session->second, one.request, one.call);
    }
  }
}

/// Lets the benefactors check the session's stored chunks, and commits if they are intact.
void Service::prove(ClientId client, SessionRecord& session, const msg::Commit& request,
                    const Call& call) {
  ExtentChecks::Extents extents;
  std::vector<std::vector<Extent>> places;
  for (Chunk& chunk : session.parts.chunks) {
    if (chunk.copies.empty() || chunk.length > limits::kChunkBytesMax) continue;
    drop_missing(session, chunk.copies);
    std::vector<Extent> own;
    for (const Extent& copy : chunk.copies) {
      if (grant_of(session, copy, extent_bytes(chunk.length)) == nullptr) continue;
      extents[copy.benefactor].push_back({copy.offset, chunk.length, chunk.crc, chunk.name});
      own.push_back(copy);
    }
    if (!own.empty()) places.push_back(std::move(own));
  }
  checks_->start(std::move(extents), call.deadline() - limits::kHeartbeatInterval,
                 [this, client, request, call,
                  places = std::move(places)](const ExtentChecks::Missing& missing) {
                   const auto writer = clients_.find(client);
                   const auto found = sessions_.find(request.session);
                   if (writer == clients_.end() || found == sessions_.end()) {
                     return call.fail(Code::kFenced, "commit");
                   }
                   SessionRecord& proven = found->second;
                   proven.proven = note_missing(proven, places, missing);
                   if (proven.proven) return commit_last(writer->second, proven, request, call);
                   proven.parts = {};
                   proven.next_part = 0;
                   call.fail(*missing.why, "A chunk was not found where it was stored.");
                 });
}

void Service::commit_last(ClientRecord& client, SessionRecord& session, const msg::Commit& request,
                          const Call& call) {
  if (is_in_doubt(session)) {
    if (now() + limits::kHeartbeatInterval < call.deadline()) {
      waiting_commits_.push_back({client.id, request, call});
      return;
    }
    session.parts = {};
    session.next_part = 0;
    return call.fail(Code::kDataLost, "commit", "A benefactor that has a part does not answer.");
  }
  if (session.proof == Proof::kChecksum && !session.proven) {
    return prove(client.id, session, request, call);
  }
  session.proven = false;
  CommitVersion command;
  command.file = session.file;
  std::swap(command.written, session.parts);
  session.parts = {};
  session.next_part = 0;
  taint(session, request.abandoned);
  Carved carved;
  const auto undo = [&] {
    for (auto& [record, range] : carved) record->used.erase(range.offset);
  };
  if (const auto status = resolve(session, command.written, carved); !status) {
    undo();
    return call.fail(status.error());
  }
  command.create = state_.new_name(session.file);
  if (command.create) {
    replaced_files_.keep_file_at(command.create->parent, command.create->name, now());
  }
  command.cut_before = session.truncate || request.cut_before;
  command.cut_bytes = session.truncate ? 0 : request.cut_bytes;
  command.set_size = request.set_size;
  command.size_bytes = request.size_bytes;
  command.mtime_ns = request.mtime_ns;
  command.now_ns = reactor_.clock().wall_ns();
  command.mirror = has_drain();
  command.copies = session.copies;
  command.opened = session.opened;
  command.naming = request.naming;
  command.same_as = request.same_as;
  const auto set = set_of(*state_.file(session.file));
  const auto begun = [&] {
    return set ? state_.set_generations().begun(set->first, set->second) : 0;
  };
  const auto whole = [&] {
    return set ? state_.set_generations().whole(set->first, set->second) : 0;
  };
  const std::uint64_t begun_before = begun();
  const std::uint64_t whole_before = whole();
  if (set) {
    const auto& [folder, image] = *set;
    command.replacing = rewriters_.opened({folder, image.application, image.timestep},
                                          state_.set_generations().next_begun(folder, image));
    const File& file = *state_.file(session.file);
    if (adds_to_whole(folder, file.parent ? file.name : command.create->name)) {
      command.replacing = std::max(command.replacing, session.opened);
    }
  }
  msg::Commit::Reply reply;
  reply.conflicts = conflicts(session, command.written);

  const FileId id = session.file;
  const std::optional<NewName> create = command.create;
  const bool durable = create || state_.file(id)->parent;
  // The state changes now; the answer follows when the change is durable.
  const Version before = state_.file(id)->newest.version;
  auto shared = std::make_shared<msg::Commit::Reply>(reply);
  const auto done = [call, shared](const Result<Outcome>& outcome) {
    if (!outcome) return call.fail(outcome.error());
    call.answer(*shared);
  };
  if (durable) {
    execute(std::move(command), done);
  } else {
    // The journal does not get this version, but must know the new places of chunks that other
    // files use.
    ChangeCopies changed = copies_changed(state_.chunks(), command.written);
    if (!changed.changes.empty()) execute(std::move(changed), [](const Result<Outcome>&) {});
    if (const auto outcome = state_.apply_unjournalled(command); !outcome) done(outcome);
  }
  const File& file = *state_.file(id);
  if (file.newest.version == before) return undo();
  conflicts_ += reply.conflicts;
  shared->attributes = attributes(file);
  if (create) shared->directory = attributes_of(create->parent);
  const FileId directory = create ? create->parent : file.parent;
  if (directory) watchers_.watch(directory, client.id, now());
  if (!durable) done(Outcome{id, {}});
  session.truncate = false;
  if (state_.pin(id, file.newest.version)) {
    if (session.base != 0) state_.unpin(id, session.base);
    session.base = file.newest.version;
  }
  settle_freed();
  if (session.copies > 1) copies_->look_at(file.newest);
  if (file.parent) note_set(file);
  if (create) entry_changed(create->parent, create->name, client.id);
  file_changed(id, client.id);
  const bool was_whole = whole_before > 0 && whole() == 0;
  if (was_whole || begun() != begun_before) sets_->set_changed(set->first, file.name);
  if (request.end) end_session(session.id, true);
}

}  // namespace stdchk::manager
