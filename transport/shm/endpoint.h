#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/lifetime.h"
#include "transport/direct_memory.h"
#include "transport/shm/shm.h"

namespace stdchk::transport::shm {

class ShmLink;
class ShmEndpoint;

/// A Region is registered memory. The peers of its endpoint know it until it is destroyed.
class Region final : public MemoryRegion {
 public:
  Region(ShmEndpoint& endpoint, MutableByteSpan memory, std::uint64_t key);
  ~Region() override;
  MutableByteSpan bytes() const override { return memory_; }
  RemoteKey remote_key() const override { return key_; }

 private:
  ShmEndpoint& endpoint_;
  MutableByteSpan memory_;
  RemoteKey key_;
};

/// A ShmLink is a socket, and the right to copy to and from the peer's memory.
///
/// The kernel's copy between processes checks no keys. So the peer announces its regions over the
/// socket, and this side refuses unknown keys and ranges outside of a region.
class ShmLink final : public Link, public DirectlyReadable {
 public:
  enum class State : std::uint8_t { kGreeting, kConnected, kClosed };

  ShmLink(ShmEndpoint& endpoint, int socket, bool accepted, Time connect_deadline);
  ~ShmLink() override;

  void set_handler(LinkHandler& handler) override { handler_ = &handler; }
  bool connected() const override { return state_ == State::kConnected; }
  Status send(ByteSpan message) override;
  Status write(std::span<const LocalPiece> pieces, const RemoteKey& to, std::uint64_t offset,
               Operation& operation) override;
  Status read(std::span<const LocalPiece> pieces, const RemoteKey& from, std::uint64_t offset,
              Operation& operation) override;
  bool fence() override;
  DirectMemoryPtr direct_memory(const RemoteKey& key) const override;

 private:
  friend class ShmEndpoint;
  friend class Region;
  /// A PeerRegion is a region that the peer has announced. `readable` is false once the region or
  /// the link has ended.
  struct PeerRegion {
    RemoteKey key;
    std::shared_ptr<std::atomic<bool>> readable = std::make_shared<std::atomic<bool>>(true);
  };
  class DirectRegion;
  enum class Frame : std::uint32_t { kHello = 1, kRegion = 2, kRegionGone = 3, kMessage = 4 };
  struct Copied {
    Operation* operation;
    Status status;
  };

  Status copy(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& remote,
              std::uint64_t offset, Operation& operation);
  void queue_frame(Frame kind, ByteSpan body);
  void tell_region(Frame kind, const RemoteKey& key);
  void flush();
  /// Reads what has arrived on the socket. Returns false when the peer has closed it.
  bool receive();
  /// Handles complete frames. Returns false if the link has ended or was destroyed.
  bool handle_frames();
  void handle_frame(Frame kind, ByteSpan body);
  /// Reports finished copies. Returns false if the link was destroyed.
  bool report();
  bool shut(Code code, const char* where);
  void forget_regions();

  ShmEndpoint& endpoint_;
  LinkHandler* handler_ = nullptr;
  State state_ = State::kGreeting;
  bool accepted_;
  bool refused_ = false;  ///< nobody accepts there; the next poll() reports it
  Time connect_deadline_;
  int socket_;
  int peer_process_ = -1;  ///< pidfd of the peer
  pid_t peer_pid_ = 0;
  bool peer_closed_ = false;
  std::map<std::uint64_t, PeerRegion> peer_regions_;  ///< keyed by the region's key
  std::vector<std::byte> incoming_;
  std::size_t incoming_start_ = 0;
  std::vector<std::byte> outgoing_;
  std::size_t outgoing_start_ = 0;
  std::vector<Copied> copied_;  ///< copies that poll() has to report
  /// Functions that call handlers watch its expiry, to notice that a handler destroyed this link.
  Lifetime lifetime_;
};

/// A ShmEndpoint is a listening socket and the regions of this process.
class ShmEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<ShmEndpoint>> create(Clock& clock);
  ~ShmEndpoint() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override;
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;

  bool poll() override;
  int fd() const override { return epoll_fd_; }
  bool may_sleep() override { return reporting_.empty(); }
  Duration sleep_max() const override;

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  friend class ShmLink;
  friend class Region;
  explicit ShmEndpoint(Clock& clock) : clock_(clock) {}
  Status open();
  bool poll_sockets();
  bool poll_copies();
  bool poll_deadlines();
  void accept_links();
  void on_readable(ShmLink& link);
  void on_greeted(ShmLink& link);
  void on_lost(ShmLink& link, Code code, const char* where);

  Clock& clock_;
  Capabilities capabilities_;
  std::string name_;  ///< the listening socket's name in the abstract name space
  AcceptHandler* accept_handler_ = nullptr;
  int epoll_fd_ = -1;
  int listen_fd_ = -1;
  std::uint64_t next_key_ = 1;
  std::map<std::uint64_t, RemoteKey> regions_;
  std::unordered_set<ShmLink*> links_;
  std::unordered_set<ShmLink*> reporting_;  ///< links with copies to report
  std::vector<std::unique_ptr<ShmLink>> accepting_;
  Time next_deadline_check_{};
};

}  // namespace stdchk::transport::shm
