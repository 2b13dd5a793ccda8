#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/device_limits.h"
#include "transport/verbs/fragment_buffers.h"

namespace stdchk::transport::verbs {

/// RegisteredParts is memory that is registered in parts, each `part_bytes` long but the last.
struct RegisteredParts {
  std::vector<ibv_mr*> mrs;
  std::uint64_t part_bytes = 0;
};
void deregister(RegisteredParts& parts);

struct Completion {
  ibv_wc entry{};
  bool is_receive = false;  ///< a failed entry does not say this itself
};

/// A Device is a verbs device as an endpoint uses it. It has the protection domain, completion
/// queues, the receive queue of all links, and the memory of messages.
///
/// Owns: all of these. The context belongs to librdmacm.
/// Threads: the reactor's; register_memory() on any thread.
/// Limits: the receive queue has kBuffersPerLink buffers for each link and some spare ones. The
///   device refuses a link when it can hold no more.
class Device {
 public:
  /// `region_part_bytes` is the longest part of a region; 0 means kRegionPartBytes. The device may
  /// lower it.
  static Result<std::unique_ptr<Device>> open(ibv_context& context, std::uint8_t port,
                                              std::uint64_t region_part_bytes);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context& context() { return context_; }
  ibv_pd& pd() { return *pd_; }
  ibv_srq& srq() { return *srq_; }
  ibv_cq& receive_queue() { return *receive_queue_; }
  bool is_iwarp() const { return context_.device->transport_type == IBV_TRANSPORT_IWARP; }
  const DeviceLimits& limits() const { return limits_; }

  /// Registers memory, for remote access too, several parts at a time. Returns kMemlock and
  /// kTooLarge where the kernel's errors would say less.
  Result<RegisteredParts> register_memory(MutableByteSpan memory);
  Result<Buffer*> take_buffer() { return buffers_.take(*pd_); }
  void give_buffer(Buffer& buffer) { buffers_.give_back(buffer); }

  /// Prepares for one more link: posts receives, and returns the completion queue for what it
  /// sends.
  Result<ibv_cq*> add_link();
  void remove_link(ibv_cq& send_queue);
  /// Posts the buffer of a completed receive again, or keeps it for later.
  void receive_ended(Buffer& buffer);
  /// Reads the events of the device's context. A process opens a context once, so an event may
  /// concern the Device of another endpoint: that Device gets it, on this thread.
  void read_events();
  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Replaces receives that were lost with links. The device has reported fewer receives than the
  /// peers' credits explain: a link was cut off while a fragment arrived.
  void replace_lost_receives();

  /// Appends new completions to `into`. Returns false when there are none.
  bool read_completions(std::deque<Completion>& into);
  /// Has the next completion wake wake_fd().
  void arm();
  int wake_fd() const { return wakes_->fd; }
  void read_wakes();

 private:
  struct SendQueueOfMany {
    ibv_cq* queue;
    std::size_t links;
  };
  Device(ibv_context& context, const DeviceLimits& limits) : context_(context), limits_(limits) {}
  Status open();
  /// Notes an event of the device. May be called on any thread.
  void note(ibv_event_type event);
  Result<ibv_cq*> make_queue(std::size_t entries);
  Status post_receives(std::size_t wanted);
  void watch_receives();

  ibv_context& context_;
  const DeviceLimits limits_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* wakes_ = nullptr;
  ibv_cq* receive_queue_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::vector<SendQueueOfMany> send_queues_;
  std::size_t links_ = 0;
  std::atomic<bool> lost_receives_{false};
  std::atomic<bool> failed_{false};
  std::size_t posted_ = 0;  ///< waiting receives, as far as this side knows
  FragmentBuffers buffers_;
};

}  // namespace stdchk::transport::verbs
