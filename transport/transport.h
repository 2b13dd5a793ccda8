#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/runtime/reactor.h"
#include "core/values/types.h"
#include "transport/secure/keyring.h"

/// Moving bytes between processes. transport/README.md has the rules that every transport keeps,
/// docs/internals/architecture.md the reasons.
namespace stdchk::transport {

/// A WriteProof says what a write's completion proves, so that "stored" differs from "written"
/// (rule M2).
enum class WriteProof : std::uint8_t {
  kNone,       ///< nothing: bytes may still be under way; ask the target
  kDelivered,  ///< the target can read the bytes when the completion is reported
};

/// A FenceKind says what fence() achieves (rule M3).
enum class FenceKind : std::uint8_t {
  kImmediate,  ///< fence() returns true at once; from then on no write of the peer can land
  /// fence() returns true only after the peer has closed its end of the link, or its process has
  /// ended: quarantine the memory until then.
  kPeerGone,
};

/// Capabilities are what a transport promises. The transport states them; the conformance suite
/// measures them.
struct Capabilities {
  std::string_view name;  ///< "mem", "tcp", "ofi:verbs", "shm", "verbs"
  WriteProof write_proof = WriteProof::kNone;
  FenceKind fence = FenceKind::kImmediate;
  bool one_sided = false;  ///< data moves without a receive operation in the target's program
  /// Writes progress only while the target's process calls poll().
  bool target_must_progress = false;
  bool same_host_only = false;
  std::size_t message_bytes_max = 0;
  std::size_t rma_bytes_max = 0;  ///< the longest write or read
  /// Peers write to a region with a WriteCheck only where the check allows it.
  bool checks_writes = false;
};

/// A RemoteKey is what a peer needs to reach a registered region. Only attach replies carry it.
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
/// Pieces of one write or read: a header, and content in at most two buffers.
inline constexpr std::size_t kPiecesMax = 3;

/// An Operation is one asynchronous transfer. It is embedded in the object that owns its buffers.
///
/// The transport may read or write the local pieces from the start of the operation until
/// complete(). Each started operation gets exactly one complete(), also when the link fails or is
/// destroyed. That call runs on the reactor's thread, never within the call that starts the
/// operation.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() { STDCHK_ASSERT(!in_flight_); }
  bool in_flight() const { return in_flight_; }

  // For transports only:
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
  /// Reports the outcome. May destroy this operation, or start it again.
  virtual void complete(Status status) = 0;

 private:
  bool in_flight_ = false;
};

/// A WriteCheck says which parts of a shared region the peer of one link may write.
///
/// Threads: the reactor's.
class WriteCheck {
 public:
  virtual ~WriteCheck() = default;
  /// The peer presents a grant of a part of the region. Returns false when nobody granted that
  /// part to this peer.
  virtual bool present(const Grant& grant) = 0;
  /// `offset`: in the region. Called for each frame of a write.
  virtual bool may_write(std::uint64_t offset, std::uint64_t length) = 0;
  /// Changes when a part stops being writable. A write under way is checked again then.
  virtual std::uint64_t revision() const = 0;
};

class Link;

/// A LinkHandler is told what happens on a link. Its functions are called by poll() on the
/// reactor's thread. Any of these functions may destroy the link.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  /// A link made by connect() can be used now. Not called for accepted links.
  virtual void on_connected(Link& link) = 0;
  /// `message` is valid until the function returns.
  virtual void on_message(Link& link, ByteSpan message) = 0;
  /// The link has ended: refused, lost, or closed by the peer. All its operations were finished
  /// before. The handler gets no more calls for this link.
  virtual void on_closed(Link& link, Error why) = 0;
};

