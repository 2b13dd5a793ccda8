#include "tests/sim/node_places.h"

#include <fmt/core.h>

#include <map>
#include <set>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"

namespace stdchk::sim {

void NodePlaces::observe() {
  manager::Service* const service = cluster_.manager();
  if (service == nullptr) {
    undisturbed_ = false;
    return;
  }
  const manager::Pool& pool = service->pool();
  if (benefactors_ == 0) benefactors_ = pool.benefactors().size();
  if (pool.benefactors().size() != benefactors_) undisturbed_ = false;
  for (const auto& [id, status] : pool.benefactors()) {
    const manager::Space& space = pool.space();
    const bool has_room = space.free_bytes(id) >= space.arena_bytes(id) / 4 &&
                          space.largest(id) >= 4 * extent_bytes(limits::kChunkBytesMin);
    if (status.info.state != msg::BenefactorState::kAlive || status.leaving || !has_room) {
      undisturbed_ = false;
    }
  }
}

std::vector<std::string> NodePlaces::check() {
  std::vector<std::string> wrong;
  observe();
  if (!undisturbed_) return wrong;
  const manager::ChunkTable& chunks = cluster_.manager()->state().chunks();
  std::map<BenefactorId, std::vector<BenefactorId>> places;  // by home
  chunks.for_each([&](manager::ChunkIndex index) {
    const BenefactorId home = chunks.home(index);
    if (!home || !chunks.has_copies(index)) return;
    std::vector<BenefactorId>& expected = places[home];
    if (expected.empty()) expected.push_back(home);
    ++checked_;
    const std::vector<Extent> copies = chunks.get(index).copies;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (i == expected.size()) expected.push_back(copies[i].benefactor);
      if (copies[i].benefactor == expected[i]) continue;
      wrong.push_back(
          fmt::format("nodes: copy {} of chunk {}, of benefactor {}, is on {} and others on {}", i,
                      index, home.value, copies[i].benefactor.value, expected[i].value));
    }
  });
  return wrong;
}

}  // namespace stdchk::sim
