#include "manager/arenas/claims.h"

#include "core/chunk/extent_header.h"

namespace stdchk::manager {

std::vector<Claim> Claims::all() const {
  std::vector<Claim> out = all_but_chunks();
  const ChunkTable& chunks = pool_.state().chunks();
  chunks.for_each([&](ChunkIndex index) {
    if (!chunks.has_copies(index)) return;
    const std::uint64_t bytes = extent_bytes(chunks.length(index));
    for (const Extent& copy : chunks.get(index).copies) {
      out.push_back({copy.benefactor, {copy.offset, bytes}, ClaimKind::kUsed});
    }
  });
  return out;
}

std::vector<Claim> Claims::all_but_chunks() const {
  std::vector<Claim> out;
  const auto add = [&](BenefactorId benefactor, Range range, ClaimKind kind) {
    if (range.length > 0) out.push_back({benefactor, range, kind});
  };
  for (const auto& each : pool_.benefactors()) {
    const BenefactorId id = each.first;
    const Space& space = pool_.space();
    space.for_each_free(id, [&](Range range) { add(id, range, ClaimKind::kFree); });
    space.for_each_quarantined(id, [&](Range range) { add(id, range, ClaimKind::kQuarantined); });
  }
  pool_.journal().for_each_freeing([&](const FreedExtent& freed) {
    add(freed.extent.benefactor, {freed.extent.offset, freed.bytes}, ClaimKind::kFreeing);
  });
  for (const auto& [kind, holder] : holders_) {
    holder(
        [&, kind = kind](BenefactorId benefactor, Range range) { add(benefactor, range, kind); });
  }
  return out;
}

}  // namespace stdchk::manager