/// A Link is a connection between two processes. It carries ordered messages, and one-sided access
/// to the regions whose keys the peer has sent over this link. An access without such a key may end
/// the link.
///
/// Owns: the connection. Destroying the Link closes it and finishes its operations with kCancelled.
/// Threads: the reactor's.
/// Errors: functions that start something return kWouldBlock when a queue is full (try again after
///   a completion), and kPeerLost when the link is not connected. In both cases nothing was
///   started.
/// Not: order between writes and messages. Wait for a write's completion before you report it.
class Link {
 public:
  virtual ~Link() = default;
  virtual void set_handler(LinkHandler& handler) = 0;
  virtual bool connected() const = 0;
  /// Copies the message (at most message_bytes_max) before it returns. Messages arrive in order. If
  /// a message is lost, on_closed() follows.
  virtual Status send(ByteSpan message) = 0;
  /// Writes the pieces, one after the other, to `offset` in the peer's region.
  /// Capabilities::write_proof says what the completion proves.
  virtual Status write(std::span<const LocalPiece> pieces, const RemoteKey& to,
                       std::uint64_t offset, Operation& operation) = 0;
  /// Reads from `offset` in the peer's region into the pieces. On completion all bytes are there.
  virtual Status read(std::span<const LocalPiece> pieces, const RemoteKey& from,
                      std::uint64_t offset, Operation& operation) = 0;
  /// Rule M3. Returns true when no write of the peer over this link can change this process's
  /// memory any more. The first call closes the link. False means: ask again later
  /// (FenceKind::kPeerGone).
  virtual bool fence() = 0;
  /// The proven identity of the peer, valid as long as the link. nullptr when the endpoint was
  /// opened without a keyring.
  virtual const secure::PeerIdentity* peer() const { return nullptr; }
  /// The key by which this link's peer reaches `region`, which must be of the link's endpoint.
  /// Where the transport can, the key is valid on this link only and ends with the link. Call it
  /// once for each region, for peers that may access the whole region.
  virtual RemoteKey share(const MemoryRegion& region) { return region.remote_key(); }
  /// Like share(), for a peer that must only read. "tcp" ends the link when the peer writes with
  /// this key. The other transports do not distinguish reads and writes.
  virtual RemoteKey share_for_reading(const MemoryRegion& region) { return share(region); }
  /// Like share(), for a peer that may read the whole region, and write where `check` allows it. A
  /// transport without Capabilities::checks_writes lets the peer write everywhere.
  virtual RemoteKey share_checked(const MemoryRegion& region,
                                  std::shared_ptr<WriteCheck> /*check*/) {
    return share(region);
  }
  /// Presents a grant to the WriteCheck of the peer's region. The peer has it before each write
  /// that starts later on this link. Does nothing without Capabilities::checks_writes.
  virtual Status present(const RemoteKey& /*to*/, const Grant& /*grant*/) { return {}; }
  /// Lets the peer reach the memory of an endpoint that withholds access, because the peer has
  /// proven who it is. Takes effect before messages that are sent later.
  virtual void grant_access() {}
};

/// An AcceptHandler takes the links that peers open.
class AcceptHandler {
 public:
  virtual ~AcceptHandler() = default;
  /// The link is connected. The handler keeps it and must call set_handler() before it returns.
  virtual void on_accept(std::unique_ptr<Link> link) = 0;
};

/// An Endpoint is a process's access to one fabric.
///
/// Owns: the fabric's resources. Links and regions made by it must be destroyed before it.
/// Threads: the reactor's for all functions; register_memory() on any thread before the reactor
///   runs.
class Endpoint : public EventSource {
 public:
  virtual const Capabilities& capabilities() const = 0;
  /// Returns the address that peers pass to connect(), for example "tcp:10.0.0.1:7471". The address
  /// is empty before listen().
  virtual std::string address() const = 0;
  /// Accepts links from now on.
  virtual Status listen(AcceptHandler& handler) = 0;
  /// Starts a connection to the member that `ticket` names, or to the pool's manager without a
  /// ticket. An endpoint without a keyring proves nothing, and ignores the ticket. on_connected()
  /// or on_closed() follows within `deadline`.
  Result<std::unique_ptr<Link>> connect(std::string_view address, LinkHandler& handler,
                                        Duration deadline, const secure::Ticket* ticket = nullptr) {
    return start_link(address, handler, deadline, ticket);
  }
  /// Registers memory for local use and for remote reads and writes.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) = 0;
  /// From now on a peer reaches registered memory only after Link::grant_access(), if the fabric
  /// can enforce that; otherwise see docs/guide/security.md. To be called before any link is made.
  virtual void withhold_access() {}

 private:
  /// See connect(). `ticket` is nullptr for the manager, and valid until the function returns.
  virtual Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                                   Duration deadline,
                                                   const secure::Ticket* ticket) = 0;
};

/// True when `address` is one of this endpoint's kind: the endpoint whose name is "tcp" reaches
/// "tcp:host:port".
inline bool reaches(const Endpoint& endpoint, std::string_view address) {
  const std::string_view name = endpoint.capabilities().name;
  return address.size() > name.size() && address.starts_with(name) && address[name.size()] == ':';
}

}  // namespace stdchk::transport
