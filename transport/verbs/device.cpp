#include "transport/verbs/device.h"

#include <fcntl.h>

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

/// Number of lost receives that are replaced together.
constexpr std::size_t kLostReceives = kSpareReceives / 2;
constexpr int kEntriesPerRead = 32;

/// Several threads register the parts of a region at the same time, which is faster.
constexpr std::uint64_t kRegionPartBytes = 8 * limits::kGiB;
constexpr std::size_t kRegionThreadsMax = 8;

}  // namespace

Result<std::unique_ptr<Device>> Device::open(ibv_context& context, std::uint8_t port,
                                             std::uint64_t region_part_bytes) {
  if (region_part_bytes == 0) region_part_bytes = kRegionPartBytes;
  STDCHK_ASSIGN(const DeviceLimits limits, DeviceLimits::of(context, port, region_part_bytes));
  std::unique_ptr<Device> device(new Device(context, limits));
  STDCHK_TRY(device->open());
  return device;
}

Status Device::open() {
  pd_ = ::ibv_alloc_pd(&context_);
  if (pd_ == nullptr) return fail_errno("verbs.open ibv_alloc_pd");
  wakes_ = ::ibv_create_comp_channel(&context_);
  if (wakes_ == nullptr) return fail_errno("verbs.open ibv_create_comp_channel");
  ::fcntl(wakes_->fd, F_SETFL, ::fcntl(wakes_->fd, F_GETFL) | O_NONBLOCK);
  STDCHK_ASSIGN(receive_queue_, make_queue(limits_.receives));
  ibv_srq_init_attr attributes{};
  attributes.srq_context = this;
  attributes.attr.max_wr = static_cast<std::uint32_t>(limits_.receives);
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
  buffers_.clear();
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

Result<RegisteredParts> Device::register_memory(MutableByteSpan memory) {
  STDCHK_TRY(locked_memory().check(memory.size(), "verbs.register"));
  const std::uint64_t part_bytes = limits_.region_part_bytes;
  const std::size_t count = (memory.size() + part_bytes - 1) / part_bytes;
  if (count > kRegionPartsMax) {
    return fail(Code::kTooLarge,
                "verbs.register: too many times the device's max_mr_size (ibv_devinfo -v); lend "
                "less memory per benefactor and start more of them, or use tcp");
  }
  RegisteredParts parts{std::vector<ibv_mr*>(count), part_bytes};
  std::atomic<std::size_t> next{0};
  Mutex mutex;
  Status status;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      const std::uint64_t at = i * part_bytes;
      const auto mr = register_with(
          *pd_, memory.subspan(at, std::min<std::uint64_t>(part_bytes, memory.size() - at)));
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

void Device::read_events() {
  ibv_async_event event{};
  while (::ibv_get_async_event(&context_, &event) == 0) {
    Device* concerned = this;
    if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED || event.event_type == IBV_EVENT_SRQ_ERR) {
      concerned = static_cast<Device*>(event.element.srq->srq_context);
    }
    if (event.event_type == IBV_EVENT_CQ_ERR) {
      concerned = static_cast<Device*>(event.element.cq->cq_context);
    }
    concerned->note(event.event_type);
    ::ibv_ack_async_event(&event);  // until here the other endpoint cannot end
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
  if (receives > limits_.receives) {
    return fail(Code::kBusy, "verbs.link: as many links as the device's max_srq_wr allows");
  }
  STDCHK_TRY(post_receives(receives));
  auto found = std::find_if(send_queues_.begin(), send_queues_.end(), [this](const auto& each) {
    return (each.links + 1) * limits_.send_depth <= limits_.queue_entries;
  });
  if (found == send_queues_.end()) {
    STDCHK_ASSIGN(ibv_cq* const queue, make_queue(limits_.queue_entries));
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
