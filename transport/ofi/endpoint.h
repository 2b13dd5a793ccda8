#pragma once

#include <rdma/fabric.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/ofi/connection.h"
#include "transport/ofi/library.h"
#include "transport/transport.h"

namespace stdchk::transport::ofi {

/// An OfiEndpoint is one domain of libfabric's verbs provider, with a connected endpoint for each
/// link.
///
/// What is received completes in one queue. Each connection sends and transfers with a queue of its
/// own, so there is room in it for all that may be in flight.
///
/// Owns: the fabric, domain, completion and event queues, and all Connections.
/// Threads: the reactor's. With FI_WAIT_FD the providers start none.
/// Errors: open() refuses a provider that lacks something necessary.
class OfiEndpoint final : public Endpoint {
 public:
  explicit OfiEndpoint(Clock& clock) : clock_(clock) {}
  ~OfiEndpoint() override;
  Status open(const std::string& host, std::uint16_t port);

  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return address_; }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;

  bool poll() override;
  int fd() const override { return epoll_fd_; }
  bool may_sleep() override;
  Duration sleep_max() const override;

  // For Connection and OfiLink.
  Clock& clock() { return clock_; }
  /// Makes a buffer for messages, registered if the provider needs that.
  Result<MessageBuffer> make_buffer(std::size_t bytes);
  std::size_t request_bytes_max() const { return info_->ep_attr->max_msg_size; }
  /// Target of the reads that prove delivery.
  const MessageBuffer& scratch() const { return scratch_; }
  /// Cuts the peer off at once. The next poll() tells the handler.
  void fence(Connection& connection);
  void release(Connection& connection);
  /// Cuts the peer off like fence(), for another reason.
  void fail_later(Connection& connection, Code code, const char* where);
  void transfer_started() { ++busy_; }
  void transfer_ended() { --busy_; }

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  fi_info* choose(const fi_info* all) const;
  Status open_queues();
  Result<int> wake_by(fid& queue);
  void watch_events();
  Result<fid_cq*> open_completion_queue(std::size_t entries);
  Status start_endpoint(Connection& connection, fi_info& info);
  Connection& add_connection();
  bool read_events();
  bool read_event_error();
  void on_request(fi_info* info);
  void on_up(Connection& connection);
  bool read_completions(fid_cq* queue);
  void read_completion_error(fid_cq* queue);
  bool read_own_queues();
  void on_completion(Work& work, std::size_t length);
  void cut(Connection& connection);
  bool close_pending();
  bool check_deadlines();
  void bury(Connection& connection);

  Clock& clock_;
  const FabricLibrary* library_ = nullptr;
  fi_info* info_ = nullptr;      ///< for the listener
  fi_info* out_info_ = nullptr;  ///< for connections that this endpoint opens
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_eq* eq_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_pep* listener_ = nullptr;
  int epoll_fd_ = -1;
  int events_fd_ = -1;  ///< descriptor of the event queue
  unsigned idle_wakes_ = 0;
  bool by_time_ = false;  ///< events do not wake the reactor; they are polled at intervals
  Time woken_from_{};     ///< when events may wake the reactor again
  MessageBuffer scratch_;
  AcceptHandler* accept_handler_ = nullptr;
  Capabilities capabilities_;
  std::string address_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<fid_t, Connection*> by_fid_;
  std::vector<Connection*> with_own_queue_;  ///< open connections that have `transmit`
  std::vector<fid*> waited_for_;  ///< used by may_sleep(); member only to reuse its memory
  struct Closing {
    Connection* connection;
    Error why;
  };
  std::vector<Closing> to_close_;
  /// Kept until the completion queue was read empty.
  std::vector<std::unique_ptr<Connection>> buried_;
  std::size_t busy_ = 0;  ///< number of transfers and connection attempts
  Time next_check_{};
};

}  // namespace stdchk::transport::ofi
