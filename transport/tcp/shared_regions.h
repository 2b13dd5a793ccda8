#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "transport/tcp/frame.h"
#include "transport/tcp/pieces.h"
#include "transport/tcp/region.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

/// A WriteGuard asks the WriteCheck of a region again when the check has changed during a write.
struct WriteGuard {
  std::shared_ptr<WriteCheck> check;  ///< null: the peer may write the whole region
  std::uint64_t revision = 0;         ///< of `check`, when the guard asked it last
  std::uint64_t offset = 0;           ///< of the written part, in the region
  std::uint64_t length = 0;

  /// Returns false when the peer must not write the part any more.
  bool is_write_allowed();
};

/// A Target is the memory that the content of a frame is written to, or read from.
///
/// Owns: nothing of the memory.
struct Target {
  Pieces pieces;                      ///< the rest, not moved yet
  const TcpRegion* region = nullptr;  ///< null: the memory belongs to a transfer of this end
  WriteGuard guard;
};

/// A SharedRegions has the keys by which the peer of one link reaches regions of this process.
///
/// Each key is 64 random bits, and is valid on this link only.
/// Errors: an access without a right is an empty Target. The caller then ends the link.
class SharedRegions {
 public:
  /// Returns the key of `region`: the earlier key, if the region was shared in the same way.
  /// `check` null: `writable` holds for the whole region.
  RemoteKey share(const TcpRegion& region, bool writable, std::shared_ptr<WriteCheck> check);
  /// Makes the keys of `region` invalid.
  void forget(const TcpRegion& region);

  /// Returns the memory that a kWrite or kRead frame names. Empty: the peer has no right to it.
  Target target(const FrameHeader& header) const;
  /// Passes the grant of a kGrant frame to the region's WriteCheck. Returns false when the key has
  /// no WriteCheck, or when the check refuses the grant.
  bool present(const FrameHeader& header, const GrantContent& content) const;

 private:
  struct Shared {
    const TcpRegion* region = nullptr;
    bool writable = false;
    std::shared_ptr<WriteCheck> check;
    bool operator==(const Shared&) const = default;
  };
  std::unordered_map<std::uint64_t, Shared> by_key_;
};

}  // namespace stdchk::transport::tcp
