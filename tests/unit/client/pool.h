#pragma once

#include <string.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benefactor/memory/arena.h"
#include "benefactor/service/service.h"
#include "client/blocking/blocking_filesystem.h"
#include "core/base/executor.h"
#include "core/base/limits.h"
#include "manager/journal/memory_journal.h"
#include "manager/service/service.h"
#include "tests/support/catch.h"
#include "transport/fault/fault.h"
#include "transport/mem/mem.h"

/// A real manager and real benefactors in this process, served by one thread. Clients have their
/// own threads, as in reality.
namespace stdchk::client::test {

inline constexpr std::uint32_t kChunk = 65536;

/// Stops between stop() and go_on(), and jumps on request. Threads: any.
class StoppableClock final : public Clock {
 public:
  Time now() const override {
    const Duration stopped = stopped_at_.load();
    return stopped == Duration::zero() ? system_.now() + ahead_.load() : Time(stopped);
  }
  void jump(Duration by) { ahead_ = ahead_.load() + by; }
  std::int64_t wall_ns() const override { return system_.wall_ns(); }
  void stop() { stopped_at_ = now().time_since_epoch(); }
  void go_on() { stopped_at_ = Duration::zero(); }

 private:
  SystemClock system_;
  std::atomic<Duration> stopped_at_{Duration::zero()};
  std::atomic<Duration> ahead_{Duration::zero()};
};

class Pool {
 public:
  Pool(std::size_t benefactors, std::uint64_t arena_bytes, Naming naming,
       const std::string& drain_directory = {})
      : Pool(std::vector<std::uint64_t>(benefactors, arena_bytes), naming, drain_directory) {}
  /// Makes a benefactor for each arena.
  Pool(const std::vector<std::uint64_t>& arenas, Naming naming,
       const std::string& drain_directory = {}) {
    config_.pool.drain_directory = drain_directory;
    config_.membership = manager::Membership::trusting_all();
    config_.pool.chunk_bytes = kChunk;
    config_.pool.stripe_width = 4;
    config_.pool.naming = naming;
    start_manager();
    for (const std::uint64_t bytes : arenas) add_benefactor(bytes);
    thread_ = std::thread([this] { reactor_.run(); });
    for (int i = 0; i < 500 && registered() < arenas.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    REQUIRE(registered() == arenas.size());
  }
  ~Pool() {
    reactor_.stop();
    thread_.join();
    for (auto& one : benefactors_) end(*one);
    stop_manager();
  }
  /// Restarts the manager from its journal, with a new epoch.
  void restart_manager() {
    on_reactor([this] {
      stop_manager();
      start_manager();
    });
  }
  /// Restarts the manager, and calls `meanwhile` in between.
  void restart_manager(const std::function<void()>& meanwhile) {
    on_reactor([this] { stop_manager(); });
    meanwhile();
    on_reactor([this] { start_manager(); });
  }

  /// From now on a record is durable so long after it was written.
  void delay_journal(Duration delay) {
    on_reactor([this, delay] { journal_.set_sync_delay(delay); });
  }
  /// Restarts the manager after it has made the request of `ask` durable and before it answers.
  /// `ask` sends the request from another thread.
  void restart_manager_before_answer(const std::function<void()>& ask) {
    on_reactor([this] { journal_.set_sync_delay(std::chrono::hours(1)); });
    ask();
    for (bool made = false; !made;) {
      on_reactor([&] { made = journal_.unsynced() > 0; });
    }
    on_reactor([this] {
      journal_.set_sync_delay({});
      stop_manager();
      start_manager();
    });
  }

  std::unique_ptr<Filesystem> connect(Options options = {}, Clock* own = nullptr) {
    BlockingFilesystem::Parts parts;
    if (first_endpoint_without_memory) {
      auto lame = std::make_unique<transport::fault::FaultEndpoint>(make_endpoint(), clock, 1);
      lame->plan().no_memory = true;
      parts.endpoints.push_back(std::move(lame));
    }
    parts.endpoints.push_back(make_endpoint());
    parts.control = parts.endpoints.back().get();
    return connect_over(std::move(options), std::move(parts), own);
  }
  /// Connects a client whose messages are in flight for up to `delay_max` of a clock that the test
  /// may stop. `own` is the client's own clock.
  std::unique_ptr<Filesystem> connect_slowly(Options options, Clock& of_delays, Duration delay_max,
                                             Clock* own = nullptr) {
    BlockingFilesystem::Parts parts;
    auto data = std::make_unique<transport::fault::FaultEndpoint>(make_endpoint(), of_delays, 1);
    data->plan().delay_ppm = 1000000;
    data->plan().delay_max = delay_max;
    parts.endpoints.push_back(std::move(data));
    parts.control_only = make_endpoint();
    parts.control = parts.control_only.get();
    return connect_over(std::move(options), std::move(parts), own);
  }
  std::unique_ptr<Filesystem> connect_over(Options options, BlockingFilesystem::Parts parts,
                                           Clock* own = nullptr) {
    options.manager_address = "mem:manager";
    if (options.window_bytes == 0) options.window_bytes = 16 * kChunk;
    auto made =
        BlockingFilesystem::connect_over(options, own == nullptr ? clock : *own, std::move(parts));
    REQUIRE(made.has_value());
    return std::move(*made);
  }
  /// Kills the benefactor's process.
  void kill(std::size_t index) {
    on_reactor([this, index] { end(*benefactors_[index]); });
  }
  /// The number of benefactors whose memory holds `bytes`; calls `then` with the index and place of
  /// each.
  std::size_t find(ByteSpan bytes, const std::function<void(std::size_t, std::byte*)>& then = {}) {
    std::size_t found = 0;
    on_reactor([&] {
      for (auto& one : benefactors_) {
        const MutableByteSpan arena = one->arena->bytes();
        auto* at = static_cast<std::byte*>(
            ::memmem(arena.data(), arena.size(), bytes.data(), bytes.size()));
        if (at == nullptr) continue;
        if (then) then(found, at);
        ++found;
      }
    });
    return found;
  }
  /// Corrupts one byte of each occurrence of `bytes` in benefactors' memory. Returns the number of
  /// occurrences.
  std::size_t spoil(ByteSpan bytes) {
    return find(bytes, [&](std::size_t, std::byte* at) { at[bytes.size() / 2] ^= std::byte{1}; });
  }
  std::size_t registered() {
    std::size_t count = 0;
    on_reactor([&] {
      for (auto& one : benefactors_) count += one->service && one->service->registered() ? 1 : 0;
    });
    return count;
  }
  void on_reactor(const std::function<void()>& call) {
    std::promise<void> done;
    const auto posted = reactor_.post([&] {
      call();
      done.set_value();
    });
    if (posted.has_value()) done.get_future().wait();
    REQUIRE(posted.has_value());  // Catch is not thread-safe: the call has ended here
  }

  /// The number of directories that clients hold.
  std::size_t leases() {
    std::size_t count = 0;
    on_reactor([&] { count = manager_->state().name_leases().directories().size(); });
    return count;
  }
  std::uint64_t requests_served() {
    std::uint64_t count = 0;
    on_reactor([&] { count = manager_->services().router.requests_served(); });
    return count;
  }

  SystemClock clock;
  transport::mem::Fabric fabric;
  bool first_endpoint_without_memory = false;  ///< for clients that connect from now on

 private:
  std::unique_ptr<transport::Endpoint> make_endpoint() {
    return fabric.make_endpoint("client" + std::to_string(++clients_), clock);
  }
  struct One {
    std::unique_ptr<benefactor::Arena> arena;
    std::unique_ptr<transport::Endpoint> endpoint;
    std::unique_ptr<benefactor::Service> service;
  };
  void add_benefactor(std::uint64_t arena_bytes) {
    auto one = std::make_unique<One>();
    benefactor::ArenaOptions options;
    options.bytes = arena_bytes;
    options.check_machine = false;
    options.prefault = false;
    auto arena = benefactor::Arena::create(options, clock);
    REQUIRE(arena.has_value());
    one->arena = std::move(*arena);
    one->endpoint = fabric.make_endpoint("benefactor" + std::to_string(benefactors_.size()), clock);
    reactor_.add(*one->endpoint);
    benefactor::Config config;
    config.manager_address = "mem:manager";
    config.trusts_unproven_links = true;
    config.life = {1, benefactors_.size() + 1};
    config.executor = &executor_;
    one->service = std::make_unique<benefactor::Service>(
        reactor_, config, *one->arena, *one->endpoint,
        std::vector<transport::Endpoint*>{one->endpoint.get()});
    REQUIRE(one->service->start().has_value());
    benefactors_.push_back(std::move(one));
  }
  void start_manager() {
    manager_endpoint_ = fabric.make_endpoint("manager", clock);
    reactor_.add(*manager_endpoint_);
    manager_ = std::make_unique<manager::Service>(reactor_, journal_, config_);
    REQUIRE(manager_->start().has_value());
    REQUIRE(manager_endpoint_->listen(*manager_).has_value());
  }
  void stop_manager() {
    manager_->stop();
    manager_.reset();
    reactor_.remove(*manager_endpoint_);
    manager_endpoint_.reset();
  }
  void end(One& one) {
    if (one.service == nullptr) return;
    one.service.reset();
    reactor_.remove(*one.endpoint);
    one.endpoint.reset();
    one.arena.reset();
  }

  Reactor reactor_{clock};
  InlineExecutor executor_;
  manager::MemoryJournal journal_;
  manager::Config config_;
  std::unique_ptr<transport::Endpoint> manager_endpoint_;
  std::unique_ptr<manager::Service> manager_;
  std::vector<std::unique_ptr<One>> benefactors_;
  std::atomic<int> clients_{0};
  std::thread thread_;
};

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  Prng random(seed);
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = random.next();
    for (std::size_t j = 0; j < 8 && i + j < count; ++j) {
      bytes[i + j] = static_cast<std::byte>(word >> (8 * j));
    }
  }
  return bytes;
}

inline OpenFlags writing(bool truncate = false) {
  OpenFlags flags;
  flags.read = flags.write = flags.create = true;
  flags.truncate = truncate;
  return flags;
}

inline OpenFlags reading() {
  OpenFlags flags;
  flags.read = true;
  return flags;
}

inline std::vector<std::byte> read_all(Filesystem& filesystem, std::string_view path,
                                       std::size_t step = 100000) {
  const auto attributes = filesystem.lookup_fresh(kRootFile, path);
  REQUIRE(attributes.has_value());
  auto file = filesystem.open(attributes->id, reading());
  REQUIRE(file.has_value());
  std::vector<std::byte> bytes((*file)->attributes().size_bytes);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t want = std::min(step, bytes.size() - at);
    const auto count = (*file)->read(at, MutableByteSpan(bytes).subspan(at, want));
    REQUIRE(count.has_value());
    REQUIRE(*count == want);
    at += want;
  }
  REQUIRE((*file)->close().has_value());
  return bytes;
}

}  // namespace stdchk::client::test
