#include "transport/verbs/peer_regions.h"

#include <utility>

namespace stdchk::transport::verbs {

void PeerRegions::add(RegionTable table) {
  const std::uint32_t number = table.number;
  tables_[number] = std::move(table);
}

Result<const RegionTable*> PeerRegions::table_of(const RemoteKey& key) const {
  const auto number = static_cast<std::uint32_t>(key.key >> 32);
  if (number == 0) return nullptr;
  const auto found = tables_.find(number);
  if (found == tables_.end() || (key.key & 0xFFFFFFFF) != 0 ||
      (key.length - 1) / found->second.part_bytes >= found->second.keys.size()) {
    return fail(Code::kInvalidArgument, "verbs.rma");
  }
  return &found->second;
}

}  // namespace stdchk::transport::verbs
