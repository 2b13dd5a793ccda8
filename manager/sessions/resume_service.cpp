#include "manager/sessions/resume_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"
#include "manager/sessions/missing_copies.h"
#include "manager/sessions/session_number.h"

namespace stdchk::manager {
namespace {

constexpr int kEpochShift = 40;

/// Returns the ranges that the chunks take in each arena; touching ranges are joined.
std::map<BenefactorId, std::vector<Range>> ranges_of(const std::vector<Chunk>& stored) {
  std::map<BenefactorId, std::vector<Range>> out;
  for (const Chunk& chunk : stored) {
    for (const Extent& at : chunk.copies) {
      out[at.benefactor].push_back({at.offset, extent_bytes(chunk.length)});
    }
  }
  for (auto& [benefactor, ranges] : out) {
    std::ranges::sort(ranges, {}, &Range::offset);
    std::vector<Range> joined;
    for (const Range& range : ranges) {
      if (!joined.empty() && joined.back().offset + joined.back().length == range.offset) {
        joined.back().length += range.length;
      } else {
        joined.push_back(range);
      }
    }
    ranges = std::move(joined);
  }
  return out;
}

bool is_sound(const Chunk& chunk) {
  return chunk.length > 0 && chunk.length <= limits::kChunkBytesMax && !chunk.copies.empty() &&
         std::ranges::all_of(chunk.copies, [](const Extent& copy) {
           return copy.offset % limits::kExtentAlignment == 0;
         });
}

bool is_same(const Chunk& one, const Chunk& other) {
  return one.name == other.name && one.length == other.length && one.crc == other.crc;
}

}  // namespace

ResumeService::ResumeService(Pool& pool, Neighbours neighbours)
    : pool_(pool), state_(pool.soft_state()), to_(neighbours) {}

/// Fails with kStale when another file has the name now: its creator did not see this pending file.
/// A renamed file may replace a file, as in any rename.
Status ResumeService::check_resumed_name(const msg::ResumeSession& request) const {
  STDCHK_ASSIGN(const File* directory, state_.directory(request.parent));
  const auto other = directory->as_directory.pending_children.find(request.name);
  if (other != directory->as_directory.pending_children.end() && other->second != request.file) {
    return fail(Code::kStale, "resume");
  }
  const auto there = directory->as_directory.children.find(request.name);
  if (there == directory->as_directory.children.end()) return {};
  const bool replaces = request.renamed && state_.file(there->second)->type != FileType::kDirectory;
  return replaces ? Status{} : fail(Code::kStale, "resume");
}

/// Makes a file without a version again, under the name that its clients gave it last.
Status ResumeService::remake_pending(const ClientRecord& client,
                                     const msg::ResumeSession& request) {
  const bool unnamed = request.renamed && !request.parent;
  const File* const file = state_.file(request.file);
  if (file == nullptr) {
    const std::int64_t wall = pool_.wall_ns();
    const NewName name{
        request.parent, request.name, request.mode, request.uid, request.gid, wall, {}};
    if (unnamed) {
      state_.pending().make_unnamed(request.file, name, wall);
      return {};
    }
    STDCHK_TRY(check_resumed_name(request));
    STDCHK_TRY(state_.pending().make(request.file, name, client.id, wall));
    return {};
  }
  if (unnamed) state_.pending().drop(file->id);
  if (!file->pending) return {};
  state_.pending().join(file->id, client.id);
  if (!request.renamed) return {};
  STDCHK_TRY(check_resumed_name(request));
  return state_.pending().rename(file->id, request.parent, request.name);
}

/// Applies the attributes that the client changed while the file had no version.
Status ResumeService::take_attributes(const msg::ResumeSession& request) {
  const File* const file = state_.file(request.file);
  if (!request.changed || file->parent || file->newest.version > 0) return {};
  constexpr std::uint32_t kAll = static_cast<std::uint32_t>(msg::SetMask::kMode) |
                                 static_cast<std::uint32_t>(msg::SetMask::kUid) |
                                 static_cast<std::uint32_t>(msg::SetMask::kGid) |
                                 static_cast<std::uint32_t>(msg::SetMask::kAtime) |
                                 static_cast<std::uint32_t>(msg::SetMask::kMtime);
  const std::int64_t wall = pool_.wall_ns();
  const msg::SetAttributes attributes{request.client,   request.file,    kAll,
                                      request.mode,     request.uid,     request.gid,
                                      request.atime_ns, request.mtime_ns};
  for (const auto& [name, value] : request.xattrs) {
    const msg::SetXattr xattr{request.client, request.file, name, value};
    STDCHK_TRY(state_.apply_unjournalled(ChangeXattr{xattr, wall}));
  }
  // An access list sets the mode, which the client may have changed since.
  STDCHK_TRY(state_.apply_unjournalled(ChangeAttributes{attributes, wall, false}));
  return {};
}

/// Finds the session's file. Remakes the file if it had no version.
Result<const File*> ResumeService::file_to_resume(const ClientRecord& client,
                                                  const msg::ResumeSession& request) {
  const File* const file = state_.file(request.file);
  if (file != nullptr && file->type != FileType::kRegular) {
    return fail(Code::kInvalidArgument, "resume");
  }
  const bool had_version = request.base > 0 || (!request.parent && !request.renamed);
  if (file == nullptr && had_version) return fail(Code::kStale, "resume");
  if (file == nullptr || (!file->parent && file->newest.version == 0)) {
    STDCHK_TRY(remake_pending(client, request));
  }
  return state_.file(request.file);
}

Status ResumeService::begin_resume(ClientRecord& client, const msg::ResumeSession& request) {
  const auto is_older = [this](std::uint64_t id) {
    return id >> kEpochShift < state_.epoch().value;
  };
  const bool older = is_older(request.session.value) && is_older(request.file.value);
  if (!older || !request.session) return fail(Code::kInvalidArgument, "resume");
  if (to_.session_table.contains(request.session)) return fail(Code::kStale, "resume");
  STDCHK_ASSIGN(const File* const file, file_to_resume(client, request));
  const VersionData& newest = file->newest;
  if (request.base > newest.version) return fail(Code::kStale, "resume");
  Resumption resumption;
  resumption.base = request.base;
  resumption.ahead = newest.version > request.base;
  if (resumption.ahead) {
    for (const PackedSlice& slice : newest.slices) {
      const Chunk chunk = state_.chunks().get(slice.chunk);
      for (const Extent& copy : chunk.copies) resumption.of_newest[copy] = chunk;
    }
  }
  SessionRecord& session =
      to_.sessions.begin(client, request.session, *file, request.copies, request.waits_for_copies);
  session.opened = std::min(request.opened, state_.sequence());
  // When the version is ahead, a commit was executed but not answered, and has truncated the file.
  session.truncate = request.truncated && newest.version > 0 && !resumption.ahead;
  to_.rewrites.begin_late(session, *file);
  if (request.base > 0 && !resumption.ahead && state_.pin(file->id, request.base)) {
    session.base = request.base;
  }
  session.resumption = std::make_unique<Resumption>(std::move(resumption));
  return {};
}

/// Takes the stored chunks out of the free space, and holds the chunks that the session refers to.
Status ResumeService::adopt(SessionRecord& session, Resumption& resumption,
                            const msg::ResumeSession& request) {
  if (request.part == 0) STDCHK_TRY(take_attributes(request));
  if (!std::ranges::all_of(request.stored, is_sound)) return fail(Code::kInvalidArgument, "resume");
  // A place on a benefactor that has not come back is dropped if the chunk has another place.
  std::vector<Chunk> stored = request.stored;
  for (Chunk& chunk : stored) drop_missing(pool_, session, chunk.copies);
  for (const auto& wanted : request.held) {
    // The session's home is not known any more: it may mean any chunk with that name.
    auto found = state_.chunks().find_all(wanted.name, wanted.length);
    std::erase_if(found, [this](ChunkIndex each) { return !pool_.is_readable(each); });
    if (found.empty()) return fail(Code::kStale, "resume");
    for (const ChunkIndex each : found) {
      if (session.holds.insert(each).second) state_.hold(each);
    }
  }
  const auto committed = std::ranges::count_if(request.stored, [&](const Chunk& chunk) {
    // Another session of the file may have stored other bytes at this place since.
    return std::ranges::any_of(chunk.copies, [&](const Extent& copy) {
      const auto there = resumption.of_newest.find(copy);
      return there != resumption.of_newest.end() && is_same(there->second, chunk);
    });
  });
  resumption.committed += static_cast<std::uint64_t>(committed);
  resumption.stored += request.stored.size();
  if (resumption.committed == resumption.stored && resumption.committed > 0) return {};
  // Others have committed a version, and the restart has lost the version this session is based on.
  if (resumption.committed > 0 || (resumption.ahead && resumption.base > 0)) {
    return fail(Code::kStale, "resume");
  }
  for (const auto& [benefactor, ranges] : ranges_of(stored)) {
    for (const Range& range : ranges) {
      if (!pool_.space().occupy({benefactor, range.offset}, range.length)) {
        return fail(Code::kStale, "resume");
      }
      const Grant grant{GrantId{pool_.next_id()}, benefactor, range.offset, range.length, {}, 0};
      to_.session_table.add_grant(session, grant);
    }
  }
  for (Chunk& chunk : stored) {
    for (const Extent& at : chunk.copies) {
      resumption.to_check[at.benefactor].push_back(
          {at.offset, chunk.length, chunk.crc, chunk.name});
    }
    resumption.places.push_back(std::move(chunk.copies));
  }
  return {};
}

void ResumeService::serve(ClientRecord& client, const msg::ResumeSession& request,
                          const Call& call) {
  // The victim's number is no secret: another member may come before it.
  if (request.session && !may_own(pool_.config().membership, client, request.session)) {
    return call.fail(Code::kRefused, "resume", "Another member has opened the session.");
  }
  if (request.part == 0) {
    if (const Status begun = begin_resume(client, request); !begun) return call.fail(begun.error());
  }
  SessionRecord* const session = to_.sessions.find(client, request.session, call);
  if (session == nullptr) return;
  if (session->resumption == nullptr || request.part != session->resumption->next_part) {
    return call.fail(Code::kInvalidArgument, "resume");
  }
  Resumption& resumption = *session->resumption;
  ++resumption.next_part;
  if (const Status adopted = adopt(*session, resumption, request); !adopted) {
    to_.sessions.give_up(session->id, true);
    return call.fail(adopted.error());
  }
  if (!request.last) return call.answer(msg::ResumeSession::Reply{});
  const bool committed = resumption.committed > 0;
  to_.checks.start(
      std::move(resumption.to_check), call.deadline(),
      [this, id = request.session, committed, call, places = std::move(resumption.places)](
          const ExtentChecks::Missing& missing) { resumed(id, committed, places, missing, call); });
  session->resumption.reset();
}

void ResumeService::resumed(SessionId id, bool committed,
                            const std::vector<std::vector<Extent>>& places,
                            const ExtentChecks::Missing& missing, const Call& call) {
  SessionRecord* const session = to_.session_table.find(id);
  if (session == nullptr) return call.fail(Code::kFenced, "resume");
  if (!note_missing(*session, places, missing)) {
    to_.sessions.give_up(id, true);
    return call.fail(*missing.why);
  }
  const File& file = *state_.file(session->file);
  if (committed && state_.pin(file.id, file.newest.version)) {
    session->base = file.newest.version;
  }
  log::info("file {} is written on with what was stored before the manager's epoch {}",
            file.id.value, state_.epoch().value);
  call.answer(msg::ResumeSession::Reply{committed, to_.attributes.of(file)});
}

}  // namespace stdchk::manager
