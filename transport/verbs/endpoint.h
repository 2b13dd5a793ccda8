#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/cm_channel.h"
#include "transport/verbs/completion_reader.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/connection_table.h"
#include "transport/verbs/device.h"
#include "transport/verbs/region.h"

namespace stdchk::transport::verbs {

/// A VerbsEndpoint is a verbs device with its connections.
///
/// Owns: the device's objects and all Connections.
/// Threads: the reactor's. librdmacm and libibverbs start none.
class VerbsEndpoint final : public Endpoint {
 public:
  VerbsEndpoint(Clock& clock, std::uint64_t region_part_bytes)
      : clock_(clock), region_part_bytes_(region_part_bytes), cm_(clock) {}
  ~VerbsEndpoint() override;
  Status open(const std::string& host, std::uint16_t port);

  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return cm_.address(); }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;
  void withhold_access() override { withholds_access_ = true; }

  bool poll() override;
  int fd() const override { return epoll_fd_; }
  bool may_sleep() override;
  Duration sleep_max() const override;

  // For Connection, VerbsLink and VerbsRegion:
  Clock& clock() { return clock_; }
  Device& device() { return *device_; }
  const Buffer& scratch() const { return *scratch_; }  ///< target of the reads that prove delivery
  bool withholds_access() const { return withholds_access_; }
  /// The connection has a queue pair, which completions may name from now on.
  void on_queue_pair(Connection& connection);
  /// Sends the region tables before anything of the user: a key needs its table.
  void tell_tables(Connection& connection);
  /// Tells the user that a connection can be used from now on.
  void announce(Connection& connection);
  void forget(const VerbsRegion& region) { std::erase(regions_in_parts_, &region); }
  void fence(Connection& connection);
  void release(Connection& connection);
  /// See CmChannel.
  void give_back(rdma_cm_id& id, bool tells_peer) { cm_.give_back(id, tells_peer); }
  void flush_later(Connection& connection);
  void fail_later(Connection& connection, Code code, const char* where);

 private:
  struct Closing {
    Connection* connection;
    Error why;
  };

  // endpoint.cpp
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  Status wake_by(int descriptor);
  bool read_descriptors();
  bool handle_completions();
  void handle(const Completion& completion);
  bool flush_waiting();
  bool close_pending();
  bool check_device();
  bool check_deadlines();
  void cut(Connection& connection);
  void move_to_closed(Connection& connection);

  // endpoint_connecting.cpp
  bool read_connection_events();
  void on_event(const rdma_cm_event& event, ByteSpan private_data);
  void on_request(const rdma_cm_event& event, ByteSpan private_data);
  void on_lost(Connection& connection, rdma_cm_event_type event);
  void on_up(Connection& connection);
  Greeting greeting() const;

  Clock& clock_;
  const std::uint64_t region_part_bytes_;
  bool withholds_access_ = false;
  CmChannel cm_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<CompletionReader> completions_;
  Buffer* scratch_ = nullptr;
  int epoll_fd_ = -1;
  AcceptHandler* accept_handler_ = nullptr;
  Capabilities capabilities_;
  std::vector<const VerbsRegion*> regions_in_parts_;
  std::uint32_t tables_made_ = 0;
  ConnectionTable connections_;
  std::vector<Connection*> to_flush_;
  std::deque<Closing> to_close_;
  unsigned busy_turns_ = 0;  ///< turns since the descriptors were read
  Time next_check_{};
};

}  // namespace stdchk::transport::verbs
