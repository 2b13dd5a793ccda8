#include "manager/state/content_table.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::manager {

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

ChunkMap ContentTable::map_page(const VersionData& version, std::size_t first,
                                std::size_t count) const {
  ChunkMap page;
  std::unordered_map<ChunkIndex, std::uint32_t> numbers;
  const std::size_t end = std::min(version.slices.size(), first + count);
  for (std::size_t i = first; i < end; ++i) {
    const PackedSlice& slice = version.slices[i];
    const auto [number, added] =
        numbers.emplace(slice.chunk, static_cast<std::uint32_t>(page.chunks.size()));
    if (added) page.chunks.push_back(chunks_.get(slice.chunk));
    page.slices.push_back({slice.file_offset, slice.length, slice.chunk_offset, number->second});
  }
  return page;
}

std::vector<BenefactorId> ContentTable::homes_of(const VersionData& version) const {
  std::vector<BenefactorId> homes;
  if (!chunks_.has_homes()) return homes;
  std::unordered_set<ChunkIndex> seen;
  bool any = false;
  for (const PackedSlice& slice : version.slices) {
    if (!seen.insert(slice.chunk).second) continue;
    homes.push_back(chunks_.home(slice.chunk));
    any = any || homes.back();
  }
  if (!any) homes.clear();
  return homes;
}

bool ContentTable::needs_drained(const VersionData& version) const {
  return version.drained ||
         std::any_of(version.slices.begin(), version.slices.end(),
                     [this](const PackedSlice& slice) { return !chunks_.has_copies(slice.chunk); });
}

bool ContentTable::older_needs_name(const File& file) const {
  return std::any_of(file.older.begin(), file.older.end(), [this](const auto& older) {
    return older.second.aside == 0 && needs_drained(older.second);
  });
}

bool ContentTable::may_be_lost(const Stripe& stripe) const {
  const auto data_end = stripe.members.begin() + stripe.data;
  return std::all_of(stripe.members.begin(), data_end,
                     [this](ChunkIndex chunk) { return chunks_.undrained(chunk) == 0; });
}

