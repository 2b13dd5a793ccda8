#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace stdchk::transport::verbs {

/// A Buffer holds one fragment of a message, in registered memory.
struct Buffer {
  std::byte* data = nullptr;
  std::uint32_t lkey = 0;
};

/// Memory that is registered in parts, all as long as `part_bytes` but the last.
struct RegisteredParts {
  std::vector<ibv_mr*> mrs;
  std::uint64_t part_bytes = 0;
};
void deregister(RegisteredParts& parts);

struct Completion {
  ibv_wc entry{};
  bool is_receive = false;  ///< an entry that failed does not tell by itself
};

/// A Device is one verbs device as an endpoint uses it: protection domain, completion queues, the
/// receive queue that all links share, and the memory of messages.
///
/// Owns: all of these; not the context, which is librdmacm's.
/// Threads: the reactor's, but for register_memory.
/// Limits: the receive queue has kBuffersPerLink for each link and some to spare; a device that
///   cannot hold more refuses the link.
class Device {
 public:
  /// `region_part_bytes`: longest part of a region; 0: kRegionPartBytes. At most what the device
  /// can.
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
  bool is_infiniband() const { return is_infiniband_; }   ///< and not Ethernet below
  std::size_t send_depth() const { return send_depth_; }  ///< of each link
  std::size_t part_bytes() const { return part_bytes_; }  ///< of one work request
  std::size_t read_pieces() const { return read_pieces_; }
  std::uint8_t reads_as_target() const { return reads_as_target_; }
  std::uint8_t reads_as_initiator() const { return reads_as_initiator_; }

  /// For remote access too, the parts in parallel. kMemlock and kTooLarge where the kernel would
  /// say less.
  Result<RegisteredParts> register_memory(MutableByteSpan memory);
  std::uint64_t region_part_bytes() const { return region_part_bytes_; }
  Result<Buffer*> take_buffer();
  void give_buffer(Buffer& buffer) { idle_.push_back(&buffer); }

  /// Makes room for one link more: receives, and a completion queue for what it sends.
  Result<ibv_cq*> add_link();
  void remove_link(ibv_cq& send_queue);
  /// A receive has completed and its buffer is free: posts it again, or keeps it.
  void receive_ended(Buffer& buffer);
  /// An event of the device. Any thread.
  void note(ibv_event_type event);
  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }
  /// When the device has said that fewer receives wait than the peers' credits can explain: some
  /// went with links that were cut off while a fragment arrived.
  void replace_lost_receives();

  /// Appends what has completed. False: nothing.
  bool read_completions(std::deque<Completion>& into);
  /// Asks to be woken by wake_fd() when something completes.
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
  std::size_t posted_ = 0;  ///< receives that wait, as far as is known
  struct Block {
    MutableByteSpan memory;
    ibv_mr* mr;
  };
  std::vector<Block> blocks_;
  std::deque<Buffer> buffers_;
  std::vector<Buffer*> idle_;
};

}  // namespace stdchk::transport::verbs
