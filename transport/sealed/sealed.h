#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/base/lifetime.h"
#include "core/crypto/sealer.h"
#include "core/messages/messages.h"
#include "transport/secure/handshake.h"
#include "transport/transport.h"

/// Links between members of one pool only, over any transport.
namespace stdchk::transport::secure {

class SecureLink;

/// A SecureEndpoint makes links between members of the pool only. on_accept() and on_connected()
/// follow a successful handshake. From then on, Link::peer() returns the proven peer.
///
/// Messages are encrypted and authenticated with keys of the link, so only members learn the keys
/// of memory regions. One-sided transfers use the inner link unchanged: they cost nothing more, and
/// are not encrypted.
///
/// Owns: the inner endpoint.
/// Threads: the inner endpoint's reactor.
/// Errors: on_closed() gets kRefused (another key or version) or kMalformed when a handshake fails.
///   It gets kCorrupt when a message was changed, lost or repeated on its way.
/// Limits: kArrivingMax accepted links whose peer is not proven yet; a new link ends the oldest of
///   them. Each must be proven within limits::kConnectDeadline.
class SecureEndpoint final : public Endpoint, private AcceptHandler {
 public:
  static constexpr std::size_t kArrivingMax = 1024;

  SecureEndpoint(std::unique_ptr<Endpoint> inner, const Clock& clock,
                 std::shared_ptr<const Keyring> keyring);
  ~SecureEndpoint() override;
  SecureEndpoint(const SecureEndpoint&) = delete;
  SecureEndpoint& operator=(const SecureEndpoint&) = delete;

  std::size_t arriving() const { return arriving_.size(); }

  // Endpoint
  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return inner_->address(); }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override {
    return inner_->register_memory(memory);
  }
  bool poll() override;
  int fd() const override { return inner_->fd(); }
  bool may_sleep() override { return ending_.empty() && inner_->may_sleep(); }
  Duration sleep_max() const override;

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  friend class SecureLink;
  void on_accept(std::unique_ptr<Link> link) override;
  void hand_over(SecureLink& link);
  void refuse(SecureLink& link, const Error& why);
  bool end_overdue();

  std::unique_ptr<Endpoint> inner_;
  const Clock& clock_;
  const std::shared_ptr<const Keyring> keyring_;
  Capabilities capabilities_;
  AcceptHandler* accept_handler_ = nullptr;
  std::list<std::unique_ptr<SecureLink>> arriving_;  ///< accepted, not proven; the oldest first
  std::vector<SecureLink*> connecting_;
  std::vector<SecureLink*> ending_;  ///< the next poll() calls their on_closed()
  Time next_check_{};
  Time next_warning_{};
  std::vector<std::byte> opened_;  ///< the decrypted message during on_message()
  std::vector<std::byte> sealed_;
};

/// A SecureLink is a link of the inner endpoint, with the keys of its messages.
///
/// | state    | leaves when                                                          |
/// |----------|----------------------------------------------------------------------|
/// | greeting | proven -> open; refused, late, or the inner link is lost -> closed   |
/// | open     | a message is corrupt, or the inner link is lost -> closed            |
class SecureLink final : public Link, private LinkHandler {
 public:
  /// `accepted`: the peer has opened the link.
  SecureLink(SecureEndpoint& endpoint, Handshake handshake, bool accepted, Time late_at);
  ~SecureLink() override;
  SecureLink(const SecureLink&) = delete;
  SecureLink& operator=(const SecureLink&) = delete;

  void set_handler(LinkHandler& handler) override { handler_ = &handler; }
  bool connected() const override { return state_ == State::kOpen && inner_->connected(); }
  Status send(ByteSpan message) override;
  Status write(std::span<const LocalPiece> pieces, const RemoteKey& to, std::uint64_t offset,
               Operation& operation) override;
  Status read(std::span<const LocalPiece> pieces, const RemoteKey& from, std::uint64_t offset,
              Operation& operation) override;
  const PeerIdentity* peer() const override {
    return state_ == State::kGreeting ? nullptr : &handshake_.peer();
  }
  RemoteKey share(const MemoryRegion& region) override {
    return inner_ == nullptr ? region.remote_key() : inner_->share(region);
  }
  RemoteKey share_for_reading(const MemoryRegion& region) override {
    return inner_ == nullptr ? region.remote_key() : inner_->share_for_reading(region);
  }
  bool fence() override { return inner_ == nullptr || inner_->fence(); }

 private:
  friend class SecureEndpoint;
  enum class State : std::uint8_t { kGreeting, kOpen, kClosed };

  void greet(ByteSpan message);
  void end_soon(const Error& why);
  void end_now();

  // LinkHandler, of the inner link
  void on_connected(Link& link) override;
  void on_message(Link& link, ByteSpan message) override;
  void on_closed(Link& link, Error why) override;

  SecureEndpoint& endpoint_;
  const bool accepted_;
  const Time late_at_;
  std::unique_ptr<Link> inner_;
  LinkHandler* handler_ = nullptr;
  State state_ = State::kGreeting;
  bool close_reported_ = false;  ///< on_closed() was called
  std::optional<Error> reason_;  ///< the reason, when this end closes the link
  Handshake handshake_;
  Sealer out_;
  Sealer in_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  Lifetime lifetime_;
};

}  // namespace stdchk::transport::secure
