#include "tests/sim/checkers.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"

namespace stdchk::sim {

const Cluster::Benefactor* find_benefactor(Cluster& cluster, BenefactorId id) {
  for (const auto& each : cluster.benefactors()) {
    if (each.service->id() == id) return &each;
  }
  return nullptr;
}

namespace {

/// Reads the header and all bytes.
std::string fault_of(const Cluster::Benefactor& benefactor, const Chunk& chunk,
                     const Extent& extent, const std::string& where) {
  const ByteSpan arena = benefactor.arena->bytes();
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

}  // namespace

std::string check_chunk(const Cluster::Benefactor& benefactor, const Chunk& chunk,
                        const Extent& extent) {
  const auto where = [&] {
    return fmt::format("extent {} of {}", extent.offset, benefactor.node->name);
  };
  const std::uint64_t end = extent.offset + extent_bytes(chunk.length);
  if (extent.offset % limits::kExtentAlignment != 0 || end > benefactor.arena->bytes().size()) {
    return where() + " is not within the arena";
  }
  const std::uint64_t stamp =
      benefactor.watch->stamp(extent.offset, limits::kExtentHeaderBytes + chunk.length);
  Cluster::CheckedExtent& seen = (*benefactor.checked)[extent.offset];
  if (seen.stamp != stamp || seen.length != chunk.length || seen.crc != chunk.crc ||
      seen.name != chunk.name) {
    seen = {stamp, chunk.name, chunk.length, chunk.crc,
            fault_of(benefactor, chunk, extent, where())};
  }
  return seen.fault;
}

namespace {

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
      const auto* const benefactor = find_benefactor(cluster, extent.benefactor);
      if (benefactor == nullptr || rotten.count(extent) > 0) continue;
      auto text = check_chunk(*benefactor, chunk, extent);
      if (!text.empty()) wrong.push_back("M1: " + text);
    }
  });
  return wrong;
}

namespace {

/// The product in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1, computed bit by bit.
unsigned product(unsigned a, unsigned b) {
  unsigned out = 0;
  for (; b != 0; b >>= 1) {
    if ((b & 1) != 0) out ^= a;
    a = a << 1 ^ ((a & 0x80) != 0 ? 0x11DU : 0U);
  }
  return out;
}

/// The coefficient of data block `column` in parity block `row`, as docs/internals/formats.md
/// defines it.
unsigned factor(std::size_t data, std::size_t parity, std::size_t row, std::size_t column) {
  if (parity > 2) {
    const auto divisor = static_cast<unsigned>((data + row) ^ column);
    unsigned inverse = 1;
    while (product(divisor, inverse) != 1) ++inverse;
    return inverse;
  }
  unsigned out = 1;
  for (std::size_t i = 0; row == 1 && i < column; ++i) out = product(out, 2);
  return out;
}

/// A block of a stripe, of which a live benefactor holds an unchanged copy.
struct Block {
  ByteSpan content;
  std::uint64_t benefactor = 0;
  std::uint64_t offset = 0;
  std::uint64_t stamp = 0;  ///< of the WriteWatch
};

std::optional<Block> block_of(Cluster& cluster, const Chunk& chunk,
                              const std::set<Extent>& rotten) {
  for (const Extent& extent : chunk.copies) {
    const auto* const benefactor = find_benefactor(cluster, extent.benefactor);
    if (benefactor == nullptr || rotten.count(extent) > 0) continue;
    const std::uint64_t at = extent.offset + limits::kExtentHeaderBytes;
    const std::uint64_t stamp = benefactor->watch->stamp(at, chunk.length);
    return Block{ByteSpan(benefactor->arena->bytes()).subspan(at, chunk.length),
                 extent.benefactor.value, extent.offset, stamp};
  }
  return std::nullopt;
}

/// Computes the parity block of that row, byte by byte.
bool is_parity(const std::vector<Block>& blocks, std::size_t data, std::size_t row) {
  const ByteSpan parity = blocks[data + row].content;
  std::vector<unsigned> expected(parity.size());
  for (std::size_t column = 0; column < data; ++column) {
    const ByteSpan content = blocks[column].content;
    unsigned table[256];
    const unsigned by = factor(data, blocks.size() - data, row, column);
    for (unsigned i = 0; i < 256; ++i) table[i] = product(i, by);
    for (std::size_t i = 0; i < std::min(parity.size(), content.size()); ++i) {
      expected[i] ^= table[std::to_integer<unsigned>(content[i])];
    }
  }
  return std::equal(parity.begin(), parity.end(), expected.begin(),
                    [](std::byte a, unsigned b) { return std::to_integer<unsigned>(a) == b; });
}

}  // namespace

