#include "tests/sim/checkers.h"

#include <fmt/core.h>

#include "core/extent_header.h"
#include "core/naming.h"

namespace stdchk::sim {

namespace {

const Cluster::Benefactor* find(Cluster& cluster, BenefactorId id) {
  for (const auto& each : cluster.benefactors()) {
    if (each.service->id() == id) return &each;
  }
  return nullptr;
}

std::string check_chunk(Cluster& cluster, const Chunk& chunk, const Extent& extent) {
  const auto* const benefactor = find(cluster, extent.benefactor);
  if (benefactor == nullptr) return {};
  const ByteSpan arena = benefactor->arena->bytes();
  const std::string where = fmt::format("extent {} of {}", extent.offset, benefactor->node->name);
  if (extent.offset % limits::kExtentAlignment != 0 ||
      extent.offset + extent_bytes(chunk.length) > arena.size()) {
    return where + " is not within the arena";
  }
  const auto header =
      decode_extent_header(arena.subspan(extent.offset, limits::kExtentHeaderBytes));
  if (!header.has_value()) return where + " has no header";
  if (header->length != chunk.length || header->crc != chunk.crc || header->name != chunk.name) {
    return where + " has another chunk's header";
  }
  const ByteSpan content = arena.subspan(extent.offset + limits::kExtentHeaderBytes, chunk.length);
  if (crc32c(0, content) != chunk.crc) return where + " has bytes that are not the chunk's";
  return {};
}

bool overlap(const Grant& a, const Grant& b) {
  return a.benefactor == b.benefactor && a.offset < b.offset + b.length &&
         b.offset < a.offset + a.length;
}

}  // namespace

std::vector<std::string> check_committed(Cluster& cluster) {
  std::vector<std::string> wrong;
  if (cluster.manager() == nullptr) return wrong;
  const manager::ChunkTable& chunks = cluster.manager()->state().chunks();
  chunks.for_each([&](manager::ChunkIndex index) {
    const Chunk chunk = chunks.get(index);
    for (const Extent& extent : chunk.copies) {
      auto text = check_chunk(cluster, chunk, extent);
      if (!text.empty()) wrong.push_back("M1: " + text);
    }
  });
  return wrong;
}

std::vector<std::string> check_grants(const std::vector<PlainClient*>& clients,
                                      const PlainClient& who) {
  std::vector<std::string> wrong;
  for (const auto& [own_id, own] : who.known()) {
    const Grant& grant = own.second;
    if (!who.reaches(grant.benefactor)) continue;
    for (const PlainClient* client : clients) {
      if (!client->reaches(grant.benefactor)) continue;
      for (const auto& [id, known] : client->known()) {
        if (id == own_id || !overlap(known.second, grant)) continue;
        wrong.push_back(fmt::format(
            "M3: grant {} [{}, +{}) of benefactor {} of client {} overlaps grant {} of client {}",
            own_id.value, grant.offset, grant.length, grant.benefactor.value, who.id().value,
            id.value, client->id().value));
      }
    }
  }
  return wrong;
}

std::vector<std::string> check_empty(Cluster& cluster) {
  std::vector<std::string> wrong;
  for (const auto& each : cluster.benefactors()) {
    const std::uint64_t free = cluster.manager()->space().free_bytes(each.service->id());
    if (free == each.arena->bytes().size()) continue;
    wrong.push_back(fmt::format("leak: {} has {} of {} bytes free in an empty pool",
                                each.node->name, free, each.arena->bytes().size()));
  }
  return wrong;
}

}  // namespace stdchk::sim
