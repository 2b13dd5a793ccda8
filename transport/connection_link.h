#pragma once

#include "transport/transport.h"

namespace stdchk::transport {

enum class ConnectionState : std::uint8_t { kConnecting, kAccepting, kConnected, kClosed };

/// A ConnectionLink is the user's handle of a Connection. It serves transports whose connections
/// outlive their links, because completions may still name them.
///
/// The type Connection must have `state`, `link`, `handler`, send(), transfer() and grant_access().
/// Its `endpoint` must have release() and fence(); fence() cuts the peer off before it returns.
template <class Connection>
class ConnectionLink final : public Link {
 public:
  explicit ConnectionLink(Connection& connection) : connection_(connection) {
    connection_.link = this;
  }
  ~ConnectionLink() override {
    connection_.link = nullptr;
    connection_.handler = nullptr;
    connection_.endpoint.release(connection_);
  }
  ConnectionLink(const ConnectionLink&) = delete;
  ConnectionLink& operator=(const ConnectionLink&) = delete;

  void set_handler(LinkHandler& handler) override { connection_.handler = &handler; }
  bool connected() const override { return connection_.state == ConnectionState::kConnected; }
  Status send(ByteSpan message) override { return connection_.send(message); }
  Status write(std::span<const LocalPiece> pieces, const RemoteKey& to, std::uint64_t offset,
               Operation& operation) override {
    return connection_.transfer(true, pieces, to, offset, operation);
  }
  Status read(std::span<const LocalPiece> pieces, const RemoteKey& from, std::uint64_t offset,
              Operation& operation) override {
    return connection_.transfer(false, pieces, from, offset, operation);
  }
  bool fence() override {
    connection_.endpoint.fence(connection_);
    return true;
  }
  void grant_access() override { connection_.grant_access(); }

 private:
  Connection& connection_;
};

}  // namespace stdchk::transport
