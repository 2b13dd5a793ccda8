#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/lifetime.h"
#include "transport/tcp/content_channel.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/pieces.h"
#include "transport/tcp/tls.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

class TcpEndpoint;

/// A TcpRegion is memory that peers reach by the keys that links have made for it.
class TcpRegion final : public MemoryRegion {
 public:
  TcpRegion(TcpEndpoint& endpoint, MutableByteSpan memory);
  ~TcpRegion() override;
  MutableByteSpan bytes() const override { return memory_; }
  /// Opens nothing: Link::share() makes the key of a link.
  RemoteKey remote_key() const override { return {0, 0, memory_.size()}; }
  const TcpEndpoint& endpoint() const { return endpoint_; }

 private:
  TcpEndpoint& endpoint_;
  MutableByteSpan memory_;
};

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
/// Owns: the connection, and copies of messages. Threads: its endpoint's.
/// Limits: kTransfersMax transfers and as many answers, kSendsMax messages of kSendBytesMax bytes.
class TcpLink final : public Link {
 public:
  enum class State : std::uint8_t { kConnecting, kProving, kGreeting, kJoining, kOpen, kClosed };
  static constexpr std::size_t kSendsMax = 128;
  static constexpr std::size_t kSendBytesMax = 4 * limits::kMiB;

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
  RemoteKey share(const MemoryRegion& region) override { return share(region, {.writable = true}); }
  RemoteKey share_for_reading(const MemoryRegion& region) override {
    return share(region, {.writable = false});
  }
  RemoteKey share_checked(const MemoryRegion& region, std::shared_ptr<WriteCheck> check) override {
    return share(region, {.writable = true, .check = std::move(check)});
  }
  Status present(const RemoteKey& to, const Grant& grant) override;

  /// For tests: how often each direction has had a new key.
  const TlsSession& tls() const { return *tls_; }

 private:
  friend class TcpEndpoint;
  friend class TcpRegion;

  /// A Transfer is one write or read of this end. Its place in transfers_ is the low byte of `id`.
  struct Transfer {
    Operation* operation = nullptr;  ///< null: the place is free
    bool is_write = false;
    bool sent = false;  ///< of a write: all of it
    std::uint64_t id = 0;
    Time started{};
    Pieces pieces;  ///< of a read: where the rest goes
    std::uint64_t received = 0;
  };
  /// A Content is a write, or the answer to a read, of which a part is to be sent.
  struct Content {
    FrameHeader next;  ///< but for its length
    Pieces pieces;
    std::size_t burst = 0;              ///< bytes sent since another one had its turn
    const TcpRegion* region = nullptr;  ///< of an answer
  };
  /// A Shared says what a key of this link opens.
  struct Shared {
    const TcpRegion* region = nullptr;
    bool writable = false;
    std::shared_ptr<WriteCheck> check;  ///< null: all of the region can be written
    bool operator==(const Shared&) const = default;
  };
  /// The place of a peer's write that comes.
  struct Target {
    Pieces pieces;
    const TcpRegion* region = nullptr;
    std::shared_ptr<WriteCheck> check;
    std::uint64_t revision = 0;  ///< of `check`, when the header came
  };
  /// A frame whose header is in TLS and whose content is on the content channel.
  struct ClearFrame {
    FrameHeader header;
    Pieces pieces;
    const TcpRegion* region = nullptr;
    bool ends = false;  ///< the transfer
    std::shared_ptr<WriteCheck> check;
    std::uint64_t revision = 0;
  };
  /// The frame that is being sent.
  struct Outgoing {
    FrameHeader::Bytes header{};
    std::size_t header_left = 0;
    Pieces content;
    std::vector<std::byte> message;     ///< content's memory
    std::uint64_t write = 0;            ///< that is sent with it
    const TcpRegion* region = nullptr;  ///< content's, of an answer
    bool is_content = false;            ///< of a transfer
    bool left() const { return header_left > 0 || content.left() > 0; }
  };

  // link.cpp
  Status start(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
               std::uint64_t offset, Operation& operation);
  Transfer* free_transfer();
  Transfer* find_transfer(std::uint64_t id, bool is_write);
  void finish(Transfer& transfer, Status status);
  /// False: the link was destroyed by a handler.
  bool finish_all(const Error& why);
  bool any_late(Time now) const;
  void forget(const TcpRegion& region);

