#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "core/base/result.h"

namespace stdchk::transport::verbs {

/// Receives that are posted beyond the receives of links.
inline constexpr std::size_t kSpareReceives = 32;

/// A DeviceLimits has what a device can do, lowered to what this transport uses.
struct DeviceLimits {
  bool is_infiniband = false;  ///< false for RoCE, which runs over Ethernet
  std::uint64_t region_part_bytes = 0;
  std::size_t queue_entries = 0;  ///< of a completion queue
  std::size_t receives = 0;       ///< of the receive queue that all links share
  std::size_t send_depth = 0;     ///< work requests of each link
  std::size_t part_bytes = 0;     ///< the longest work request
  std::size_t read_pieces = 0;    ///< pieces of local memory of one read
  std::uint8_t reads_as_target = 0;
  std::uint8_t reads_as_initiator = 0;

  /// `region_part_bytes` is the wanted length of the parts of a region. kUnsupported: the device
  /// can do too little.
  static Result<DeviceLimits> of(ibv_context& context, std::uint8_t port,
                                 std::uint64_t region_part_bytes);
};

}  // namespace stdchk::transport::verbs
