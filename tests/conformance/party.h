#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/reactor.h"
#include "tests/conformance/subjects.h"
#include "transport/transport.h"

namespace stdchk::conformance {

inline constexpr std::size_t kMemoryBytes = std::size_t{4} << 20;

/// The byte at `index` of the pattern named by `seed`. Seed 0 is all zeros.
inline std::byte pattern_byte(std::uint64_t seed, std::uint64_t index) {
  if (seed == 0) return std::byte{0};
  const std::uint64_t mixed = (index + seed * 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
  return static_cast<std::byte>(mixed >> 56);
}
/// Fills `out` with the first out.size() bytes of the pattern.
void fill_pattern(MutableByteSpan out, std::uint64_t seed);
/// The index of the first byte that differs from the pattern; -1: none differs.
std::int64_t first_mismatch(ByteSpan bytes, std::uint64_t seed);

/// A Transfer is an operation that checks the rules of completion.
struct Transfer final : transport::Operation {
  void complete(Status status) override;
  bool succeeded() const { return completions == 1 && code == Code{}; }
  int completions = 0;
  bool inside_start = false;  ///< true during the call that starts the transfer
  bool completed_inside_start = false;
  Code code{};
  std::function<void()> then;
};

/// A Contact is a link with its recorded events.
struct Contact final : transport::LinkHandler {
  void on_connected(transport::Link& link) override;
  void on_message(transport::Link& link, ByteSpan message) override;
  void on_closed(transport::Link& link, Error why) override;

  std::unique_ptr<transport::Link> link;
  transport::RemoteKey key;  ///< key of the peer's memory on this link
  int connected = 0;
  int closed = 0;
  bool called_after_close = false;
  Code close_code{};
  std::deque<std::vector<std::byte>> inbox;
  std::uint64_t messages = 0;
  std::function<void()> when_connected;
  /// returns true to drop the message instead of storing it
  std::function<bool(ByteSpan)> when_message;
  std::function<void()> when_closed;
};

/// A Party is an endpoint with a reactor and registered memory. The cases drive the initiator;
/// commands (remote.h) drive the other party.
///
/// Threads: the thread that made it.
class Party final : transport::AcceptHandler {
 public:
  static Result<std::unique_ptr<Party>> open(const Subject& subject);
  ~Party() override;

  Reactor& reactor() { return reactor_; }
  transport::Endpoint& endpoint() { return *endpoint_; }
  const transport::Capabilities& capabilities() const { return endpoint_->capabilities(); }
  MutableByteSpan memory() { return memory_; }
  transport::MemoryRegion& region() { return *region_; }

  Status listen();
  /// Starts a connection; nullptr if the transport refuses at once.
  Contact* connect(const std::string& address, Duration deadline);
  std::vector<std::unique_ptr<Contact>>& contacts() { return contacts_; }
  /// Number of links accepted so far.
  std::size_t accepted() const { return accepted_; }
  std::function<void(Contact&)> when_accepted;
  /// The key of the memory on the newest link.
  transport::RemoteKey share_with_newest();

  transport::LocalPiece piece(std::size_t offset, std::size_t length);
  Status write(Contact& contact, std::span<const transport::LocalPiece> pieces,
               const transport::RemoteKey& key, std::uint64_t offset, Transfer& transfer);
  Status read(Contact& contact, std::span<const transport::LocalPiece> pieces,
              const transport::RemoteKey& key, std::uint64_t offset, Transfer& transfer);

  /// Runs the reactor until `done` returns true. False: patience() times `timeout` passed first.
  bool run_until(const std::function<bool()>& done, Duration timeout);
  void run_for(Duration time);

 private:
  Party() : reactor_(clock_) {}
  void on_accept(std::unique_ptr<transport::Link> link) override;

  SystemClock clock_;
  Reactor reactor_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  MutableByteSpan memory_;
  std::unique_ptr<transport::MemoryRegion> region_;
  std::vector<std::unique_ptr<Contact>> contacts_;
  std::size_t accepted_ = 0;
};

/// The factor by which this machine may be slower than a usual one: $STDCHK_TEST_PATIENCE, or 1.
/// All waiting times are multiplied by it.
unsigned patience();

}  // namespace stdchk::conformance
