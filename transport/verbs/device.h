#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace stdchk::transport::verbs {

/// A Buffer is registered memory for one fragment of a message.
struct Buffer {
  std::byte* data = nullptr;
  std::uint32_t lkey = 0;
};

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
  bool is_infiniband() const { return is_infiniband_; }  ///< not for RoCE, which runs over Ethernet
  std::size_t send_depth() const { return send_depth_; }  ///< work requests of each link
  std::size_t part_bytes() const { return part_bytes_; }  ///< the longest work request
  std::size_t read_pieces() const { return read_pieces_; }
  std::uint8_t reads_as_target() const { return reads_as_target_; }
  std::uint8_t reads_as_initiator() const { return reads_as_initiator_; }

  /// Registers memory, for remote access too, several parts at a time. Returns kMemlock and
  /// kTooLarge where the kernel's errors would say less.
  Result<RegisteredParts> register_memory(MutableByteSpan memory);
  std::uint64_t region_part_bytes() const { return region_part_bytes_; }
  Result<Buffer*> take_buffer();
  void give_buffer(Buffer& buffer) { idle_.push_back(&buffer); }

  /// Prepares for one more link: posts receives, and returns the completion queue for what it
  /// sends.
  Result<ibv_cq*> add_link();
  void remove_link(ibv_cq& send_queue);
  /// Posts the buffer of a completed receive again, or keeps it for later.
  void receive_ended(Buffer& buffer);
  /// Notes an event of the device. May be called on any thread.
  void note(ibv_event_type event);
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
  Device(ibv_context& context, std::uint64_t region_part_bytes)
      : context_(context), region_part_bytes_(region_part_bytes) {}
  Status open(std::uint8_t port);
  Result<ibv_mr*> register_part(MutableByteSpan memory) const;
  Status measure(std::uint8_t port_number);
  Result<ibv_cq*> make_queue(std::size_t entries);
  Status post_receives(std::size_t wanted);
  Status add_buffers();
  void watch_receives();

  ibv_context& context_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* wakes_ = nullptr;
  ibv_cq* receive_queue_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::vector<SendQueueOfMany> send_queues_;
  std::uint64_t region_part_bytes_;
  std::size_t queue_entries_ = 0;
  std::size_t receives_max_ = 0;
  std::size_t send_depth_ = 0;
  std::size_t part_bytes_ = 0;
  std::size_t read_pieces_ = 0;
  std::uint8_t reads_as_target_ = 0;
  std::uint8_t reads_as_initiator_ = 0;
  bool is_infiniband_ = false;
  std::size_t links_ = 0;
  std::atomic<bool> lost_receives_{false};
  std::atomic<bool> failed_{false};
  std::size_t posted_ = 0;  ///< waiting receives, as far as this side knows
  struct Block {
    MutableByteSpan memory;
    ibv_mr* mr;
  };
  std::vector<Block> blocks_;
  std::deque<Buffer> buffers_;
  std::vector<Buffer*> idle_;
};

}  // namespace stdchk::transport::verbs
