#include "transport/verbs/device_limits.h"

#include <algorithm>

#include "core/base/limits.h"
#include "transport/transport.h"
#include "transport/verbs/fragment.h"

namespace stdchk::transport::verbs {
namespace {

constexpr std::size_t kSendDepthMax = 512;
constexpr std::size_t kSendDepthMin = 128;
constexpr std::size_t kQueueEntriesMax = 16384;
constexpr int kReadsMax = 16;  ///< one-sided reads of one link that are under way at once
constexpr std::uint64_t kRegionAlignment = 64 * limits::kKiB;

}  // namespace

Result<DeviceLimits> DeviceLimits::of(ibv_context& context, std::uint8_t port_number,
                                      std::uint64_t region_part_bytes) {
  ibv_device_attr device{};
  if (::ibv_query_device(&context, &device) != 0) return fail_errno("verbs.open ibv_query_device");
  ibv_port_attr port{};
  if (::ibv_query_port(&context, port_number, &port) != 0) {
    return fail_errno("verbs.open ibv_query_port");
  }
  const auto reads = [](int most) { return static_cast<std::uint8_t>(std::min(most, kReadsMax)); };
  DeviceLimits found;
  found.is_infiniband = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
  found.region_part_bytes = std::min<std::uint64_t>(
      region_part_bytes, device.max_mr_size / kRegionAlignment * kRegionAlignment);
  found.queue_entries = std::min(static_cast<std::size_t>(device.max_cqe), kQueueEntriesMax);
  found.receives = std::min(static_cast<std::size_t>(device.max_srq_wr), found.queue_entries);
  found.send_depth =
      std::min({static_cast<std::size_t>(device.max_qp_wr), kSendDepthMax, found.queue_entries});
  found.part_bytes = std::min<std::size_t>(port.max_msg_sz, limits::kGiB);
  found.read_pieces =
      std::clamp<std::size_t>(static_cast<std::size_t>(device.max_sge_rd), 1, kPiecesMax);
  found.reads_as_target = reads(device.max_qp_rd_atom);
  found.reads_as_initiator = reads(device.max_qp_init_rd_atom);
  const bool enough = device.max_sge >= static_cast<int>(kPiecesMax) &&
                      found.part_bytes >= kFragmentBytes && found.reads_as_target > 0 &&
                      found.reads_as_initiator > 0 && found.send_depth >= kSendDepthMin &&
                      found.receives >= kSpareReceives + kBuffersPerLink &&
                      found.region_part_bytes > 0;
  if (!enough) return fail(Code::kUnsupported, "verbs.open: the device's limits are too small");
  return found;
}

}  // namespace stdchk::transport::verbs
