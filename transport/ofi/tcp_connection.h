#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <vector>

#include "transport/transport.h"

namespace stdchk::transport::ofi {

class TcpEndpoint;
class TcpLink;
struct Connection;

/// A Work is what the fabric's context pointer of one send, receive or transfer points to.
///
/// Owns: the message buffer of a send or receive. Outlives the entries of the completion queue.
struct Work {
  enum class Kind : std::uint8_t { kReceive, kSend, kTransfer };
  fi_context2 for_provider{};  ///< must be first: the provider may keep state in it
  Connection* connection = nullptr;
  Kind kind = Kind::kSend;
  Operation* operation = nullptr;  ///< a transfer in flight
  Time started{};
  std::unique_ptr<std::byte[]> buffer;
  std::size_t buffer_bytes = 0;
};

enum class State : std::uint8_t { kConnecting, kAccepting, kConnected, kClosed };

/// A Connection is the fabric's side of one link. It lives on after its link until no completion
/// can name it any more.
///
/// Threads: the reactor's.
struct Connection {
  explicit Connection(TcpEndpoint& of) : endpoint(of) {}

  Status post_receive(Work& work);
  Status send(ByteSpan message);
  Status transfer(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                  std::uint64_t offset, Operation& operation);
  /// Gives back a work that has completed.
  void retire(Work& work);
  /// Closes the fabric's endpoint and the queue of its own. From then on nothing of the peer can
  /// land here, and the provider touches no buffer.
  void close_fabric();
  /// Finishes all transfers; the first error is theirs.
  void finish_transfers(Code code);

  TcpEndpoint& endpoint;
  fid_ep* ep = nullptr;
  fid_cq* transmit = nullptr;  ///< of a connection that is made here; others use the endpoint's
  State state = State::kConnecting;
  TcpLink* link = nullptr;
  LinkHandler* handler = nullptr;
  Time connect_by{};
  Time moved{};  ///< when a transfer or message ended last: a long queue is not late while it moves
  std::vector<std::unique_ptr<Work>> receives;
  std::vector<std::unique_ptr<Work>> works;
  std::vector<Work*> idle_sends;
  std::vector<Work*> idle_transfers;
  std::size_t sends = 0;
  std::size_t send_bytes = 0;
  std::size_t transfers = 0;
};

/// A TcpLink is the user's handle of a Connection.
class TcpLink final : public Link {
 public:
  explicit TcpLink(Connection& connection) : connection_(connection) { connection_.link = this; }
  ~TcpLink() override;
  void set_handler(LinkHandler& handler) override { connection_.handler = &handler; }
  bool connected() const override { return connection_.state == State::kConnected; }
  Status send(ByteSpan message) override { return connection_.send(message); }
  Status write(std::span<const LocalPiece> pieces, const RemoteKey& to, std::uint64_t offset,
               Operation& operation) override {
    return connection_.transfer(true, pieces, to, offset, operation);
  }
  Status read(std::span<const LocalPiece> pieces, const RemoteKey& from, std::uint64_t offset,
              Operation& operation) override {
    return connection_.transfer(false, pieces, from, offset, operation);
  }
  bool fence() override;

 private:
  Connection& connection_;
};

/// A TcpRegion is memory registered with one endpoint's domain.
class TcpRegion final : public MemoryRegion {
 public:
  TcpRegion(fid_mr* mr, MutableByteSpan memory, bool virtual_addresses)
      : mr_(mr), memory_(memory), virtual_addresses_(virtual_addresses) {}
  ~TcpRegion() override { fi_close(&mr_->fid); }
  MutableByteSpan bytes() const override { return memory_; }
  RemoteKey remote_key() const override {
    const auto base = virtual_addresses_ ? reinterpret_cast<std::uint64_t>(memory_.data()) : 0;
    return {.key = fi_mr_key(mr_), .base = base, .length = memory_.size()};
  }
  void* descriptor() const { return fi_mr_desc(mr_); }

 private:
  fid_mr* mr_;
  MutableByteSpan memory_;
  bool virtual_addresses_;
};

}  // namespace stdchk::transport::ofi
