#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/assert.h"
#include "core/clock.h"
#include "core/reactor.h"
#include "core/result.h"
#include "core/types.h"
#include "transport/secure/keyring.h"

/// Moving bytes between processes. See transport/README.md for the rules that every transport keeps
/// and docs/architecture.md for why they are these.
namespace stdchk::transport {

/// What a write's completion proves, so that "stored" can be told from "written" (rule M2).
enum class WriteProof : std::uint8_t {
  kNone,       ///< nothing: the bytes may still be on their way; the target must be asked
  kDelivered,  ///< the bytes can be read at the target when the completion is reported
};

/// What fence() does (rule M3).
enum class FenceKind : std::uint8_t {
  kImmediate,  ///< when fence() returns true, which it does at once, no write of the peer can land
  kPeerGone,   ///< fence() returns true only when the peer has closed its end of the link, or its
               ///< process has ended: quarantine until then
};

/// What a transport promises. Stated by the transport, measured by the conformance suite.
struct Capabilities {
  std::string_view name;  ///< "mem", "tcp", "ofi:verbs", "shm", "verbs"
  WriteProof write_proof = WriteProof::kNone;
  FenceKind fence = FenceKind::kImmediate;
  bool one_sided = false;             ///< data moves without a receive by the target's program
  bool target_must_progress = false;  ///< writes move only while the target's process calls poll()
  bool same_host_only = false;
  std::size_t message_bytes_max = 0;
  std::size_t rma_bytes_max = 0;  ///< of one write or read
};

/// A RemoteKey is what a peer needs to reach a registered region. Sent inside attach replies only.
struct RemoteKey {
  std::uint64_t key = 0;
  std::uint64_t base = 0;  ///< remote address of the region's first byte
  std::uint64_t length = 0;
  bool operator==(const RemoteKey&) const = default;
};

/// A MemoryRegion is memory that an endpoint may read from and write to.
///
/// Owns: the registration, not the memory. Must outlive every operation that uses it.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual MutableByteSpan bytes() const = 0;
  virtual RemoteKey remote_key() const = 0;
};

/// A LocalPiece is part of a registered region of the endpoint that the operation runs on.
struct LocalPiece {
  std::byte* data = nullptr;
  std::size_t length = 0;
  const MemoryRegion* region = nullptr;
};
/// Of one write or read: a header, and content that begins in one buffer and ends in another.
inline constexpr std::size_t kPiecesMax = 3;

/// An Operation is one asynchronous transfer, embedded in the object that owns its buffers.
///
/// From the call that starts it until complete() the transport may read or write the local pieces.
/// complete() is called exactly once for each started operation, on the reactor's thread, never
/// from within the call that starts it; also when the link fails or is destroyed.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() { STDCHK_ASSERT(!in_flight_); }
  bool in_flight() const { return in_flight_; }

  // For transports only.
  void started() {
    STDCHK_ASSERT(!in_flight_);
    in_flight_ = true;
  }
  void finish(Status status) {
    STDCHK_ASSERT(in_flight_);
    in_flight_ = false;
    complete(status);
  }

 protected:
  /// May destroy or start this operation again.
  virtual void complete(Status status) = 0;

 private:
  bool in_flight_ = false;
};

class Link;

/// A LinkHandler hears what happens on a link. Functions are called on the reactor's thread from
/// poll(). A handler may destroy the link from within any of them.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  /// A link made by connect() can be used from now on. Not called for accepted links.
  virtual void on_connected(Link& link) = 0;
  /// `message` is valid until the function returns.
  virtual void on_message(Link& link, ByteSpan message) = 0;
  /// The link is dead: refused, lost, or closed by the peer. Every operation on it was finished
  /// before. Nothing more is called for this link.
  virtual void on_closed(Link& link, Error why) = 0;
};

