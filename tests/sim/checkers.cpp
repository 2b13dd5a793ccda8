#include "tests/sim/checkers.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

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

std::vector<std::string> check_committed(Cluster& cluster, const std::set<Extent>& rotten) {
  std::vector<std::string> wrong;
  if (cluster.manager() == nullptr) return wrong;
  const manager::ChunkTable& chunks = cluster.manager()->state().chunks();
  chunks.for_each([&](manager::ChunkIndex index) {
    const Chunk chunk = chunks.get(index);
    for (const Extent& extent : chunk.copies) {
      if (rotten.count(extent) > 0) continue;
      auto text = check_chunk(cluster, chunk, extent);
      if (!text.empty()) wrong.push_back("M1: " + text);
    }
  });
  return wrong;
}

std::vector<std::string> check_metadata(Cluster& cluster) {
  if (cluster.manager() == nullptr) return {};
  const manager::Audit audit(*cluster.manager());
  std::vector<std::string> wrong;
  for (const std::string& each : audit.reply().broken) wrong.push_back("M7: " + each);
  return wrong;
}

std::vector<std::string> check_copies(Cluster& cluster) {
  std::vector<std::string> wrong;
  manager::Service& service = *cluster.manager();
  const manager::ChunkTable& chunks = service.state().chunks();
  std::map<BenefactorId, std::string> hosts;
  for (const auto& [id, status] : service.benefactors()) {
    if (status.info.state == msg::BenefactorState::kAlive) hosts[id] = status.info.host_token;
  }
  std::set<std::string> all_hosts;
  for (const auto& [id, host] : hosts) all_hosts.insert(host);
  chunks.for_each([&](manager::ChunkIndex index) {
    const Chunk chunk = chunks.get(index);
    std::set<std::string> used;
    std::size_t live = 0;
    for (const Extent& copy : chunk.copies) {
      const auto host = hosts.find(copy.benefactor);
      if (host == hosts.end() || !service.live(copy)) continue;
      ++live;
      used.insert(host->second);
    }
    if (live == 0) return;
    const std::size_t wanted = std::min<std::size_t>(chunks.wanted(index), hosts.size());
    const auto room = [&](const auto& each) {
      return service.space().largest(each.first) > extent_bytes(chunk.length) &&
             service.space().free_bytes(each.first) > service.arena_bytes(each.first) / 4;
    };
    if (!std::all_of(hosts.begin(), hosts.end(), room)) return;
    if (all_hosts.size() >= chunks.wanted(index) && used.size() < live) {
      wrong.push_back(fmt::format("copies: two of chunk {} are on one host", index));
    }
    if (live < wanted) {
      wrong.push_back(fmt::format("copies: chunk {} has {} of {}", index, live, wanted));
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
