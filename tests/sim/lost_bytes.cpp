#include "tests/sim/lost_bytes.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"
#include "tests/sim/checkers.h"

namespace stdchk::sim {
namespace {

/// Share of each arena that is reserved for chunks with a single copy.
constexpr std::uint64_t kReservePercent = 25;

}  // namespace

// ---- where chunks are ---------------------------------------------------------------------------

bool LostBytes::is_good(const Chunk& chunk, const Extent& extent, BenefactorId gone) const {
  if (extent.benefactor == gone) return false;
  const auto* const benefactor = find_benefactor(cluster_, extent.benefactor);
  return benefactor != nullptr && check_chunk(*benefactor, chunk, extent).empty();
}

bool LostBytes::is_durable(const Extent& extent) const {
  const auto found = seen_.find(extent);
  return found != seen_.end() &&
         found->second.commands <= cluster_.manager()->pool().journal().durable();
}

/// Records all places in the map. A place that a new manager has loaded is durable; a later one is
/// durable once its command is.
void LostBytes::note_all_places() {
  const manager::Service& service = *cluster_.manager();
  const auto before = std::exchange(seen_, {});
  const bool same = epoch_ == state().epoch();
  epoch_ = state().epoch();
  state().chunks().for_each([&](manager::ChunkIndex index) {
    const Chunk chunk = state().chunks().get(index);
    for (const Extent& copy : chunk.copies) {
      const auto found = before.find(copy);
      const bool known = same && found != before.end() && found->second.crc == chunk.crc;
      seen_[copy] = known ? found->second
                          : Seen{chunk.crc, cluster_.now(), service.pool().journal().appended()};
    }
  });
}

LostBytes::Places LostBytes::copies_without(BenefactorId gone) const {
  Places out;
  state().chunks().for_each([&](manager::ChunkIndex index) {
    const Chunk chunk = state().chunks().get(index);
    Place& place = out[index];
    for (const Extent& copy : chunk.copies) {
      if (!is_good(chunk, copy, gone)) continue;
      const bool stays = is_durable(copy);
      const bool reached = stays && cluster_.manager()->pool().is_reachable(copy);
      place.copy = std::max(place.copy, stays ? Where::kHere : Where::kMayBeGivenUp);
      place.block = std::max(place.block, reached ? Where::kHere : Where::kMayBeGivenUp);
    }
  });
  return out;
}

/// A stripe with as many good blocks as it has data blocks can make every other block.
LostBytes::Where LostBytes::place_of(const Places& copies, manager::ChunkIndex chunk) const {
  const manager::Stripe* const stripe = state().stripes().of(chunk);
  if (stripe == nullptr) return copies.at(chunk).copy;
  std::vector<Where> blocks;
  for (const manager::ChunkIndex member : stripe->members) {
    blocks.push_back(copies.at(member).block);
  }
  std::sort(blocks.rbegin(), blocks.rend());
  return std::max(copies.at(chunk).copy, blocks[stripe->data - 1]);
}

/// Whether the drain directory has the slice, under its name or where it was set aside. While names
/// are changing, the answer is yes unread.
bool LostBytes::in_drain(const manager::File& file, const manager::VersionData& version,
                         const manager::PackedSlice& slice) const {
  if (drain_directory_.empty()) return false;
  const Chunk chunk = state().chunks().get(slice.chunk);
  if (!version.drained && !chunk.copies.empty()) return false;
  const auto path = cluster_.manager()->planners().drain.drained_path(file, version);
  if (!path.has_value() || !state().mirror_queue().empty()) return true;
  std::ifstream in(drain_directory_ + "/" + *path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(slice.file_offset));
  std::string bytes(slice.length, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::size_t>(in.gcount()) != bytes.size()) return false;
  return slice.length != chunk.length || chunk.crc == 0 ||
         crc32c(0, std::as_bytes(std::span(bytes))) == chunk.crc;
}

// ---- what may be lost ---------------------------------------------------------------------------

bool LostBytes::is_safe(manager::ChunkIndex chunk) const {
  return std::ranges::all_of(state().chunks().get(chunk).copies,
                             [this](const Extent& copy) { return safe_.contains(copy); });
}

void LostBytes::note_places(manager::ChunkIndex chunk, bool safe, BenefactorId gone) {
  const Chunk told = state().chunks().get(chunk);
  for (const Extent& copy : told.copies) {
    if (is_good(told, copy, gone)) continue;
    if (safe) {
      safe_.insert(copy);
    } else {
      safe_.erase(copy);
    }
  }
}

/// Whether another live benefactor has a corrupt copy that no scrub has found.
bool LostBytes::has_unknown_loss(manager::ChunkIndex chunk, BenefactorId gone) const {
  return std::ranges::any_of(state().chunks().get(chunk).copies, [&](const Extent& copy) {
    return copy.benefactor != gone && find_benefactor(cluster_, copy.benefactor) != nullptr;
  });
}

void LostBytes::benefactor_ends(std::size_t index, std::optional<Time> left) {
  const BenefactorId gone = cluster_.benefactors()[index].service->id();
  // A loss cannot be judged without the benefactor's id and a manager.
  if (!gone || cluster_.manager() == nullptr) return;
  note_all_places();
  // Forget places outside this manager's map: a crash may bring them back, so they are not judged.
  std::erase_if(safe_, [&](const Extent& place) { return !seen_.contains(place); });
  const Places before = copies_without({});
  const Places after = copies_without(gone);
  state().chunks().for_each([&](manager::ChunkIndex chunk) {
    note_places(chunk, place_of(after, chunk) == Where::kHere, gone);
    if (state().chunks().undrained(chunk) == 0 || place_of(after, chunk) != Where::kNowhere ||
        place_of(before, chunk) == Where::kNowhere) {
      return;
    }
    ++lost_;
    if (!left.has_value() || !has_room(chunk, gone, 0) || has_unknown_loss(chunk, gone)) return;
    for (const Extent& copy : state().chunks().get(chunk).copies) {
      if (copy.benefactor != gone || !is_durable(copy) || seen_.at(copy).first > *left) continue;
      wrong_.push_back(fmt::format("leave: benefactor {} may go, and has the only copy of chunk {}",
                                   gone.value, chunk));
    }
  });
}

/// Whether a benefactor whose host holds nothing of the stripe has room.
bool LostBytes::has_room(manager::ChunkIndex chunk, BenefactorId leaving,
                         std::uint64_t reserve_percent) const {
  manager::Service& service = *cluster_.manager();
  const auto& all = service.pool().benefactors();
  std::set<std::string> taken;
  if (const manager::Stripe* const stripe = state().stripes().of(chunk)) {
    for (const manager::ChunkIndex member : stripe->members) {
      if (member == chunk) continue;
      for (const Extent& copy : state().chunks().get(member).copies) {
        const auto found = all.find(copy.benefactor);
        if (found != all.end()) taken.insert(found->second.info.host_token);
      }
    }
  }
  const std::uint64_t bytes = extent_bytes(state().chunks().length(chunk));
  return std::ranges::any_of(all, [&](const auto& each) {
    const auto& [id, status] = each;
    return id != leaving && status.info.state == msg::BenefactorState::kAlive &&
           status.peer != nullptr && !status.leaving && service.pool().space().usable(id) &&
           !taken.contains(status.info.host_token) &&
           service.pool().space().free_bytes(id) >=
               bytes + status.info.arena_bytes / 100 * reserve_percent &&
           service.pool().space().largest(id) >= bytes;
  });
}

// ---- at each step -------------------------------------------------------------------------------

std::vector<std::string> LostBytes::check() {
  std::vector<std::string> wrong = std::exchange(wrong_, {});
  if (cluster_.manager() == nullptr) return wrong;
  note_all_places();
  const Places copies = copies_without({});
  state().chunks().for_each([&](manager::ChunkIndex chunk) {
    const Where where = place_of(copies, chunk);
    if (where != Where::kNowhere) note_places(chunk, where == Where::kHere, {});
  });
  state().files().for_each([&](const manager::File& file) {
    check_version(file, file.newest, copies, wrong);
    for (const auto& [number, version] : file.older) check_version(file, version, copies, wrong);
  });
  return wrong;
}

void LostBytes::check_version(const manager::File& file, const manager::VersionData& version,
                              const Places& copies, std::vector<std::string>& wrong) {
  for (const manager::PackedSlice& slice : version.slices) {
    if (place_of(copies, slice.chunk) != Where::kNowhere || in_drain(file, version, slice)) {
      continue;
    }
    lost_at_[file.id] = cluster_.now();
    // The manager keeps one of several surplus copies, perhaps the corrupt one.
    const bool excused = !is_safe(slice.chunk) || has_unknown_loss(slice.chunk, {});
    if (!version.drained && excused) continue;
    wrong.push_back(fmt::format(
        "lost: {} bytes of file {}, version {}, at {} are nowhere, and were not lost with any "
        "benefactor",
        slice.length, state().path(file), version.version, slice.file_offset));
    return;
  }
}

bool LostBytes::is_there(const manager::File& file, bool copies_only) const {
  const Places copies = copies_without({});
  return std::ranges::all_of(file.newest.slices, [&](const manager::PackedSlice& slice) {
    const Where where = copies_only ? copies.at(slice.chunk).copy : place_of(copies, slice.chunk);
    return where != Where::kNowhere || in_drain(file, file.newest, slice);
  });
}

bool LostBytes::could_be_made(manager::ChunkIndex chunk) const {
  const Places copies = copies_without({});
  return copies.at(chunk).copy == Where::kNowhere && place_of(copies, chunk) != Where::kNowhere &&
         has_room(chunk, {}, kReservePercent);
}

bool LostBytes::since(FileId file, Time time) const {
  const auto found = lost_at_.find(file);
  return found != lost_at_.end() && found->second >= time;
}

}  // namespace stdchk::sim
