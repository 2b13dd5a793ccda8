#include "transport/verbs/device.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "transport/verbs/fragment.h"
#include "transport/verbs/locked_memory.h"

namespace stdchk::transport::verbs {

namespace {

constexpr std::size_t kSendDepth = 512;
constexpr std::size_t kQueueEntriesMax = 16384;
constexpr std::size_t kSpareReceives = 32;
/// Number of lost receives that are replaced together.
constexpr std::size_t kLostReceives = kSpareReceives / 2;
constexpr std::size_t kBuffersPerBlock = 64;
constexpr int kEntriesPerRead = 32;
constexpr std::uint8_t kReadsMax = 16;  ///< one-sided reads of one link that are under way at once

/// Several threads register the parts of a region at the same time, which is faster.
constexpr std::uint64_t kRegionPartBytes = 8 * limits::kGiB;
constexpr std::uint64_t kRegionAlignment = 64 * limits::kKiB;
constexpr std::size_t kRegionThreadsMax = 8;

constexpr int kRemoteAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

Result<std::unique_ptr<Device>> Device::open(ibv_context& context, std::uint8_t port,
                                             std::uint64_t region_part_bytes) {
  if (region_part_bytes == 0) region_part_bytes = kRegionPartBytes;
  std::unique_ptr<Device> device(new Device(context, region_part_bytes));
  STDCHK_TRY(device->open(port));
  return device;
}

Status Device::measure(std::uint8_t port_number) {
  ibv_device_attr device{};
  if (::ibv_query_device(&context_, &device) != 0) return fail_errno("verbs.open ibv_query_device");
  ibv_port_attr port{};
  if (::ibv_query_port(&context_, port_number, &port) != 0)
    return fail_errno("verbs.open ibv_query_port");
  is_infiniband_ = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
  region_part_bytes_ = std::min<std::uint64_t>(
      region_part_bytes_, device.max_mr_size / kRegionAlignment * kRegionAlignment);
  queue_entries_ = std::min(static_cast<std::size_t>(device.max_cqe), kQueueEntriesMax);
  receives_max_ = std::min(static_cast<std::size_t>(device.max_srq_wr), queue_entries_);
  send_depth_ = std::min({static_cast<std::size_t>(device.max_qp_wr), kSendDepth, queue_entries_});
  part_bytes_ = std::min<std::size_t>(port.max_msg_sz, limits::kGiB);
  read_pieces_ =
      std::clamp<std::size_t>(static_cast<std::size_t>(device.max_sge_rd), 1, kPiecesMax);
  const auto reads = [](int most) {
    return static_cast<std::uint8_t>(std::min<int>(most, kReadsMax));
  };
  reads_as_target_ = reads(device.max_qp_rd_atom);
  reads_as_initiator_ = reads(device.max_qp_init_rd_atom);
  const bool enough = device.max_sge >= static_cast<int>(kPiecesMax) &&
                      part_bytes_ >= kFragmentBytes && reads_as_target_ > 0 &&
                      reads_as_initiator_ > 0 && send_depth_ >= 128 &&
                      receives_max_ >= kSpareReceives + kBuffersPerLink && region_part_bytes_ > 0;
  if (!enough) return fail(Code::kUnsupported, "verbs.open: the device's limits are too small");
  return {};
}

Status Device::open(std::uint8_t port) {
  STDCHK_TRY(measure(port));
  pd_ = ::ibv_alloc_pd(&context_);
  if (pd_ == nullptr) return fail_errno("verbs.open ibv_alloc_pd");
  wakes_ = ::ibv_create_comp_channel(&context_);
  if (wakes_ == nullptr) return fail_errno("verbs.open ibv_create_comp_channel");
  ::fcntl(wakes_->fd, F_SETFL, ::fcntl(wakes_->fd, F_GETFL) | O_NONBLOCK);
  STDCHK_ASSIGN(receive_queue_, make_queue(receives_max_));
  ibv_srq_init_attr attributes{};
  attributes.srq_context = this;
  attributes.attr.max_wr = static_cast<std::uint32_t>(receives_max_);
  attributes.attr.max_sge = 1;
  srq_ = ::ibv_create_srq(pd_, &attributes);
  if (srq_ == nullptr) return fail_errno("verbs.open ibv_create_srq");
  STDCHK_TRY(post_receives(kSpareReceives));
  watch_receives();
  return {};
}

Device::~Device() {
  if (srq_ != nullptr) ::ibv_destroy_srq(srq_);
  for (const SendQueueOfMany& each : send_queues_) ::ibv_destroy_cq(each.queue);
  if (receive_queue_ != nullptr) ::ibv_destroy_cq(receive_queue_);
  if (wakes_ != nullptr) ::ibv_destroy_comp_channel(wakes_);
  for (const Block& block : blocks_) {
    ::ibv_dereg_mr(block.mr);
    ::munmap(block.memory.data(), block.memory.size());
  }
  if (pd_ != nullptr) ::ibv_dealloc_pd(pd_);
}

Result<ibv_cq*> Device::make_queue(std::size_t entries) {
  ibv_cq* const queue = ::ibv_create_cq(&context_, static_cast<int>(entries), this, wakes_, 0);
  if (queue == nullptr) return fail_errno("verbs.open ibv_create_cq");
  return queue;
}

void deregister(RegisteredParts& parts) {
  for (ibv_mr* const each : parts.mrs) {
    if (each != nullptr) ::ibv_dereg_mr(each);
  }
  parts.mrs.clear();
}

Result<ibv_mr*> Device::register_part(MutableByteSpan memory) const {
  ibv_mr* const mr = ::ibv_reg_mr(pd_, memory.data(), memory.size(), kRemoteAccess);
  if (mr != nullptr) return mr;
  // In a container a process may hold CAP_IPC_LOCK without effect.
  if (errno == ENOMEM && locked_memory().limit_bytes != ~std::uint64_t{0}) {
    return fail(Code::kMemlock, "verbs.register", ENOMEM);
  }
  return fail_errno("verbs.register ibv_reg_mr");
}

Result<RegisteredParts> Device::register_memory(MutableByteSpan memory) {
  STDCHK_TRY(locked_memory().check(memory.size(), "verbs.register"));
  const std::size_t count = (memory.size() + region_part_bytes_ - 1) / region_part_bytes_;
  if (count > kRegionPartsMax) {
    return fail(Code::kTooLarge,
                "verbs.register: too many times the device's max_mr_size (ibv_devinfo -v); lend "
                "less memory per benefactor and start more of them, or use tcp");
  }
  RegisteredParts parts{std::vector<ibv_mr*>(count), region_part_bytes_};
  std::atomic<std::size_t> next{0};
  Mutex mutex;
  Status status;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      const std::uint64_t at = i * region_part_bytes_;
      const auto mr = register_part(
          memory.subspan(at, std::min<std::uint64_t>(region_part_bytes_, memory.size() - at)));
      const MutexLock lock(mutex);
      if (mr.has_value()) {
        parts.mrs[i] = *mr;
      } else {
        status = fail(mr.error());
        next = count;
      }
    }
  };
  std::vector<std::thread> helpers;
  const std::size_t threads =
      std::min<std::size_t>({count, std::thread::hardware_concurrency(), kRegionThreadsMax});
  for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& each : helpers) each.join();
  if (status.has_value()) return parts;
  deregister(parts);
  return fail(status.error());
}

