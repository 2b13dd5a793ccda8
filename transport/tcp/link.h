#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "core/base/lifetime.h"
#include "transport/tcp/clear_content.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/incoming_frame.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/shared_regions.h"
#include "transport/tcp/tls.h"
#include "transport/tcp/transfer_table.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

class TcpEndpoint;

/// A TcpLink is one connection: TLS, and frames inside of it.
///
/// | state      | leaves when                                                              |
/// |------------|--------------------------------------------------------------------------|
/// | connecting | TCP is connected -> proving                                              |
/// | proving    | both ends have proven that they have the key -> greeting                 |
/// | greeting   | the peer's hello names our version -> open, or joining                   |
/// | joining    | the content channel is there -> open              |
/// | open       | fence(), a frame that is not allowed, a late transfer, a loss -> closed  |
///
/// In each state: the connection is lost, or its deadline has come -> closed.
///
/// | memory of                   | is read or written by the link                              |
/// |-----------------------------|-------------------------------------------------------------|
/// | a write that is started     | read, until complete()                                      |
/// | a read that is started      | written, until complete()                                   |
/// | a region that is shared     | both, until the link or the region ends                     |
///
/// The parts of a link do not know the link. SendQueue makes frames, and IncomingFrame collects
/// frames. ClearContent moves the content that goes around TLS. TransferTable has the transfers of
/// this end, SharedRegions the peer's rights. The link calls the parts, and ends when a part fails.
///
/// Owns: the connection, and its parts. Threads: its endpoint's. Limits: those of the parts.
class TcpLink final : public Link {
 public:
  enum class State : std::uint8_t { kConnecting, kProving, kGreeting, kJoining, kOpen, kClosed };
  /// The first bytes of an accepted connection: TLS, or a content channel's greeting.
  enum class FirstBytes : std::uint8_t {
    kNotRead,
    kIncomplete,  ///< fewer bytes than a content channel's greeting had come
    kTls,
  };

  TcpLink(TcpEndpoint& endpoint, std::uint64_t number, bool accepted, Time late_at);
  ~TcpLink() override;
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  // Link
  void set_handler(LinkHandler& handler) override { handler_ = &handler; }
  bool connected() const override { return state_ == State::kOpen; }
  Status send(ByteSpan message) override;
  Status write(std::span<const LocalPiece> pieces, const RemoteKey& to, std::uint64_t offset,
               Operation& operation) override {
    return start(true, pieces, to, offset, operation);
  }
  Status read(std::span<const LocalPiece> pieces, const RemoteKey& from, std::uint64_t offset,
              Operation& operation) override {
    return start(false, pieces, from, offset, operation);
  }
  bool fence() override;
  const secure::PeerIdentity* peer() const override { return peer_ ? &*peer_ : nullptr; }
  RemoteKey share(const MemoryRegion& region) override { return share_as(region, true, nullptr); }
  RemoteKey share_for_reading(const MemoryRegion& region) override {
    return share_as(region, false, nullptr);
  }
  RemoteKey share_checked(const MemoryRegion& region, std::shared_ptr<WriteCheck> check) override {
    return share_as(region, true, std::move(check));
  }
  Status present(const RemoteKey& to, const Grant& grant) override;

  /// For tests: how often each direction has had a new key.
  const TlsSession& tls() const { return *tls_; }

 private:
  friend class TcpEndpoint;

  // link.cpp
  Status start(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
               std::uint64_t offset, Operation& operation);
  RemoteKey share_as(const MemoryRegion& region, bool writable, std::shared_ptr<WriteCheck> check);
  bool has_overdue(Time now) const;
  void forget(const TcpRegion& region);
  /// Ends the link. Returns false.
  bool fail_link(const char* where);

  // link_send.cpp
  /// Encrypts and sends what is queued. True: it stopped for the sake of other links.
  bool pump();
  bool pump_clear(std::size_t& bytes);
  void watch_room(bool wanted);

  // link_receive.cpp
  /// Handles the bytes that have come. True: it stopped for the sake of other links. The link may
  /// be destroyed.
  bool receive();
  // False: the link has ended, or was destroyed.
  bool on_header();
  bool on_write(const FrameHeader& header);
  bool on_written(const FrameHeader& header);
  bool on_read(const FrameHeader& header);
  bool on_read_data(const FrameHeader& header);
  bool expect(const FrameHeader& header, Target target, bool ends);
  bool on_content();
  bool on_hello(const FrameHeader& header);
  bool on_message();
  bool on_grant(const FrameHeader& header);
  bool receive_clear();
  bool on_written_here(const FrameHeader& header);
  bool on_read_here(const FrameHeader& header, bool ends);
  bool finish(const FrameHeader& header, bool is_write);
  bool refuse_frame();

  TcpEndpoint& endpoint_;
  const std::uint64_t number_;  ///< unique among the links of the endpoint
  const bool accepted_;
  const Time late_at_;  ///< deadline of the handshake
  State state_ = State::kProving;
  LinkHandler* handler_ = nullptr;
  std::unique_ptr<TlsSession> tls_;
  std::optional<secure::PeerIdentity> peer_;
  FirstBytes first_bytes_ = FirstBytes::kNotRead;
  bool ready_ = false;           ///< in the endpoint's list
  bool more_to_read_ = false;    ///< receive() has stopped before the end
  bool waits_for_room_ = false;  ///< in the socket
  TransferTable transfers_;
  SharedRegions shared_;
  ClearContent clear_;
  SendQueue queue_;
  IncomingFrame frame_;
  /// Watched by functions that call handlers, which may destroy the link.
  Lifetime lifetime_;
};

}  // namespace stdchk::transport::tcp