std::vector<std::string> StripeCheck::check(Cluster& cluster, const std::set<Extent>& rotten) {
  std::vector<std::string> wrong;
  if (cluster.manager() == nullptr) return wrong;
  const manager::State& state = cluster.manager()->state();
  std::set<Key> right;
  state.stripes().for_each([&](const manager::Stripe& stripe) {
    std::vector<Block> blocks;
    Key key{stripe.data};
    for (const manager::ChunkIndex member : stripe.members) {
      const auto block = block_of(cluster, state.chunks().get(member), rotten);
      if (!block) return;
      blocks.push_back(*block);
      key.insert(key.end(),
                 {block->benefactor, block->offset, block->content.size(), block->stamp});
    }
    bool all = true;
    for (std::size_t row = 0; row < stripe.parity() && !right_.contains(key); ++row) {
      if (is_parity(blocks, stripe.data, row)) continue;
      all = false;
      wrong.push_back(fmt::format("parity: block {} of the stripe of chunk {} is not made of it",
                                  stripe.data + row, stripe.members.front()));
    }
    if (all) right.insert(std::move(key));
  });
  right_ = std::move(right);
  return wrong;
}

std::vector<std::string> check_metadata(Cluster& cluster) {
  if (cluster.manager() == nullptr) return {};
  const manager::Audit audit = cluster.manager()->services().administration.audit();
  std::vector<std::string> wrong;
  for (const std::string& each : audit.reply().broken) wrong.push_back("M7: " + each);
  return wrong;
}

namespace {

/// A CopyCheck compares the copies and the parity of chunks with the redundancy that they need.
///
/// Threads: one. Limits: the manager must outlive it and must not change.
class CopyCheck {
 public:
  explicit CopyCheck(manager::Service& service) : service_(service) {
    for (const auto& [id, status] : service.pool().benefactors()) {
      if (status.info.state != msg::BenefactorState::kAlive) continue;
      hosts_[id] = status.info.host_token;
      all_hosts_.insert(status.info.host_token);
    }
  }

  void check(manager::ChunkIndex index, const LostBytes& lost) {
    const Chunk chunk = chunks_.get(index);
    std::set<std::string> used;
    std::size_t live = 0;
    for (const Extent& copy : chunk.copies) {
      if (!is_live(copy)) continue;
      ++live;
      used.insert(hosts_[copy.benefactor]);
    }
    if (live == 0) return check_lost(index, lost);
    if (!has_room_everywhere(chunk.length)) return;
    if (all_hosts_.size() >= chunks_.wanted(index) && used.size() < live) {
      wrong_.push_back(fmt::format("copies: two of chunk {} are on one host", index));
    }
    if (live < std::min<std::size_t>(chunks_.wanted(index), hosts_.size())) {
      wrong_.push_back(fmt::format("copies: chunk {} has {} of {}", index, live,
                                   std::min<std::size_t>(chunks_.wanted(index), hosts_.size())));
    }
    check_parity(index, chunk, used);
  }
  std::vector<std::string> take_wrong() { return std::move(wrong_); }

 private:
  bool is_live(const Extent& copy) const {
    return hosts_.contains(copy.benefactor) && service_.pool().is_readable(copy);
  }