Status Device::add_buffers() {
  constexpr std::size_t kBytes = kBuffersPerBlock * kFragmentBytes;
  STDCHK_TRY(locked_memory().check(kBytes, "verbs.buffers"));
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno("verbs.buffers mmap");
  const MutableByteSpan bytes(static_cast<std::byte*>(memory), kBytes);
  auto mr = register_part(bytes);
  if (!mr.has_value()) {
    ::munmap(memory, kBytes);
    return fail(mr.error());
  }
  blocks_.push_back({bytes, *mr});
  for (std::size_t at = 0; at < kBytes; at += kFragmentBytes) {
    buffers_.push_back({bytes.data() + at, (*mr)->lkey});
    idle_.push_back(&buffers_.back());
  }
  return {};
}

Result<Buffer*> Device::take_buffer() {
  if (idle_.empty()) STDCHK_TRY(add_buffers());
  Buffer* const buffer = idle_.back();
  idle_.pop_back();
  return buffer;
}

Status Device::post_receives(std::size_t wanted) {
  for (; posted_ < wanted; ++posted_) {
    STDCHK_ASSIGN(Buffer* const buffer, take_buffer());
    ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(buffer->data),
                  .length = kFragmentBytes,
                  .lkey = buffer->lkey};
    ibv_recv_wr request{};
    request.wr_id = reinterpret_cast<std::uint64_t>(buffer);
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (const int result = ::ibv_post_srq_recv(srq_, &request, &bad); result != 0) {
      give_buffer(*buffer);
      return fail(Code::kSystem, "verbs.receive ibv_post_srq_recv", result);
    }
  }
  return {};
}

