#pragma once

#include <rdma/fabric.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/ofi/connection.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/wakes.h"
#include "transport/transport.h"

namespace stdchk::transport::ofi {

/// An OfiEndpoint is a Fabric with a connected endpoint for each link.
///
/// All received messages complete in one queue. The sends and transfers of a connection complete in
/// the connection's own queue, which has room for all of them.
///
/// Owns: the fabric, the listener, and all Connections.
/// Threads: the reactor's. With FI_WAIT_FD the providers start none.
class OfiEndpoint final : public Endpoint {
 public:
  explicit OfiEndpoint(Clock& clock);
  ~OfiEndpoint() override;
  Status open(const std::string& host, std::uint16_t port);

  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return address_; }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override {
    return fabric_.register_memory(memory);
  }

  bool poll() override;
  int fd() const override { return wakes_.fd(); }
  bool may_sleep() override;
  Duration sleep_max() const override;

  // For Connection and OfiLink.
  Clock& clock() { return clock_; }
  Fabric& fabric() { return fabric_; }
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
  void move_to_closed(Connection& connection);

  Clock& clock_;
  Wakes wakes_;
  Fabric fabric_;
  fid_pep* listener_ = nullptr;
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
  std::vector<std::unique_ptr<Connection>> closed_;
  std::size_t busy_ = 0;  ///< number of transfers and connection attempts
  Time next_check_{};
};

}  // namespace stdchk::transport::ofi
