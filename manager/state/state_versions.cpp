// Commands on versions and chunks, and the snapshot.
#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "manager/state/state.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kStripesTogether = 4096;  // number of stripes in one record of a snapshot

}  // namespace

/// Finds or adds the chunks. Counts a hold on each, so that none is freed while the commit runs.
State::Resolved State::resolve(const ChunkMap& written, const File* file) {
  std::map<Extent, ChunkIndex> unnamed;  // chunks of the newest version; filled on first use
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
  std::uint64_t added_bytes = 0;
  for (const Chunk& chunk : written.chunks) {
    ChunkIndex index = kNoChunk;
    if (chunk.name.is_named()) {
      index = chunks_.find(chunk.name, chunk.length);
      if (index != kNoChunk && !chunk.copies.empty())
        chunks_.set_copies(index, chunk.copies, freed_);
    } else if (!chunk.copies.empty()) {
      index = find_unnamed(chunk.copies.front());
    }
    if (index == kNoChunk) {
      index = chunks_.add(chunk);
      added_bytes += chunk.length;
    }
    chunks_.refer(index, false);
    indexes.push_back(index);
  }
  PackedSlices slices;
  slices.reserve(written.slices.size());
  for (const Slice& slice : written.slices) {
    slices.push_back({slice.file_offset, slice.length, slice.chunk_offset, indexes[slice.chunk]});
  }
  return {std::move(slices), std::move(indexes), added_bytes};
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
    if (!command.file) return fail(Code::kInvalidArgument, "manager.commit");
  } else if (file == nullptr) {
    return fail(Code::kNotFound, "manager.commit");
  }
  if (file != nullptr && file->type != FileType::kRegular) {
    return fail(Code::kIsDirectory, "manager.commit");
  }
  if (command.same_as != 0) {
    if (file == nullptr || command.create) return fail(Code::kStale, "manager.commit");
    return load(*file, command);
  }
  // All checks are done: the code below cannot fail.
  FileId replaced_id;
  std::uint64_t replaced_content = 0;
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
      replaced_content = replaced->newest.content();
      make_first(*replaced, parent->id, create.name);
      file->stale_in_drain = replaced->in_drain || replaced->stale_in_drain;
      if (command.mirror) keep_for_next_name(*replaced);
      unlink(*replaced);
      give_next_name(*replaced);
      erase_if_unused(*replaced);
    }
    if (!file->parent) link(*file, *parent, create.name);
    parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  }
  const Resolved written = resolve(command.written, file);
  if (file->parent && !written.slices.empty()) {
    const bool from_nothing =
        file->newest.size_bytes == 0 || (command.cut_before && command.cut_bytes == 0);
    history_.images += from_nothing ? 1 : 0;
    history_.written_bytes += covered_bytes(written.slices);
    history_.stored_bytes += written.added_bytes;
  }
  PackedSlices base =
      command.cut_before ? cut(file->newest.slices, command.cut_bytes) : file->newest.slices;
  VersionData next;
  next.version = file->newest.version + 1;
  // The journal lacks versions of files without a name. They get no number of their own, so that
  // replaying the journal gives the same numbers.
  next.sequence = file->parent ? ++sequence_ : sequence_;
  next.opened = command.opened;
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
  next.naming = written.slices.empty() ? file->newest.naming : command.naming;
  if (!file->parent) next.aside = file->newest.aside;
  // Bytes of the base remain.
  const bool is_left = next.stored_bytes > covered_bytes(written.slices);
  next.written = is_left ? file->newest.written : next.sequence;
  replaced_content = std::max(replaced_content, file->newest.content());
  refer(next);
  set_newest(*file, std::move(next));
  if (!is_left) note_image(*file, replaced_content, command.replacing);
  file->ctime_ns = command.now_ns;
  for (const ChunkIndex held : written.held) release(held);
  return Outcome{file->id, replaced_id};
}