/// A Link is a connection between two processes: ordered messages, and one-sided access to the
/// regions whose key the peer has told over this link. An access before that may end the link.
///
/// Owns: the connection. Destroying it closes it and finishes its operations with kCancelled.
/// Threads: the reactor's.
/// Errors: starting functions answer kWouldBlock when a queue is full (try again after a
/// completion)
///   and kPeerLost when the link is not connected; then the operation was not started.
/// Not: ordered between writes and messages. Wait for a write's completion before telling of it.
class Link {
 public:
  virtual ~Link() = default;
  virtual void set_handler(LinkHandler& handler) = 0;
  virtual bool connected() const = 0;
  /// Copies the message (at most message_bytes_max) before it returns. Delivery is ordered; loss
  /// shows as on_closed.
  virtual Status send(ByteSpan message) = 0;
  /// Writes the pieces, one after the other, to `offset` in the peer's region. Completion proves
  /// what Capabilities::write_proof says.
  virtual Status write(std::span<const LocalPiece> pieces, const RemoteKey& to,
                       std::uint64_t offset, Operation& operation) = 0;
  /// Reads from `offset` in the peer's region into the pieces. Completed: all bytes are there.
  virtual Status read(std::span<const LocalPiece> pieces, const RemoteKey& from,
                      std::uint64_t offset, Operation& operation) = 0;
  /// Rule M3: true when no write of the peer through this link can change this process's memory any
  /// more. The link is closed by the first call; false means ask again later
  /// (FenceKind::kPeerGone).
  virtual bool fence() = 0;
  /// Who has proven itself at the other end. Null: nobody has, because the endpoint was opened
  /// without a keyring. Valid as long as the link.
  virtual const secure::PeerIdentity* peer() const { return nullptr; }
  /// The key by which this link's peer reaches `region`, which is of the link's endpoint. Where
  /// the transport can, the key is valid on this link only and ends with it. Ask once for each
  /// region, and only when the peer may have all of it.
  virtual RemoteKey share(const MemoryRegion& region) { return region.remote_key(); }
  /// The peer has proven who it is: it may reach the memory of an endpoint that withholds access.
  /// Goes ahead of what is sent later.
  virtual void grant_access() {}
};

/// An AcceptHandler takes the links that peers open.
class AcceptHandler {
 public:
  virtual ~AcceptHandler() = default;
  /// The link is connected; the handler keeps it and must call set_handler before it returns.
  virtual void on_accept(std::unique_ptr<Link> link) = 0;
};

/// An Endpoint is a process's access to one fabric.
///
/// Owns: the fabric's resources. Links and regions made by it must be destroyed before it.
/// Threads: all functions on the reactor's thread, but for register_memory, which any thread may
///   call before the reactor runs.
class Endpoint : public EventSource {
 public:
  virtual const Capabilities& capabilities() const = 0;
  /// What a peer gives to connect(), for example "tcp:10.0.0.1:7471". Empty before listen().
  virtual std::string address() const = 0;
  /// Takes links from now on.
  virtual Status listen(AcceptHandler& handler) = 0;
  /// Starts a connection to the pool's manager; on_connected or on_closed follows within
  /// `deadline`.
  virtual Result<std::unique_ptr<Link>> connect(std::string_view address, LinkHandler& handler,
                                                Duration deadline) = 0;
  /// The same to another member than the manager. An endpoint without a keyring proves nothing to
  /// anybody, and takes no notice of the ticket.
  virtual Result<std::unique_ptr<Link>> connect_to(const secure::Ticket& /*peer*/,
                                                   std::string_view address, LinkHandler& handler,
                                                   Duration deadline) {
    return connect(address, handler, deadline);
  }
  /// Registers for local use and for remote reads and writes.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) = 0;
  /// From now on a peer reaches registered memory only after Link::grant_access(), where the fabric
  /// can keep it out; docs/security.md says what keeps it out elsewhere. Before any link is made.
  virtual void withhold_access() {}
};

/// True when `address` is one of this endpoint's kind: the endpoint whose name is "tcp" reaches
/// "tcp:host:port".
inline bool reaches(const Endpoint& endpoint, std::string_view address) {
  const std::string_view name = endpoint.capabilities().name;
  return address.size() > name.size() && address.starts_with(name) && address[name.size()] == ':';
}

}  // namespace stdchk::transport
