#pragma once

#include <cstdint>
#include <map>

#include "core/base/result.h"
#include "transport/transport.h"
#include "transport/verbs/fragment.h"

namespace stdchk::transport::verbs {

/// A PeerRegions has the tables of keys of the peer's regions that are registered in parts.
class PeerRegions {
 public:
  /// The peer sends so many tables before the link may be used.
  void expect(std::uint32_t tables) { expected_ = tables; }
  bool has_all() const { return tables_.size() >= expected_; }
  void add(RegionTable table);
  /// Returns the table of `key`, or null for a region in one part. kInvalidArgument: the peer has
  /// sent no such table.
  Result<const RegionTable*> table_of(const RemoteKey& key) const;

 private:
  std::map<std::uint32_t, RegionTable> tables_;  ///< by number
  std::uint32_t expected_ = 0;
};

}  // namespace stdchk::transport::verbs
