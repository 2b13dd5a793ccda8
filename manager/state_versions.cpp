// Commands on versions and chunks, and the snapshot.
#include <algorithm>

#include "core/assert.h"
#include "core/limits.h"
#include "manager/state.h"

namespace stdchk::manager {

/// Finds or adds the chunks and counts a hold on each, so that none goes while the commit runs.
State::Resolved State::resolve(const ChunkMap& written, const File* file) {
  std::map<Extent, ChunkIndex> unnamed;  // of the newest version; filled when needed
  const auto find_unnamed = [&](const Extent& extent) {
    if (unnamed.empty() && file != nullptr) {
      for (const PackedSlice& slice : file->newest.slices) {
        for (const Extent& copy : chunks_.get(slice.chunk).copies) unnamed[copy] = slice.chunk;
      }
    }
    const auto found = unnamed.find(extent);
    return found == unnamed.end() ? kNoChunk : found->second;
  };
  std::vector<ChunkIndex> indexes;
  for (const Chunk& chunk : written.chunks) {
    ChunkIndex index = kNoChunk;
    if (chunk.name.is_named()) {
      index = chunks_.find(chunk.name, chunk.length);
      if (index != kNoChunk && !chunk.copies.empty())
        chunks_.set_copies(index, chunk.copies, freed_);
    } else if (!chunk.copies.empty()) {
      index = find_unnamed(chunk.copies.front());
    }
    if (index == kNoChunk) index = chunks_.add(chunk);
    chunks_.refer(index, false);
    indexes.push_back(index);
  }
  PackedSlices slices;
  slices.reserve(written.slices.size());
  for (const Slice& slice : written.slices) {
    slices.push_back({slice.file_offset, slice.length, slice.chunk_offset, indexes[slice.chunk]});
  }
  return {std::move(slices), std::move(indexes)};
}

namespace {

Status check_map(const ChunkMap& map) {
  PackedSlices packed;
  packed.reserve(map.slices.size());
  for (const Slice& slice : map.slices) {
    if (slice.chunk >= map.chunks.size()) return fail(Code::kInvalidArgument, "manager.map");
    const std::uint32_t length = map.chunks[slice.chunk].length;
    if (slice.chunk_offset > length || slice.length > length - slice.chunk_offset) {
      return fail(Code::kInvalidArgument, "manager.map");
    }
    packed.push_back({slice.file_offset, slice.length, slice.chunk_offset, 0});
  }
  for (const Chunk& chunk : map.chunks) {
    if (chunk.length == 0 || chunk.length > limits::kChunkBytesMax) {
      return fail(Code::kInvalidArgument, "manager.map");
    }
  }
  if (!well_formed(packed)) return fail(Code::kInvalidArgument, "manager.map");
  return {};
}

}  // namespace

Result<Outcome> State::run(const CommitVersion& command) {
  STDCHK_TRY(check_map(command.written));
  if (command.size_bytes > limits::kFileBytesMax) return fail(Code::kTooLarge, "manager.commit");
  File* file = find(command.file);
  File* parent = nullptr;
  File* replaced = nullptr;
  if (command.create) {
    STDCHK_TRY(check_name(command.create->name));
    STDCHK_ASSIGN(parent, find_directory(command.create->parent));
    const auto taken = parent->children.find(command.create->name);
    if (taken != parent->children.end()) replaced = find(taken->second);
    if (replaced != nullptr && replaced->type == FileType::kDirectory) {
      return fail(Code::kIsDirectory, "manager.commit");
    }
  } else if (file == nullptr) {
    return fail(Code::kNotFound, "manager.commit");
  }
  if (file != nullptr && file->type != FileType::kRegular) {
    return fail(Code::kIsDirectory, "manager.commit");
  }
  // Checked: nothing fails from here on.
  FileId replaced_id;
  if (command.create) {
    const NewName& create = *command.create;
    if (file == nullptr) {
      file = &add_file(command.file, FileType::kRegular, create.mode, create.uid, create.gid,
                       command.now_ns);
      file->xattrs.insert(create.xattrs.begin(), create.xattrs.end());
    }
    file->atime_ns = create.atime_ns;
    drop_pending_name(file->id);
    if (replaced != nullptr && replaced != file) {
      replaced_id = replaced->id;
      file->stale_in_drain = replaced->in_drain || replaced->stale_in_drain;
      if (command.mirror) set_aside(*replaced);
      unlink(*replaced);
      erase_if_unused(*replaced);
    }
    if (!file->parent) link(*file, *parent, create.name);
    parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  }
  const Resolved written = resolve(command.written, file);
  PackedSlices base =
      command.cut_before ? cut(file->newest.slices, command.cut_bytes) : file->newest.slices;
  VersionData next;
  next.version = file->newest.version + 1;
  next.sequence = ++sequence_;
  const std::uint64_t base_size = command.cut_before
                                      ? std::min(file->newest.size_bytes, command.cut_bytes)
                                      : file->newest.size_bytes;
  next.slices = overlay(base, written.slices);
  std::uint64_t end = next.slices.empty() ? 0 : next.slices.back().end();
  next.size_bytes =
      command.set_size ? command.size_bytes : std::max({base_size, command.size_bytes, end});
  if (end > next.size_bytes) next.slices = cut(next.slices, next.size_bytes);
  next.slices.shrink_to_fit();
  next.stored_bytes = covered_bytes(next.slices);
  next.mtime_ns = command.mtime_ns;
  next.copies = std::max(command.copies, 1U);
  if (!file->parent) next.aside = file->newest.aside;
  refer(next);
  set_newest(*file, std::move(next));
  file->ctime_ns = command.now_ns;
  for (const ChunkIndex held : written.held) release(held);
  return Outcome{file->id, replaced_id};
}

Result<Outcome> State::run(const DrainStarted& command) {
  File* file = find(command.file);
  if (file == nullptr) return fail(Code::kNotFound, "manager.drain_started");
  file->in_drain = true;
  return Outcome{file->id, {}};
}

Result<Outcome> State::run(const Drained& command) {
  File* file = find(command.file);
  if (file == nullptr || file->newest.version != command.version) {
    return fail(Code::kStale, "manager.drained");
  }
  if (file->newest.drained) return Outcome{file->id, {}};
  delist(*file);
  for (const PackedSlice& slice : file->newest.slices) chunks_.mark_drained(slice.chunk);
  file->newest.drained = true;
  file->in_drain = true;
  file->stale_in_drain = false;
  enlist(*file);
  return Outcome{file->id, {}};
}

Result<Outcome> State::run(const Evict& command) {
  File* file = find(command.file);
  if (file == nullptr || file->newest.version != command.version || !file->newest.drained) {
    return fail(Code::kStale, "manager.evict");
  }
  for (const std::uint32_t number : command.slices) {
    if (number >= file->newest.slices.size()) return fail(Code::kInvalidArgument, "manager.evict");
    if (chunks_.undrained(file->newest.slices[number].chunk) > 0) {
      return fail(Code::kInvalidArgument, "manager.evict");
    }
  }
  for (const std::uint32_t number : command.slices) {
    chunks_.set_copies(file->newest.slices[number].chunk, {}, freed_);
  }
  delist(*file);
  // Chunks that others still need stay, and the version can be looked at again.
  file->newest.evicted =
      std::none_of(file->newest.slices.begin(), file->newest.slices.end(),
                   [&](const PackedSlice& slice) { return chunks_.has_copies(slice.chunk); });
  enlist(*file);
  return Outcome{file->id, {}};
}

Result<Outcome> State::run(const MoveChunks& command) {
  std::map<std::uint64_t, std::uint64_t> moves;
  for (const auto& move : command.moves) moves[move.from_offset] = move.to_offset;
  chunks_.for_each([&](ChunkIndex index) {
    if (!chunks_.has_copies(index)) return;
    std::vector<Extent> copies = chunks_.get(index).copies;
    bool changed = false;
    for (Extent& copy : copies) {
      if (copy.benefactor != command.benefactor) continue;
      const auto move = moves.find(copy.offset);
      if (move == moves.end()) continue;
      copy.offset = move->second;
      changed = true;
    }
    if (changed) chunks_.set_copies(index, copies, freed_);
  });
  return Outcome{};
}

bool State::change_copies(ChunkIndex index, const ChangeCopies::Change& change) {
  std::vector<Extent> copies = chunks_.get(index).copies;
  if (std::find(copies.begin(), copies.end(), change.at) == copies.end()) return false;
  if (change.add.benefactor) copies.push_back(change.add);
  std::erase(copies, change.drop);
  if (copies.empty() || copies.size() > limits::kCopiesMax) return false;
  chunks_.set_copies(index, copies, freed_);
  return true;
}

Result<Outcome> State::run(const ChangeCopies& command) {
  // Chunks without names are found by their places, in one walk.
  std::map<Extent, const ChangeCopies::Change*> unnamed;
  for (const auto& change : command.changes) {
    if (!change.name.is_named()) {
      unnamed[change.at] = &change;
      continue;
    }
    const ChunkIndex index = chunks_.find(change.name, change.length);
    if (index != kNoChunk) change_copies(index, change);
  }
  if (unnamed.empty()) return Outcome{};
  chunks_.for_each([&](ChunkIndex index) {
    if (!chunks_.has_copies(index) || chunks_.is_named(index)) return;
    for (const Extent& copy : chunks_.get(index).copies) {
      const auto change = unnamed.find(copy);
      if (change == unnamed.end() || chunks_.length(index) != change->second->length) continue;
      change_copies(index, *change->second);
      break;
    }
  });
  return Outcome{};
}

// ---- snapshot ---------------------------------------------------------------------------------

Result<Outcome> State::run(const RestoreCounters& command) {
  epoch_ = command.epoch;
  sequence_ = std::max(sequence_, command.sequence);
  mirror_sequence_ = std::max(mirror_sequence_, command.mirror_sequence);
  return Outcome{};
}

Result<Outcome> State::run(const RestoreFile& command) {
  STDCHK_TRY(check_map(command.map));
  const Attributes& from = command.attributes;
  File* parent = nullptr;
  if (from.id != kRootFile) {
    STDCHK_TRY(check_name(command.name));
    STDCHK_ASSIGN(parent, find_directory(command.parent));
    if (find(from.id) != nullptr || parent->children.count(command.name) > 0) {
      return fail(Code::kExists, "manager.restore");
    }
  }
  File& file = from.id == kRootFile
                   ? *find(kRootFile)
                   : add_file(from.id, from.type, from.mode, from.uid, from.gid, from.ctime_ns);
  file.mode = from.mode;
  file.uid = from.uid;
  file.gid = from.gid;
  file.atime_ns = from.atime_ns;
  file.ctime_ns = from.ctime_ns;
  file.target = command.target;
  file.xattrs.insert(command.xattrs.begin(), command.xattrs.end());
  file.policy = command.policy;
  file.in_drain = command.in_drain;
  file.stale_in_drain = command.stale_in_drain;
  VersionData& newest = file.newest;
  newest.version = from.version;
  newest.mtime_ns = from.mtime_ns;
  if (from.type == FileType::kRegular) {
    newest.size_bytes = from.size_bytes;
    newest.drained = command.drained;
    newest.sequence = command.sequence;
    newest.copies = std::max(command.copies, 1U);
    sequence_ = std::max(sequence_, command.sequence);
    Resolved resolved = resolve(command.map, nullptr);
    newest.slices = std::move(resolved.slices);
    newest.stored_bytes = covered_bytes(newest.slices);
    refer(newest);
    for (const ChunkIndex held : resolved.held) release(held);
    newest.evicted = command.evicted;
  }
  if (parent != nullptr) link(file, *parent, command.name);
  return Outcome{file.id, {}};
}

void State::snapshot(const std::function<void(Command)>& emit) const {
  emit(RestoreCounters{epoch_, sequence_, mirror_sequence_});
  for (const auto& [id, record] : benefactors_) {
    emit(
        AddBenefactor{id, record.life_high, record.life_low, record.arena_bytes, record.host_name});
  }
  std::vector<const File*> todo{file(kRootFile)};
  while (!todo.empty()) {
    const File& at = *todo.back();
    todo.pop_back();
    RestoreFile restore;
    restore.attributes = attributes(at);
    restore.parent = at.parent;
    restore.name = at.name;
    restore.target = at.target;
    restore.xattrs = {at.xattrs.begin(), at.xattrs.end()};
    restore.map = map_page(at.newest, 0, at.newest.slices.size());
    restore.drained = at.newest.drained;
    restore.evicted = at.newest.evicted;
    restore.in_drain = at.in_drain;
    restore.stale_in_drain = at.stale_in_drain;
    restore.sequence = at.newest.sequence;
    restore.policy = at.policy;
    restore.copies = at.newest.copies;
    emit(std::move(restore));
    for (const auto& [name, child] : at.children) todo.push_back(file(child));
  }
  for (const auto& [sequence, change] : mirror_queue_) emit(RestoreMirror{sequence, change});
}

}  // namespace stdchk::manager
