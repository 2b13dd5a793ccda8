#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "transport/mem/wire.h"

namespace stdchk::transport::mem {

class MemEndpoint;

/// A LinkCore is the polled part of a link. It may outlive the Link, which its owner may destroy at
/// any time.
///
/// Threads: the reactor's of its endpoint.
class LinkCore : public std::enable_shared_from_this<LinkCore> {
 public:
  LinkCore(MemEndpoint& endpoint, std::shared_ptr<Wire> wire, std::size_t side, Time connect_by);

  void set_link(Link* link) { link_ = link; }
  void set_handler(LinkHandler& handler) { handler_ = &handler; }
  bool connected() const;
  Status send(ByteSpan message);
  Status start(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
               std::uint64_t offset, Operation& operation);
  bool fence();
  void grant_access();
  /// Ends the link, because the Link is being destroyed.
  void destroy();

  /// Runs everything that can run. Returns true when anything ran.
  bool progress();
  bool idle() const { return operations_.empty(); }
  bool destroyed() const { return link_ == nullptr; }
  /// The deadline of the connection attempt; nullopt when no attempt is under way.
  std::optional<Time> connect_by() const;

 private:
  struct Pending {
    bool write = false;
    std::array<LocalPiece, kPiecesMax> pieces{};
    std::size_t piece_count = 0;
    std::size_t bytes = 0;
    RemoteKey key;
    std::uint64_t offset = 0;
    Operation* operation = nullptr;
  };
  Wire::Side& mine() { return wire_->sides[side_]; }
  Wire::Side& other() { return wire_->sides[1 - side_]; }
  Status check(std::span<const LocalPiece> pieces) const;
  Status transfer(const Pending& pending);
  bool progress_connecting();
  bool run_operations();
  bool deliver_messages();
  bool notice_close();
  void finish_all(Code code);
  void close(Code code, const char* where);

  MemEndpoint& endpoint_;
  const std::shared_ptr<Wire> wire_;
  const std::size_t side_;
  const Time connect_by_;
  Link* link_ = nullptr;
  LinkHandler* handler_ = nullptr;
  std::deque<Pending> operations_;
  bool announced_;            ///< the handler knows that the link is connected
  bool closed_ = false;       ///< on_closed() was called, or the Link is destroyed
  bool fenced_here_ = false;  ///< this side has called fence()
};

/// A MemLink is the owner's handle of a LinkCore.
class MemLink final : public Link {
 public:
  explicit MemLink(std::shared_ptr<LinkCore> core) : core_(std::move(core)) {
    core_->set_link(this);
  }
  ~MemLink() override { core_->destroy(); }
  MemLink(const MemLink&) = delete;
  MemLink& operator=(const MemLink&) = delete;

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
  void grant_access() override { core_->grant_access(); }

 private:
  const std::shared_ptr<LinkCore> core_;
};

}  // namespace stdchk::transport::mem
