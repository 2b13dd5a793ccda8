#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "client/names/file_numbers.h"
#include "client/net/shared.h"
#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A NameBatches collects changes of names in held directories, and sends them to the manager in
/// batches (docs/decisions/0075). Batches go out in their order. A batch whose outcome is unknown is
/// sent again, with its number, before any later one.
///
/// Threads: any, with the engine's lock held. may_go() needs no lock.
/// Errors: `lost` is called once when the manager has ended the leases. It gets the changes that
///   were not durable.
/// Limits: a change is sent within kAgeMax. A batch has at most kChangesMax changes and kBytesMax
///   bytes.
class NameBatches {
 public:
  static constexpr Duration kAgeMax = std::chrono::milliseconds(2);
  static constexpr std::size_t kChangesMax = 256;
  static constexpr std::size_t kBytesMax = 128 << 10;
  /// Callers wait while so many changes are not durable.
  static constexpr std::size_t kUnsyncedMax = 8192;
  /// Callers wait while a batch that is so old is not durable.
  static constexpr Duration kUnsyncedAgeMax = std::chrono::milliseconds(100);

  using Changes = std::vector<msg::NameChange>;
  struct Host {
    Shared& shared;
    Clock& clock;
    /// Sends a request, when `may_go` says so; see ManagerClient::call.
    std::function<void(msg::Request, std::function<void(rpc::Answer)>, std::function<bool()>)> call;
    /// Runs something on the reactor's thread.
    std::function<bool(Duration, std::function<void()>)> run_after;
    std::function<void(Changes)> lost;
    /// Something has changed that callers may wait for.
    std::function<void()> moved;
  };
  explicit NameBatches(Host host) : host_(std::move(host)) {}

  /// Takes what the manager says when it grants a lease. `first`: this client holds nothing else.
  void granted(const msg::LeaseDirectory::Reply& reply, bool first) STDCHK_REQUIRES(engine_lock);
  std::uint64_t holder() const STDCHK_REQUIRES(engine_lock) { return holder_; }
  /// The manager's time.
  std::int64_t now_ns() const STDCHK_REQUIRES(engine_lock);
  /// For new files. The answer to the next batch brings more.
  FileNumbers& numbers() STDCHK_REQUIRES(engine_lock) { return numbers_; }

  void add(msg::NameChange change) STDCHK_REQUIRES(engine_lock);
  /// Sends what was collected. `also_nothing`: sends a batch without changes, too.
  void send(bool also_nothing = false) STDCHK_REQUIRES(engine_lock);
  /// Callers must not add changes now.
  bool is_full() const STDCHK_REQUIRES(engine_lock);
  /// Counts batches, with the one that collects. See is_durable().
  std::uint64_t newest() const STDCHK_REQUIRES(engine_lock) {
    return sent_ + (changes_.empty() ? 0 : 1);
  }
  bool is_durable(std::uint64_t batch) const STDCHK_REQUIRES(engine_lock) {
    return in_flight_.empty() ? batch <= sent_ : in_flight_.front().count > batch;
  }
  /// All changes are durable.
  bool empty() const STDCHK_REQUIRES(engine_lock) { return changes_.empty() && in_flight_.empty(); }
  /// Says whether other requests may be sent. They wait until a repeated batch is answered: the link
  /// would repeat older requests before that batch. Any thread.
  bool may_go() const { return repeat_ == Repeat::kNone; }
  /// Called every 20 ms: sends late changes, and repeats batches whose outcome is unknown.
  void tick() STDCHK_REQUIRES(engine_lock);
  /// The leases have ended: forgets everything, and calls `lost`.
  void lose() STDCHK_REQUIRES(engine_lock);

 private:
  struct Batch {
    std::uint64_t count = 0;
    Time sent_at{};
    msg::ApplyNames request;
    bool asked = false;  ///< the call has not ended
  };
  /// The manager's newest known time.
  struct ManagerTime {
    std::int64_t wall_ns = 0;
    Time known_at{};
  };
  /// The state of batches whose outcome was unknown.
  enum class Repeat : std::uint8_t {
    kNone,  ///< all batches are answered
    kDue,   ///< they wait, and so do later batches
    kSent,  ///< they were sent again
  };
  void post(Batch& batch) STDCHK_REQUIRES(engine_lock);
  void answered(std::uint64_t count, const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);

  const Host host_;
  std::uint64_t holder_ STDCHK_GUARDED_BY(engine_lock) = 0;
  std::uint64_t number_ STDCHK_GUARDED_BY(engine_lock) = 0;  ///< of the newest batch
  std::uint64_t sent_ STDCHK_GUARDED_BY(engine_lock) = 0;    ///< counts the batches of all leases
  Changes changes_ STDCHK_GUARDED_BY(engine_lock);
  std::size_t bytes_ STDCHK_GUARDED_BY(engine_lock) = 0;  ///< of `changes_`
  Time oldest_ STDCHK_GUARDED_BY(engine_lock){};          ///< of `changes_`
  bool timer_set_ STDCHK_GUARDED_BY(engine_lock) = false;
  std::deque<Batch> in_flight_ STDCHK_GUARDED_BY(engine_lock);
  std::size_t unsynced_ STDCHK_GUARDED_BY(engine_lock) = 0;  ///< changes that are not durable
  FileNumbers numbers_ STDCHK_GUARDED_BY(engine_lock);
  bool numbers_asked_ STDCHK_GUARDED_BY(engine_lock) = false;
  ManagerTime manager_time_ STDCHK_GUARDED_BY(engine_lock);
  Time repeat_at_ STDCHK_GUARDED_BY(engine_lock){};
  std::atomic<Repeat> repeat_{Repeat::kNone};
};

}  // namespace stdchk::client
