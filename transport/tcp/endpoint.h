#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/tcp/arrivals.h"
#include "transport/tcp/link.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tls.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

/// A TcpEndpoint is a listening socket and the links of this process over TCP. Whoever connects
/// proves a key of the keyring within TLS before any other code sees what it sends.
///
/// Owns: the sockets, accepted links until they are open, and OpenSSL's context.
/// Threads: the reactor's.
/// Limits: Settings.
class TcpEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<TcpEndpoint>> create(Clock& clock, const std::string& host,
                                                     std::uint16_t port,
                                                     std::shared_ptr<const secure::Keyring> keyring,
                                                     const Settings& settings);
  ~TcpEndpoint() override;
  TcpEndpoint(const TcpEndpoint&) = delete;
  TcpEndpoint& operator=(const TcpEndpoint&) = delete;

  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override;
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;

  bool poll() override;
  int fd() const override { return epoll_fd_; }
  bool may_sleep() override { return ready_.empty() && closing_.empty(); }
  Duration sleep_max() const override;

  /// Connections that have not proven anything yet.
  std::size_t arriving() const { return arrivals_.size(); }

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  friend class TcpLink;
  friend class TcpRegion;
  struct Closing {
    std::uint64_t link;
    Error why;
  };

  TcpEndpoint(Clock& clock, std::shared_ptr<const secure::Keyring> keyring,
              const Settings& settings);

  // For links and regions.
  Clock& clock() { return clock_; }
  void add(TcpLink& link) { links_.emplace(link.number_, &link); }
  void remove(TcpLink& link);
  void add(TcpRegion& region) { regions_.insert(&region); }
  void remove(TcpRegion& region);
  void transfer_started() { ++transfers_; }
  void transfer_ended() { --transfers_; }
  /// Has poll() send what the link has queued.
  void mark_ready(TcpLink& link);
  void watch_room(TcpLink& link, bool wanted);
  void watch_channel(TcpLink& link, bool content, bool room);
  bool trusts_network() const { return settings_.trusted_network; }
  /// Closes the connection now. The next poll() tells the handler.
  void end(TcpLink& link, const Error& why);
  void on_greeted(TcpLink& link);

  Status open();
  TcpLink* find(std::uint64_t number) const;
  void watch(const TcpLink& link, std::uint32_t events, bool is_new);
  bool poll_sockets();
  void on_event(TcpLink& link, std::uint32_t events);
  void on_connected(TcpLink& link);
  void prove(TcpLink& link);
  void open_link(TcpLink& link);

  // endpoint_content.cpp
  void join(TcpLink& link);
  void connect_channel(TcpLink& link);
  void on_channel_event(TcpLink& link, std::uint32_t events);
  void on_channel_connected(TcpLink& link);
  bool is_content_channel(TcpLink& arrival);
  void attach(TcpLink& arrival);
  bool run_ready();
  bool check_deadlines();
  bool close_pending();
  void refused(const Error& why);

  // endpoint_listen.cpp
  void accept_links();
  void take_arrival(int socket, const sockaddr_storage& peer);
  void pause_accepting();
  void watch_listener(bool wanted);

  Clock& clock_;
  const std::shared_ptr<const secure::Keyring> keyring_;
  const Settings settings_;
  Capabilities capabilities_;
  std::unique_ptr<TlsContext> tls_;
  sockaddr_storage host_{};
  int epoll_fd_ = -1;
  int listener_ = -1;
  Time accept_again_{};  ///< no descriptors were left; zero: it listens
  AcceptHandler* accept_handler_ = nullptr;
  std::uint64_t links_made_ = 0;
  std::unordered_map<std::uint64_t, TcpLink*> links_;                     ///< by number
  std::unordered_map<std::uint64_t, std::unique_ptr<TcpLink>> accepted_;  ///< not open yet
  Arrivals arrivals_;
  std::unordered_set<TcpRegion*> regions_;
  std::vector<std::uint64_t> ready_;  ///< links that have something to do
  std::vector<std::uint64_t> running_;
  std::vector<Closing> closing_;
  std::size_t transfers_ = 0;
  std::size_t unopened_ = 0;  ///< links that are neither open nor closed
  Time next_check_{};
  Time next_warning_{};
};

/// Set in the number of an event: it is of a link's content channel.
inline constexpr std::uint64_t kChannelBit = std::uint64_t{1} << 63U;

/// A socket for a link: none of its calls waits.
int set_up_socket(int socket);

}  // namespace stdchk::transport::tcp