/// Puts a drained version's bytes back into memory. This makes a new version, because readers of
/// the old one know other chunks. Its place in the order of commits, and the drained file, stay as
/// they are.
Result<Outcome> State::load(File& file, const CommitVersion& command) {
  const VersionData& drained = file.newest;
  if (!file.parent || drained.version != command.same_as || !drained.drained) {
    return fail(Code::kStale, "manager.load");
  }
  const std::vector<Slice>& slices = command.written.slices;
  std::uint64_t end = 0;
  for (const Slice& slice : slices) {
    if (slice.file_offset != end) return fail(Code::kInvalidArgument, "manager.load");
    end += slice.length;
  }
  if (end != drained.size_bytes) return fail(Code::kInvalidArgument, "manager.load");
  Resolved written = resolve(command.written, &file);
  VersionData next;
  next.version = drained.version + 1;
  next.size_bytes = drained.size_bytes;
  next.mtime_ns = drained.mtime_ns;
  next.sequence = drained.sequence;
  next.written = drained.written;
  next.opened = drained.opened;
  next.drained = true;
  next.naming = command.naming;
  next.copies = std::max(command.copies, 1U);
  next.slices = std::move(written.slices);
  next.stored_bytes = covered_bytes(next.slices);
  refer(next);
  set_newest(file, std::move(next));
  for (const ChunkIndex held : written.held) release(held);
  return Outcome{file.id, {}};
}

Result<Outcome> State::run(const DrainStarted& command) {
  File* file = find(command.file);
  if (file == nullptr) return fail(Code::kNotFound, "manager.drain_started");
  file->in_drain = true;
  if (file->parent) leave_drained(*find(file->parent), file->name, file->newest.written);
  for (const Link& link : file->links) {
    leave_drained(*find(link.parent), link.name, file->newest.written);
  }
  return Outcome{file->id, {}};
}

Result<Outcome> State::run(const Drained& command) {
  File* file = find(command.file);
  if (file == nullptr || file->type != FileType::kRegular ||
      file->newest.version != command.version) {
    return fail(Code::kStale, "manager.drained");
  }
  if (file->newest.drained) return Outcome{file->id, {}};
  delist(*file);
  if (file->newest.stored_bytes > 0) {
    ++history_.drained_images;
    history_.drained_bytes += file->newest.stored_bytes;
  }
  for (const PackedSlice& slice : file->newest.slices) chunks_.mark_drained(slice.chunk);
  file->newest.drained = true;
  file->in_drain = true;
  file->stale_in_drain = false;
  enlist(*file);
  mirror_links(*file);
  return Outcome{file->id, {}};
}