void Device::receive_ended(Buffer& buffer) {
  --posted_;
  give_buffer(buffer);
  // Fails only when the queue is full; then no receive is missing.
  (void)post_receives(links_ * kBuffersPerLink + kSpareReceives);
}

/// Asks for one event when few receives are left. On devices without this event, lost receives stay
/// lost.
void Device::watch_receives() {
  ibv_srq_attr attributes{};
  attributes.srq_limit = static_cast<std::uint32_t>(kSpareReceives - kLostReceives);
  ::ibv_modify_srq(srq_, &attributes, IBV_SRQ_LIMIT);
}

void Device::note(ibv_event_type event) {
  if (event == IBV_EVENT_SRQ_LIMIT_REACHED) lost_receives_ = true;
  if (event == IBV_EVENT_DEVICE_FATAL || event == IBV_EVENT_CQ_ERR || event == IBV_EVENT_SRQ_ERR) {
    failed_ = true;
  }
}

void Device::replace_lost_receives() {
  if (!lost_receives_.load(std::memory_order_relaxed)) return;
  lost_receives_ = false;
  posted_ -= std::min(posted_, kLostReceives);
  (void)post_receives(links_ * kBuffersPerLink + kSpareReceives);
  watch_receives();
}

Result<ibv_cq*> Device::add_link() {
  const std::size_t receives = (links_ + 1) * kBuffersPerLink + kSpareReceives;
  if (receives > receives_max_) {
    return fail(Code::kBusy, "verbs.link: as many links as the device's max_srq_wr allows");
  }
  STDCHK_TRY(post_receives(receives));
  auto found = std::find_if(send_queues_.begin(), send_queues_.end(), [this](const auto& each) {
    return (each.links + 1) * send_depth_ <= queue_entries_;
  });
  if (found == send_queues_.end()) {
    STDCHK_ASSIGN(ibv_cq* const queue, make_queue(queue_entries_));
    send_queues_.push_back({queue, 0});
    found = send_queues_.end() - 1;
  }
  ++found->links;
  ++links_;
  return found->queue;
}

void Device::remove_link(ibv_cq& send_queue) {
  --links_;
  for (SendQueueOfMany& each : send_queues_) each.links -= each.queue == &send_queue;
}

bool Device::read_completions(std::deque<Completion>& into) {
  std::array<ibv_wc, kEntriesPerRead> entries;
  const auto read = [&](ibv_cq* queue, bool is_receive) {
    const int got = ::ibv_poll_cq(queue, kEntriesPerRead, entries.data());
    for (int i = 0; i < got; ++i) {
      into.push_back({entries[static_cast<std::size_t>(i)], is_receive});
    }
    return got > 0;
  };
  bool any = read(receive_queue_, true);
  for (const SendQueueOfMany& each : send_queues_) any |= read(each.queue, false);
  return any;
}

void Device::arm() {
  ::ibv_req_notify_cq(receive_queue_, 0);
  for (const SendQueueOfMany& each : send_queues_) ::ibv_req_notify_cq(each.queue, 0);
}

void Device::read_wakes() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (::ibv_get_cq_event(wakes_, &queue, &context) == 0) ::ibv_ack_cq_events(queue, 1);
}

}  // namespace stdchk::transport::verbs
