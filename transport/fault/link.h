#pragma once

#include <array>
#include <deque>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/fault/fault.h"

namespace stdchk::transport::fault {

/// A FaultCore is the polled part of a link. It may outlive the Link, which its owner may destroy
/// at any time.
///
/// Owns: the inner link, and a proxy for each operation.
class FaultCore final : public LinkHandler, public std::enable_shared_from_this<FaultCore> {
 public:
  /// `to` is the address that the link was opened to; empty for an accepted link.
  FaultCore(FaultEndpoint& endpoint, LinkHandler* handler, std::string to, Time connect_by);
  ~FaultCore() override;

  void set_inner(std::unique_ptr<Link> inner) { inner_ = std::move(inner); }
  void set_link(Link* link) { link_ = link; }
  void set_handler(LinkHandler& handler) { handler_ = &handler; }
  bool destroyed() const { return link_ == nullptr; }
  bool connected() const;
  Status send(ByteSpan message);
  Status start(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
               std::uint64_t offset, Operation& operation);
  bool fence();
  const secure::PeerIdentity* peer() const { return inner_ == nullptr ? nullptr : inner_->peer(); }
  RemoteKey share(const MemoryRegion& region) {
    return inner_ == nullptr ? RemoteKey{} : inner_->share(region);
  }
  RemoteKey share_for_reading(const MemoryRegion& region) {
    return inner_ == nullptr ? RemoteKey{} : inner_->share_for_reading(region);
  }
  RemoteKey share_checked(const MemoryRegion& region, std::shared_ptr<WriteCheck> check) {
    return inner_ == nullptr ? RemoteKey{} : inner_->share_checked(region, std::move(check));
  }
  /// Faults do not delay a grant: only writes arrive late.
  Status present(const RemoteKey& to, const Grant& grant) {
    return inner_ == nullptr ? fail(Code::kPeerLost, "fault.grant") : inner_->present(to, grant);
  }
  void grant_access() {
    if (inner_ != nullptr) inner_->grant_access();
  }
  void destroy();
  /// Loses the link. A later poll() tells the handler.
  void drop(Code code);
  bool poll();
  /// The time of poll()'s next work without an outside event.
  Time wake_at() const;
  /// The number of the oldest waiting message; the highest number if no message waits.
  std::uint64_t first_waiting() const {
    return outgoing_.empty() ? std::numeric_limits<std::uint64_t>::max() : outgoing_.front().number;
  }

  // LinkHandler of the inner link
  void on_connected(Link& link) override;
  void on_message(Link& link, ByteSpan message) override;
  void on_closed(Link& link, Error why) override;

 private:
  enum class Stage { kHeld, kStarted, kDone };
  struct Proxy final : Operation {
    explicit Proxy(FaultCore& of) : core(of) {}
    void complete(Status status) override;
    FaultCore& core;
    Operation* user = nullptr;     ///< nullptr: the user has been told already
    std::vector<std::byte> bytes;  ///< bytes of a write that nobody waits for
    std::unique_ptr<MemoryRegion> region;
    bool write = false;
    std::array<LocalPiece, kPiecesMax> pieces{};
    std::size_t piece_count = 0;
    RemoteKey key;
    std::uint64_t offset = 0;
    Stage stage = Stage::kHeld;
    Time go_on_at{};  ///< earliest time of the start, and then of the report
    Time end_by{};
    Duration delay_after{};
    bool fails = false;  ///< reported as failed, whatever its outcome
    std::byte* flipped = nullptr;
    std::byte flip_mask{};
    Status result;
  };
  struct Event {
    enum class Kind { kConnected, kMessage, kClosed } kind = Kind::kMessage;
    Time not_before{};
    std::vector<std::byte> message;
    Error why{};
  };

  struct Outgoing {
    Time not_before{};
    std::uint64_t number = 0;
    std::vector<std::byte> message;
  };

  void choose_faults(Proxy& proxy);
  bool land_later(const Proxy& proxy);
  void start_inner(Proxy& proxy);
  void take(Event event);
  bool stalled() const { return endpoint_.stalled() || endpoint_.stalled_to(to_); }
  bool holding() const { return !closing_ && stalled(); }
  bool run_operations();
  bool run_messages();
  bool run_events();
  bool check_deadlines();
  void deliver(const Event& event);
  void deliver_last(ByteSpan message);
  Status hand_over(std::uint64_t number, ByteSpan message);
  void finish_all(Code code);

  FaultEndpoint& endpoint_;
  LinkHandler* handler_;
  const std::string to_;
  const Time connect_by_;
  Link* link_ = nullptr;
  std::unique_ptr<Link> inner_;
  std::list<std::unique_ptr<Proxy>> operations_;
  std::deque<Outgoing> outgoing_;
  std::deque<Event> events_;
  bool announced_;
  bool muted_ = false;    ///< messages that are sent are lost
  bool closing_ = false;  ///< dropped here; the handler will get `close_code_`
  bool closed_ = false;
  Code close_code_{};
};

/// A FaultLink is the owner's handle of a FaultCore.
class FaultLink final : public Link {
 public:
  explicit FaultLink(std::shared_ptr<FaultCore> core) : core_(std::move(core)) {
    core_->set_link(this);
  }
  ~FaultLink() override { core_->destroy(); }
  FaultLink(const FaultLink&) = delete;
  FaultLink& operator=(const FaultLink&) = delete;
  void set_handler(LinkHandler& handler) override { core_->set_handler(handler); }
  bool connected() const override { return core_->connected(); }
  Status send(ByteSpan message) override { return core_->send(message); }
  Status write(std::span<const LocalPiece> pieces, const RemoteKey& to, std::uint64_t offset,
               Operation& operation) override {
    return core_->start(true, pieces, to, offset, operation);
  }
  Status read(std::span<const LocalPiece> pieces, const RemoteKey& from, std::uint64_t offset,
              Operation& operation) override {
    return core_->start(false, pieces, from, offset, operation);
  }
  bool fence() override { return core_->fence(); }
  const secure::PeerIdentity* peer() const override { return core_->peer(); }
  RemoteKey share(const MemoryRegion& region) override { return core_->share(region); }
  RemoteKey share_for_reading(const MemoryRegion& region) override {
    return core_->share_for_reading(region);
  }
  RemoteKey share_checked(const MemoryRegion& region, std::shared_ptr<WriteCheck> check) override {
    return core_->share_checked(region, std::move(check));
  }
  Status present(const RemoteKey& to, const Grant& grant) override {
    return core_->present(to, grant);
  }
  void grant_access() override { core_->grant_access(); }

 private:
  const std::shared_ptr<FaultCore> core_;
};

}  // namespace stdchk::transport::fault