Result<Outcome> State::run(const DrainLost& command) {
  File* file = find(command.file);
  if (file == nullptr || file->newest.version != command.version || !file->newest.drained) {
    return fail(Code::kStale, "manager.drain_lost");
  }
  delist(*file);
  for (const PackedSlice& slice : file->newest.slices) chunks_.mark_undrained(slice.chunk);
  file->newest.drained = file->newest.evicted = false;
  // Without this file its set is not whole there, whenever the file was written.
  if (file->parent) leave_drained(*find(file->parent), file->name, ~std::uint64_t{0});
  for (const Link& link : file->links) {
    leave_drained(*find(link.parent), link.name, ~std::uint64_t{0});
  }
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
    const ChunkIndex chunk = file->newest.slices[number].chunk;
    const Stripe* const stripe = stripes_.of(chunk);
    if (chunks_.undrained(chunk) > 0 || (stripe != nullptr && !may_be_lost(*stripe))) {
      return fail(Code::kInvalidArgument, "manager.evict");
    }
  }
  for (const std::uint32_t number : command.slices) {
    const ChunkIndex chunk = file->newest.slices[number].chunk;
    if (stripes_.of(chunk) != nullptr) end_stripe(stripes_.index_of(chunk));
    chunks_.set_copies(chunk, {}, freed_);
  }
  delist(*file);
  // A version with chunks still in memory stays evictable.
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
  // Chunks without names are found by their places: members of stripes at once, others in one walk.
  std::map<Extent, const ChangeCopies::Change*> unnamed;
  for (const auto& change : command.changes) {
    const ChunkIndex index = find_chunk(change.name, change.length, change.at);
    if (index != kNoChunk) {
      change_copies(index, change);
    } else if (!change.name.is_named()) {
      unnamed[change.at] = &change;
    }
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

// ---- stripes ----------------------------------------------------------------------------------

/// Finds a chunk by its name, or by its place if parity is wanted for it;
/// otherwise returns kNoChunk.
ChunkIndex State::find_chunk(const ChunkName& name, std::uint32_t length, const Extent& at) const {
  const ChunkIndex found = name.is_named() ? chunks_.find(name, length) : chunks_.find_place(at);
  return found != kNoChunk && chunks_.length(found) == length ? found : kNoChunk;
}

Result<Outcome> State::run(const MakeStripes& command) {
  for (const auto& stripe : command.stripes) {
    const auto well_formed = [](const Chunk& chunk) {
      return chunk.length > 0 && chunk.length <= limits::kChunkBytesMax && !chunk.copies.empty();
    };
    const auto is_named = [](const Chunk& chunk) { return chunk.name.is_named(); };
    if (stripe.data.empty() || stripe.data.size() > limits::kStripeDataMax ||
        stripe.parity.empty() || stripe.parity.size() > limits::kStripeParityMax ||
        !std::all_of(stripe.data.begin(), stripe.data.end(), well_formed) ||
        !std::all_of(stripe.parity.begin(), stripe.parity.end(), well_formed) ||
        std::any_of(stripe.parity.begin(), stripe.parity.end(), is_named)) {
      return fail(Code::kInvalidArgument, "manager.make_stripes");
    }
  }
  // A single walk finds the data chunks without names that have no place index.
  std::map<Extent, ChunkIndex> places;
  for (const auto& stripe : command.stripes) {
    for (const Chunk& chunk : stripe.data) {
      const bool found = find_chunk(chunk.name, chunk.length, chunk.copies.front()) != kNoChunk;
      if (!chunk.name.is_named() && !found) places[chunk.copies.front()] = kNoChunk;
    }
  }
  if (!places.empty()) {
    chunks_.for_each([&](ChunkIndex index) {
      if (!chunks_.has_copies(index) || chunks_.is_named(index)) return;
      for (const Extent& copy : chunks_.get(index).copies) {
        const auto place = places.find(copy);
        if (place != places.end()) place->second = index;
      }
    });
  }
  for (const auto& stripe : command.stripes) make_stripe(stripe, places);
  return Outcome{};
}

/// Adds a data chunk that the table lacks: no version uses it, but the parity covers its bytes.
void State::make_stripe(const MakeStripes::Stripe& wanted,
                        const std::map<Extent, ChunkIndex>& places) {
  Stripe stripe;
  stripe.data = static_cast<std::uint32_t>(wanted.data.size());
  for (const Chunk& chunk : wanted.data) {
    ChunkIndex index = find_chunk(chunk.name, chunk.length, chunk.copies.front());
    const auto place = places.find(chunk.copies.front());
    if (index == kNoChunk && place != places.end()) index = place->second;
    if (index == kNoChunk) index = chunks_.add(chunk);
    chunks_.refer(index, false);
    stripe.members.push_back(index);
  }
  std::vector<ChunkIndex> sorted = stripe.members;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  const bool given_up = std::any_of(sorted.begin(), sorted.end(), [this](ChunkIndex member) {
    return !chunks_.has_copies(member);
  });
  if (twice || given_up) {
    for (const ChunkIndex member : stripe.members) chunks_.release(member, false, freed_);
    return;
  }
  // Parity blocks, like the chunks without names that they protect, are found by their places.
  const Redundancy redundancy{1, limits::kStripeDataMin,
                              static_cast<std::uint32_t>(wanted.parity.size())};
  for (const Chunk& chunk : wanted.parity) {
    const ChunkIndex index = chunks_.add(chunk);
    chunks_.want(index, redundancy);
    chunks_.refer(index, false);
    stripe.members.push_back(index);
  }
  for (std::uint32_t i = 0; i < stripe.data; ++i) {
    const ChunkIndex member = stripe.members[i];
    if (stripes_.of(member) != nullptr) end_stripe(stripes_.index_of(member));
  }
  const ChunkIndex any = stripe.members.front();
  stripes_.add(std::move(stripe));
  end_if_unused(any);
}

void State::end_stripe(StripeIndex index) {
  const Stripe stripe = stripes_.remove(index);
  for (const ChunkIndex member : stripe.members) chunks_.release(member, false, freed_);
}

/// All members stay while one data chunk is used: reconstructing it needs the others.
void State::end_if_unused(ChunkIndex member) {
  const Stripe* const stripe = stripes_.of(member);
  if (stripe == nullptr) return;
  const auto data_end = stripe->members.begin() + stripe->data;
  const bool used = std::any_of(stripe->members.begin(), data_end,
                                [this](ChunkIndex chunk) { return is_used(chunk); });
  if (!used) end_stripe(stripes_.index_of(member));
}

void State::release(ChunkIndex chunk, bool undrained) {
  chunks_.release(chunk, undrained, freed_);
  end_if_unused(chunk);
  if (stripes_.of(chunk) != nullptr && !is_used(chunk)) thinned_.push_back(chunk);
}

bool State::may_be_lost(const Stripe& stripe) const {
  const auto data_end = stripe.members.begin() + stripe.data;
  return std::all_of(stripe.members.begin(), data_end,
                     [this](ChunkIndex chunk) { return chunks_.undrained(chunk) == 0; });
}

// ---- snapshot ---------------------------------------------------------------------------------

Result<Outcome> State::run(const RestoreCounters& command) {
  epoch_ = command.epoch;
  sequence_ = std::max(sequence_, command.sequence);
  mirror_sequence_ = std::max(mirror_sequence_, command.mirror_sequence);
  history_ = command.history;
  records_.clear();
  for (const EpochRecords& each : command.epochs) records_[each.epoch] = each.records;
  return Outcome{};
}

Result<Outcome> State::run(const RestoreFile& command) {
  STDCHK_TRY(check_map(command.map));
  const Attributes& from = command.attributes;
  File* parent = nullptr;
  if (from.id != kRootFile) {
    STDCHK_TRY(check_name(command.name));
    STDCHK_TRY(check_new_id(from.id));
    STDCHK_ASSIGN(parent, find_directory(command.parent));
    if (parent->children.count(command.name) > 0) return fail(Code::kExists, "manager.restore");
  } else if (from.type != FileType::kDirectory) {
    return fail(Code::kInvalidArgument, "manager.restore");
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
  file.device = from.device;
  file.xattrs.insert(command.xattrs.begin(), command.xattrs.end());
  file.policy = command.policy;
  read_rules(file);
  if (from.type == FileType::kDirectory) file.drained_sets = command.drained_sets;
  file.in_drain = command.in_drain;
  file.stale_in_drain = command.stale_in_drain;
  VersionData& newest = file.newest;
  newest.version = from.version;
  newest.mtime_ns = from.mtime_ns;
  if (from.type == FileType::kRegular) {
    newest.size_bytes = from.size_bytes;
    newest.drained = command.drained;
    newest.sequence = command.sequence;
    newest.opened = command.opened;
    newest.written = command.written > 0 ? command.written : command.sequence;
    newest.copies = std::max(command.copies, 1U);
    newest.naming = from.naming;
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
  for (const auto& [id, record] : benefactors_) {
    emit(
        AddBenefactor{id, record.life_high, record.life_low, record.arena_bytes, record.host_name});
  }
  std::vector<const File*> todo{file(kRootFile)};
  std::vector<const File*> linked;
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
    restore.opened = at.newest.opened;
    restore.written = at.newest.written;
    restore.policy = at.policy;
    restore.copies = at.newest.copies;
    restore.drained_sets = at.drained_sets;
    emit(std::move(restore));
    for (const auto& [name, id] : at.children) {
      const File& child = *file(id);
      const bool is_first = child.parent == at.id && child.name == name;
      if (is_first) todo.push_back(&child);
      if (is_first && !child.links.empty()) linked.push_back(&child);
    }
  }
  for (const File* const of : linked) {
    for (const Link& link : of->links) {
      emit(RestoreLink{of->id, link.parent, link.name, link.in_drain, link.stale_in_drain});
    }
  }
  set_generations_.snapshot(emit);
  MakeStripes stripes;
  stripes_.for_each([&](const Stripe& stripe) {
    MakeStripes::Stripe& out = stripes.stripes.emplace_back();
    for (std::size_t i = 0; i < stripe.members.size(); ++i) {
      (i < stripe.data ? out.data : out.parity).push_back(chunks_.get(stripe.members[i]));
    }
    if (stripes.stripes.size() == kStripesTogether) emit(std::exchange(stripes, {}));
  });
  if (!stripes.stripes.empty()) emit(std::move(stripes));
  for (const auto& [sequence, change] : mirror_queue_) emit(RestoreMirror{sequence, change});
  completion_records_.snapshot(emit);
  RestoreCounters counters{epoch_, sequence_, mirror_sequence_, history_};
  for (const auto& [epoch, records] : records_) counters.epochs.push_back({epoch, records});
  emit(std::move(counters));
}

bool State::lacks(Epoch epoch, std::uint64_t sequence) const {
  const auto count = records_.find(epoch);
  return count != records_.end() && sequence > count->second;
}

}  // namespace stdchk::manager