  bool has_room_everywhere(std::uint32_t length) const {
    const auto& space = service_.pool().space();
    return std::all_of(hosts_.begin(), hosts_.end(), [&](const auto& each) {
      return space.largest(each.first) > extent_bytes(length) &&
             space.free_bytes(each.first) > space.arena_bytes(each.first) / 4;
    });
  }

  void check_lost(manager::ChunkIndex index, const LostBytes& lost) {
    const manager::Stripe* const stripe = service_.state().stripes().of(index);
    if (stripe == nullptr || service_.state().contents().may_be_lost(*stripe)) return;
    if (!lost.could_be_made(index)) return;
    wrong_.push_back(fmt::format("copies: chunk {} could be made from its stripe", index));
  }

  /// Drained chunks need no parity. Parity also needs more benefactors than parity blocks.
  void check_parity(manager::ChunkIndex index, const Chunk& chunk,
                    const std::set<std::string>& used) {
    const Redundancy redundancy = chunks_.redundancy(index);
    if (!redundancy.has_parity() || chunks_.undrained(index) == 0) return;
    if (hosts_.size() <= redundancy.parity) return;
    const manager::Stripe* const stripe = service_.state().stripes().of(index);
    if (stripe != nullptr) return check_places(index, *stripe);
    // A single benefactor makes all parity of a stripe, on another host if enough hosts exist.
    const bool by_host = all_hosts_.size() >= redundancy.parity + 2;
    const auto fits = [&](const auto& each) {
      const auto is_here = [&](const Extent& copy) { return copy.benefactor == each.first; };
      const bool near =
          by_host ? used.contains(each.second) : std::ranges::any_of(chunk.copies, is_here);
      return !near && service_.pool().space().fits(each.first, extent_bytes(chunk.length),
                                                   redundancy.parity);
    };
    if (!std::ranges::any_of(hosts_, fits)) return;
    wrong_.push_back(fmt::format("parity: chunk {} has none", index));
  }

  /// Checks that the blocks of a stripe are on different benefactors. Moving a block needs room,
  /// even for the stripe's longest block.
  void check_places(manager::ChunkIndex index, const manager::Stripe& stripe) {
    std::set<BenefactorId> apart;
    std::uint32_t longest = 0;
    for (const manager::ChunkIndex member : stripe.members) {
      longest = std::max(longest, chunks_.length(member));
      for (const Extent& copy : chunks_.get(member).copies) {
        if (is_live(copy)) apart.insert(copy.benefactor);
      }
    }
    if (apart.size() >= std::min(stripe.members.size(), hosts_.size())) return;
    if (!has_room_everywhere(longest)) return;
    wrong_.push_back(fmt::format("parity: the {} blocks of the stripe of chunk {} are on {}",
                                 stripe.members.size(), index, apart.size()));
  }