  // link_send.cpp
  /// Encrypts and sends what is queued. True: it stopped for the sake of other links.
  bool pump();
  bool anything_to_send() const;
  bool next_frame();
  void next_content();
  void begin_frame(const FrameHeader& header, Pieces content = {});
  void end_frame();
  ByteSpan next_record();
  bool may_send_content() const;
  bool goes_in_clear(const FrameHeader& header) const {
    return in_clear_ && header.length > FrameHeader::kInlineBytesMax;
  }
  bool pump_clear(std::size_t& bytes);
  void content_sent(std::uint64_t write);

  // link_receive.cpp
  /// Handles what has come. True: it stopped for the sake of other links. The link may be gone.
  bool receive();
  bool on_header();
  bool on_write(const FrameHeader& header);
  bool on_written(const FrameHeader& header);
  bool on_read(const FrameHeader& header);
  bool on_read_data(const FrameHeader& header);
  bool on_content();
  bool on_hello();
  bool receive_clear();
  bool announce(const ClearFrame& frame);
  bool overtakes(const FrameHeader& header) const;
  bool on_clear_frame();
  bool on_written_here(const FrameHeader& header);
  bool on_read_here(const FrameHeader& header, bool ends);
  RemoteKey share(const MemoryRegion& region, Shared as);
  Target region_part(const FrameHeader& header, bool writes);
  /// False: the place of a write under way is not the peer's any more.
  static bool is_still_granted(const FrameHeader& header, const std::shared_ptr<WriteCheck>& check,
                               std::uint64_t& revision);
  bool on_grant();
  bool refuse_frame();

  TcpEndpoint& endpoint_;
  const std::uint64_t number_;  ///< of the endpoint's, never used again
  const bool accepted_;
  const Time late_at_;  ///< unless it is open by then
  State state_ = State::kProving;
  LinkHandler* handler_ = nullptr;
  std::optional<secure::Credential> credential_;  ///< of a link that connects, until then
  std::unique_ptr<TlsSession> tls_;
  std::optional<secure::PeerIdentity> peer_;
  bool begun_ = false;           ///< an arrival has begun with TLS
  bool peeked_ = false;          ///< what an arrival begins with was looked at
  bool ready_ = false;           ///< in the endpoint's list
  bool more_to_read_ = false;    ///< receive() has stopped before the end
  bool waits_for_room_ = false;  ///< in the socket
  Time moved_{};  ///< when a part of a transfer ended last: a long one is not late while it moves

  std::vector<Transfer> transfers_;
  std::size_t transfers_count_ = 0;
  std::uint64_t transfers_made_ = 0;

  std::deque<FrameHeader> notes_;  ///< frames without content
  struct Presented {
    FrameHeader header;
    GrantContent::Bytes content;
  };
  std::deque<Presented> presented_;  ///< grants; they go before messages and content
  std::deque<std::vector<std::byte>> messages_;
  std::size_t message_bytes_ = 0;
  std::deque<Content> contents_;
  std::size_t answers_ = 0;  ///< of the peer's transfers, in notes_ and contents_
  bool message_was_last_ = false;
  Outgoing out_;

  bool in_clear_ = false;  ///< content: the accepting end trusts the network
  std::unique_ptr<ContentChannel> channel_;
  bool channel_connecting_ = false;
  bool channel_room_ = false;         ///< is waited for, in its socket
  bool channel_content_ = false;      ///< is waited for
  std::deque<ClearFrame> clear_out_;  ///< announced; the first is being sent
  std::deque<ClearFrame> clear_in_;   ///< announced; the first is being received

  std::unordered_map<std::uint64_t, Shared> shared_;
  FrameHeader::Bytes header_{};
  std::size_t header_got_ = 0;
  FrameHeader in_;
  Pieces content_;  ///< where the rest of the frame goes
  std::vector<std::byte> message_;
  const TcpRegion* in_region_ = nullptr;  ///< of content_
  std::shared_ptr<WriteCheck> in_check_;  ///< of content_
  std::uint64_t in_revision_ = 0;         ///< of in_check_
  /// Watched by functions that call handlers, to see that one of those destroyed this.
  Lifetime lifetime_;
};

}  // namespace stdchk::transport::tcp
