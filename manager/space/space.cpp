#include "manager/space/space.h"

#include "core/base/log.h"

namespace stdchk::manager {

void Space::add(BenefactorId benefactor, std::uint64_t arena_bytes, bool usable) {
  arenas_[benefactor] = Arena{FreeSpace(arena_bytes), usable, {}};
}

bool Space::usable(BenefactorId benefactor) const {
  const auto arena = arenas_.find(benefactor);
  return arena != arenas_.end() && arena->second.usable;
}

Status Space::occupy(const Extent& extent, std::uint64_t bytes) {
  const auto arena = arenas_.find(extent.benefactor);
  if (arena == arenas_.end()) return fail(Code::kNotFound, "space.occupy");
  return arena->second.free.take_exactly({extent.offset, bytes});
}

std::optional<Range> Space::take(BenefactorId benefactor, std::uint64_t want,
                                 std::uint64_t minimum) {
  if (!usable(benefactor)) return std::nullopt;
  return arenas_.at(benefactor).free.take(want, minimum);
}

Status Space::take_exactly(BenefactorId benefactor, Range range) {
  if (!usable(benefactor)) return fail(Code::kBusy, "space.take");
  return arenas_.at(benefactor).free.take_exactly(range);
}

void Space::release(BenefactorId benefactor, Range range) {
  const auto arena = arenas_.find(benefactor);
  if (arena == arenas_.end() || range.length == 0) return;
  if (!arena->second.free.release(range)) {
    log::error("space: range {} + {} of benefactor {} is free already", range.offset, range.length,
               benefactor.value);
  }
}

void Space::quarantine(BenefactorId benefactor, Range range, ClientId client) {
  const auto arena = arenas_.find(benefactor);
  if (arena == arenas_.end() || range.length == 0) return;
  arena->second.quarantine[client].push_back(range);
}

void Space::fenced(BenefactorId benefactor, ClientId client) {
  const auto arena = arenas_.find(benefactor);
  if (arena == arenas_.end()) return;
  auto ranges = arena->second.quarantine.extract(client);
  if (ranges.empty()) return;
  for (const Range& range : ranges.mapped()) release(benefactor, range);
}

std::vector<BenefactorId> Space::quarantined_at(ClientId client) const {
  std::vector<BenefactorId> out;
  for (const auto& [id, arena] : arenas_) {
    if (arena.quarantine.count(client) > 0) out.push_back(id);
  }
  return out;
}

std::uint64_t Space::free_bytes(BenefactorId benefactor) const {
  const auto arena = arenas_.find(benefactor);
  return arena == arenas_.end() ? 0 : arena->second.free.free_bytes();
}

std::uint64_t Space::arena_bytes(BenefactorId benefactor) const {
  const auto arena = arenas_.find(benefactor);
  return arena == arenas_.end() ? 0 : arena->second.free.arena_bytes();
}

std::uint64_t Space::largest(BenefactorId benefactor) const {
  const auto arena = arenas_.find(benefactor);
  return arena == arenas_.end() ? 0 : arena->second.free.largest();
}

bool Space::fits(BenefactorId benefactor, std::uint64_t each_bytes, std::size_t count) const {
  const auto arena = arenas_.find(benefactor);
  return arena != arenas_.end() && arena->second.free.fits(each_bytes, count);
}

}  // namespace stdchk::manager