  manager::Service& service_;
  const manager::ChunkTable& chunks_ = service_.state().chunks();
  std::map<BenefactorId, std::string> hosts_;  ///< host of each live benefactor
  std::set<std::string> all_hosts_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> check_copies(Cluster& cluster, const LostBytes& lost) {
  CopyCheck check(*cluster.manager());
  cluster.manager()->state().chunks().for_each(
      [&](manager::ChunkIndex index) { check.check(index, lost); });
  return check.take_wrong();
}

std::vector<std::string> check_redundant(Cluster& cluster, FileId file, Version version,
                                         bool nothing_lost) {
  std::vector<std::string> wrong;
  if (cluster.manager() == nullptr) return wrong;
  const manager::State& state = cluster.manager()->state();
  const manager::VersionData* const committed = state.version(file, version);
  if (committed == nullptr) return wrong;
  const Redundancy wanted = redundancy_of(committed->copies).value_or(Redundancy{});
  const auto places = [&](manager::ChunkIndex chunk) {
    std::set<BenefactorId> out;
    for (const Extent& copy : state.chunks().get(chunk).copies) {
      const bool is_read = find_benefactor(cluster, copy.benefactor) != nullptr &&
                           cluster.manager()->pool().is_readable(copy);
      if (!nothing_lost || is_read) out.insert(copy.benefactor);
    }
    return out.size();
  };
  for (const manager::PackedSlice& slice : committed->slices) {
    if (!state.chunks().has_copies(slice.chunk)) continue;
    if (places(slice.chunk) < wanted.copies) {
      wrong.push_back(fmt::format("redundant: chunk {} has {} of {} copies", slice.chunk,
                                  places(slice.chunk), wanted.copies));
    }
    // A drained version needs no parity. Its chunk may still belong to an undrained version.
    if (!wanted.has_parity() || committed->drained) continue;
    if (state.chunks().undrained(slice.chunk) == 0) continue;
    const manager::Stripe* const stripe = state.stripes().of(slice.chunk);
    if (stripe == nullptr || stripe->parity() < wanted.parity) {
      wrong.push_back(fmt::format("redundant: chunk {} is in no stripe", slice.chunk));
      continue;
    }
    for (const manager::ChunkIndex member : stripe->members) {
      if (places(member) > 0) continue;
      wrong.push_back(
          fmt::format("redundant: a block of the stripe of chunk {} is not there", member));
    }
  }
  return wrong;
}

namespace {

/// A client that is cut off does not notice that its link was closed, so its benefactor is asked.
bool can_write(Cluster& cluster, PlainClient& client, BenefactorId id) {
  if (!client.node().endpoint.stalled()) return client.reaches(id);
  const auto* const benefactor = find_benefactor(cluster, id);
  return benefactor != nullptr && benefactor->service->is_attached(client.id());
}

}  // namespace

std::vector<std::string> check_grants(Cluster& cluster, const std::vector<PlainClient*>& clients,
                                      const PlainClient& who) {
  std::vector<std::string> wrong;
  for (const auto& [own_id, own] : who.known()) {
    const Grant& grant = own.second;
    if (!who.reaches(grant.benefactor)) continue;
    for (PlainClient* const client : clients) {
      if (!can_write(cluster, *client, grant.benefactor)) continue;
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

std::string describe(const Faults& faults) {
  const transport::fault::Counts& of = faults.transport;
  return fmt::format(
      "delays {}, overtaken messages {}, requests lost with their link {}, answers lost with their "
      "link {}, other messages lost with their link {}, lost messages {}, repeated messages {}, "
      "lost links {}, failed transfers {}, torn writes {}, late writes {}, failed drain jobs {}, "
      "drain jobs without room {}, slow jobs {}, lost commands {}, standbys that took over {}, "
      "superseded managers {}",
      of.delayed, of.overtaken, of.requests_lost, of.answers_lost, of.others_lost, of.messages_lost,
      of.repeated, of.dropped, of.failed, of.torn, of.late, faults.storage.failed,
      faults.storage.full, faults.slow_jobs, faults.commands, faults.take_overs, faults.superseded);
}

std::vector<std::string> check_empty(Cluster& cluster) {
  std::vector<std::string> wrong;
  for (const auto& each : cluster.benefactors()) {
    const std::uint64_t free = cluster.manager()->pool().space().free_bytes(each.service->id());
    if (free == each.arena->bytes().size()) continue;
    wrong.push_back(fmt::format("leak: {} has {} of {} bytes free in an empty pool",
                                each.node->name, free, each.arena->bytes().size()));
  }
  return wrong;
}

std::vector<std::string> check_forgotten(Cluster& cluster) {
  std::vector<std::string> wrong;
  for (const auto& each : cluster.benefactors()) {
    const ByteSpan arena = each.arena->bytes();
    std::uint64_t headers = 0;
    for (std::uint64_t at = 0; at < arena.size(); at += limits::kExtentAlignment) {
      headers += decode_extent_header(arena.subspan(at)).has_value() ? 1 : 0;
    }
    if (headers == 0) continue;
    wrong.push_back(
        fmt::format("garbage: {} has {} headers that nothing refers to", each.node->name, headers));
  }
  return wrong;
}

}  // namespace stdchk::sim
