#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/device.h"

namespace stdchk::transport::verbs {

/// A VerbsEndpoint is a verbs device with its connections.
///
/// Owns: the device's objects and all Connections.
/// Threads: the reactor's. librdmacm and libibverbs start none.
class VerbsEndpoint final : public Endpoint {
 public:
  VerbsEndpoint(Clock& clock, std::uint64_t region_part_bytes)
      : clock_(clock), region_part_bytes_(region_part_bytes) {}
  ~VerbsEndpoint() override;
  Status open(const std::string& host, std::uint16_t port);

  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return address_; }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;
  void withhold_access() override { withholds_access_ = true; }

  bool poll() override;
  int fd() const override { return epoll_fd_; }
  bool may_sleep() override;
  Duration sleep_max() const override;

  // For Connection and VerbsLink:
  Clock& clock() { return clock_; }
  Device& device() { return *device_; }
  const Buffer& scratch() const { return *scratch_; }  ///< target of the reads that prove delivery
  bool withholds_access() const { return withholds_access_; }
  /// Sends the region tables before anything of the user: a key needs its table.
  void tell_tables(Connection& connection);
  /// Tells the user that a connection can be used from now on.
  void announce(Connection& connection);
  void forget(const VerbsRegion& region) { std::erase(regions_in_parts_, &region); }
  void fence(Connection& connection);
  void release(Connection& connection);
  /// Keeps a connection's id until the peer has acknowledged the end. Until then the kernel repeats
  /// the message of the end.
  void linger(rdma_cm_id& id);
  void flush_later(Connection& connection);
  void fail_later(Connection& connection, Code code, const char* where);

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  Status find_device(const std::string& host);
  bool try_device(const sockaddr_storage& address);
  Status wake_by(int descriptor);
  Connection& add_connection(State state);
  Status request(Connection& connection, const sockaddr_storage& target, Duration deadline);
  bool read_descriptors();
  bool read_connection_events();
  void on_event(const rdma_cm_event& event, ByteSpan private_data);
  void on_request(const rdma_cm_event& event, ByteSpan private_data);
  Status accept(Connection& connection, const rdma_cm_event& event);
  Greeting greeting() const;
  Status on_response(Connection& connection, ByteSpan private_data);
  Status take_greeting(Connection& connection, ByteSpan private_data);
  Status on_resolved(Connection& connection, rdma_cm_event_type event);
  void on_up(Connection& connection);
  void read_device_events();
  bool check_device();
  bool handle_completions();
  void handle(const Completion& completion);
  bool flush_waiting();
  void cut(Connection& connection);
  bool close_pending();
  bool check_deadlines();
  void end_lingering(const rdma_cm_id* id, Time now);
  void bury(Connection& connection);

  Clock& clock_;
  const std::uint64_t region_part_bytes_;
  bool withholds_access_ = false;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* holder_ = nullptr;  ///< keeps the device open
  rdma_cm_id* listener_ = nullptr;
  sockaddr_storage local_{};  ///< an address of the device, with the listener's port
  std::unique_ptr<Device> device_;
  Buffer* scratch_ = nullptr;
  int epoll_fd_ = -1;
  AcceptHandler* accept_handler_ = nullptr;
  Capabilities capabilities_;
  std::vector<const VerbsRegion*> regions_in_parts_;
  std::uint32_t tables_made_ = 0;
  std::string address_;
  std::uint32_t connections_made_ = 0;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::uint32_t, Connection*> by_number_;
  std::unordered_map<std::uint32_t, Connection*> by_queue_pair_;
  std::deque<Completion> completions_;  ///< read, but not handled yet
  std::vector<Connection*> to_flush_;
  struct Closing {
    Connection* connection;
    Error why;
  };
  std::deque<Closing> to_close_;
  struct Lingering {
    rdma_cm_id* id;
    Time until;
  };
  std::vector<Lingering> lingering_;
  std::vector<std::unique_ptr<Connection>> buried_;  ///< until the end of this turn
  bool armed_ = false;                               ///< the next completion wakes wake_fd()
  unsigned busy_turns_ = 0;                          ///< turns since the descriptors were read
  Time last_completion_{};
  Time next_check_{};
};

}  // namespace stdchk::transport::verbs
