#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/tcp/arrivals.h"
#include "transport/tcp/link.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tls.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

/// A TcpEndpoint is a listening socket and the links of this process over TCP. A peer that
/// connects proves a key of the keyring within TLS, before other code sees its bytes.
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
  std::string address() const override { return listener_.address(); }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;

  bool poll() override;
  int fd() const override { return poller_.fd(); }
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

  TcpEndpoint(Clock& clock, const Settings& settings);

  // For links and regions.
  Clock& clock() { return clock_; }
  Poller& poller() { return poller_; }
  /// The number of transfers in flight on all links.
  std::size_t& transfers() { return transfers_; }
  void add(TcpLink& link) { links_.emplace(link.number_, &link); }
  void remove(TcpLink& link);
  void add(TcpRegion& region) { regions_.insert(&region); }
  void remove(TcpRegion& region);
  /// Has poll() send what the link has queued.
  void mark_ready(TcpLink& link);
  void watch(const TcpLink& link, std::uint32_t events);
  bool trusts_network() const { return settings_.trusted_network; }
  /// Closes the connection now. The next poll() tells the handler.
  void end(TcpLink& link, const Error& why);
  void on_greeted(TcpLink& link);

  TcpLink* find(std::uint64_t number) const;
  bool poll_sockets();
  void on_event(TcpLink& link, std::uint32_t events);
  void on_connected(TcpLink& link);
  void prove(TcpLink& link);
  void open_link(TcpLink& link);

  bool run_ready();
  bool check_deadlines();
  bool close_pending();

  // endpoint_content.cpp
  void join(TcpLink& link);
  void joined(TcpLink& link);
  void on_channel_event(TcpLink& link, std::uint32_t events);
  bool is_content_channel(TcpLink& arrival);
  void attach(TcpLink& arrival);

  // endpoint_arrivals.cpp
  void accept_links();
  void take_arrival(const Listener::Accepted& accepted);
  void pause_accepting(int error);
  void warn_of_refused(const Error& why);

  Clock& clock_;
  const Settings settings_;
  Capabilities capabilities_;
  std::unique_ptr<TlsContext> tls_;
  Poller poller_;
  Listener listener_{poller_};
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

}  // namespace stdchk::transport::tcp
