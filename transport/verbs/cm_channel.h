#pragma once

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"

namespace stdchk::transport::verbs {

struct Connection;

/// A CmChannel is an endpoint's access to librdmacm: it chooses the device, listens, makes the ids
/// of connections, and reads their events.
///
/// The id of a closed connection lingers until the peer has answered the end. While the id exists,
/// the kernel repeats a lost message of the end.
/// Owns: the event channel, the listener, ids that linger. Other ids belong to their connections.
/// Threads: the reactor's. librdmacm starts none.
class CmChannel {
 public:
  struct Event {
    rdma_cm_event event{};
    std::vector<std::byte> private_data;
  };

  explicit CmChannel(Clock& clock) : clock_(clock) {}
  ~CmChannel();
  CmChannel(const CmChannel&) = delete;
  CmChannel& operator=(const CmChannel&) = delete;

  /// Binds to the device that has the address `host`, or to the first device with an address.
  Status open(const std::string& host, std::uint16_t port);
  ibv_context& device() const { return *holder_->verbs; }
  std::uint8_t device_port() const { return holder_->port_num; }
  /// Readable when next_event() has an event.
  int fd() const { return channel_->fd; }

  Status listen();
  void stop_listening();
  /// "verbs:10.0.0.1:7471". Empty before listen().
  const std::string& address() const { return address_; }

  /// Gives the connection an id on this device, and resolves the address of its peer.
  Status resolve(Connection& connection, const sockaddr_storage& peer, Duration deadline);
  /// Takes the id of a closed connection. `tells_peer`: the peer is to answer the end.
  void give_back(rdma_cm_id& id, bool tells_peer);
  /// Ends the lingering ids whose time has passed at `now`, and `id` if it lingers.
  void end_lingering(const rdma_cm_id* id, Time now);
  bool has_lingering() const { return !lingering_.empty(); }

  /// Returns nothing when no event waits. Events of ids that linger, or have ended, have no
  /// context in their id.
  std::optional<Event> next_event();

 private:
  struct Lingering {
    rdma_cm_id* id;
    Time until;
  };
  Status find_device(const std::string& host);
  bool try_device(const sockaddr_storage& address);

  Clock& clock_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* holder_ = nullptr;  ///< keeps the device open
  rdma_cm_id* listener_ = nullptr;
  sockaddr_storage local_{};  ///< an address of the device, with the listener's port
  std::string address_;
  std::vector<Lingering> lingering_;
};

/// Sets O_NONBLOCK.
Status set_nonblocking(int descriptor);

}  // namespace stdchk::transport::verbs