ContentTable::Resolved ContentTable::resolve(const ChunkMap& written,
                                             const std::vector<BenefactorId>& homes,
                                             const File* file) {
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
  for (std::size_t i = 0; i < written.chunks.size(); ++i) {
    const Chunk& chunk = written.chunks[i];
    const BenefactorId home = i < homes.size() ? homes[i] : BenefactorId{};
    ChunkIndex index = kNoChunk;
    if (chunk.name.is_named()) {
      index = chunks_.find(chunk.name, chunk.length, home);
      if (index != kNoChunk && !chunk.copies.empty())
        chunks_.set_copies(index, chunk.copies, freed_);
    } else if (!chunk.copies.empty()) {
      index = find_unnamed(chunk.copies.front());
    }
    if (index == kNoChunk) {
      index = chunks_.add(chunk, home);
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

void ContentTable::refer(const VersionData& version) {
  for (const PackedSlice& slice : version.slices) {
    chunks_.refer(slice.chunk, !version.drained);
    chunks_.strengthen(slice.chunk, redundancy_of(version.copies).value_or(Redundancy{}));
  }
}

void ContentTable::drop(VersionData& version) {
  for (const PackedSlice& slice : version.slices) {
    release(slice.chunk, !version.drained);
  }
  version.slices.clear();
}

void ContentTable::mark_drained(const VersionData& version) {
  for (const PackedSlice& slice : version.slices) chunks_.mark_drained(slice.chunk);
}

void ContentTable::mark_undrained(const VersionData& version) {
  for (const PackedSlice& slice : version.slices) chunks_.mark_undrained(slice.chunk);
}

/// Refuses to give up memory of chunks that are not drained (rule M5).
Status ContentTable::evict(const VersionData& version, const std::vector<std::uint32_t>& slices) {
  for (const std::uint32_t number : slices) {
    if (number >= version.slices.size()) return fail(Code::kInvalidArgument, "manager.evict");
    const ChunkIndex chunk = version.slices[number].chunk;
    const Stripe* const stripe = stripes_.of(chunk);
    if (chunks_.undrained(chunk) > 0 || (stripe != nullptr && !may_be_lost(*stripe))) {
      return fail(Code::kInvalidArgument, "manager.evict");
    }
  }
  for (const std::uint32_t number : slices) {
    const ChunkIndex chunk = version.slices[number].chunk;
    if (stripes_.of(chunk) != nullptr) end_stripe(stripes_.index_of(chunk));
    chunks_.set_copies(chunk, {}, freed_);
  }
  return {};
}

void ContentTable::release(ChunkIndex chunk, bool undrained) {
  chunks_.release(chunk, undrained, freed_);
  end_if_unused(chunk);
  if (stripes_.of(chunk) != nullptr && !is_used(chunk)) unused_stripe_members_.push_back(chunk);
}

Result<Affected> ContentTable::run(const MoveChunks& command) {
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
  return Affected{};
}

bool ContentTable::change_copies(ChunkIndex index, const ChangeCopies::Change& change) {
  std::vector<Extent> copies = chunks_.get(index).copies;
  if (std::find(copies.begin(), copies.end(), change.at) == copies.end()) return false;
  if (change.add.benefactor) copies.push_back(change.add);
  std::erase(copies, change.drop);
  if (copies.empty() || copies.size() > limits::kCopiesMax) return false;
  chunks_.set_copies(index, copies, freed_);
  return true;
}

Result<Affected> ContentTable::run(const ChangeCopies& command) {
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
  if (unnamed.empty()) return Affected{};
  chunks_.for_each([&](ChunkIndex index) {
    if (!chunks_.has_copies(index) || chunks_.is_named(index)) return;
    for (const Extent& copy : chunks_.get(index).copies) {
      const auto change = unnamed.find(copy);
      if (change == unnamed.end() || chunks_.length(index) != change->second->length) continue;
      change_copies(index, *change->second);
      break;
    }
  });
  return Affected{};
}

/// Finds a chunk by its name, or by its place if parity is wanted for it; otherwise returns
/// kNoChunk. Among chunks of one name it prefers the chunk with a copy at `at`.
ChunkIndex ContentTable::find_chunk(const ChunkName& name, std::uint32_t length,
                                    const Extent& at) const {
  ChunkIndex found = name.is_named() ? chunks_.find_at(name, length, at) : chunks_.find_place(at);
  if (found == kNoChunk && name.is_named()) found = chunks_.find(name, length);
  return found != kNoChunk && chunks_.length(found) == length ? found : kNoChunk;
}

Result<Affected> ContentTable::run(const MakeStripes& command) {
  for (const auto& stripe : command.stripes) {
    const auto is_sound = [](const Chunk& chunk) {
      return chunk.length > 0 && chunk.length <= limits::kChunkBytesMax && !chunk.copies.empty();
    };
    const auto is_named = [](const Chunk& chunk) { return chunk.name.is_named(); };
    if (stripe.data.empty() || stripe.data.size() > limits::kStripeDataMax ||
        stripe.parity.empty() || stripe.parity.size() > limits::kStripeParityMax ||
        !std::all_of(stripe.data.begin(), stripe.data.end(), is_sound) ||
        !std::all_of(stripe.parity.begin(), stripe.parity.end(), is_sound) ||
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
  return Affected{};
}

/// Adds a data chunk that the table lacks: no version uses it, but the parity covers its bytes.
void ContentTable::make_stripe(const MakeStripes::Stripe& wanted,
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
    chunks_.strengthen(index, redundancy);
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

void ContentTable::end_stripe(StripeIndex index) {
  const Stripe stripe = stripes_.remove(index);
  for (const ChunkIndex member : stripe.members) chunks_.release(member, false, freed_);
}

/// All members stay while one data chunk is used: reconstructing it needs the others.
void ContentTable::end_if_unused(ChunkIndex member) {
  const Stripe* const stripe = stripes_.of(member);
  if (stripe == nullptr) return;
  const auto data_end = stripe->members.begin() + stripe->data;
  const bool used = std::any_of(stripe->members.begin(), data_end,
                                [this](ChunkIndex chunk) { return is_used(chunk); });
  if (!used) end_stripe(stripes_.index_of(member));
}

}  // namespace stdchk::manager
