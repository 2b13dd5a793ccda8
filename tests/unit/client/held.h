#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "client/blocking/name_leasing.h"
#include "client/names/directory_leases.h"
#include "tests/unit/client/pool.h"

namespace stdchk::client::test {

/// A Held is a pool, a client that holds a directory, and the directory. `own` is the client's own
/// clock. With `drain`, the pool drains there.
struct Held {
  explicit Held(Clock* own = nullptr, const std::string& drain = {})
      : pool(1, 8 * limits::kMiB, Naming::kOff, drain) {
    BlockingFilesystem::Parts parts;
    parts.endpoints.push_back(pool.fabric.make_endpoint("holder", pool.clock));
    auto control = std::make_unique<transport::fault::FaultEndpoint>(
        pool.fabric.make_endpoint("holder-control", pool.clock), delays, 1);
    link = control.get();
    parts.control_only = std::move(control);
    parts.control = parts.control_only.get();
    first = pool.connect_over({}, std::move(parts), own);
    lease_names(*first);
    directory = make_directory("d");
    hold();
  }
  FileId make_directory(std::string_view name) {
    const auto made = first->make_directory(kRootFile, name, {0755, 1, 2});
    REQUIRE(made.has_value());
    return made->id;
  }
  /// Changes names until the client holds the directory.
  void hold() {
    for (int i = 0; i < 600 && !is_held(); ++i) {
      make("begin");
      REQUIRE(first->remove(directory, "begin", false).has_value());
    }
    REQUIRE(is_held());
  }
  /// The manager has leased a directory.
  bool is_held() { return pool.leases() > 0; }
  void make(std::string_view name) { make_in(directory, name); }
  void make_in(FileId parent, std::string_view name) {
    auto file = first->create(parent, name, writing(), {0640, 3, 4});
    INFO((file.has_value() ? std::string() : describe(file.error())));
    REQUIRE(file.has_value());
    REQUIRE((*file)->close().has_value());
  }
  /// The number of requests to the manager that `work` costs.
  std::uint64_t requests_of(const std::function<void()>& work) {
    const std::uint64_t before = pool.requests_served();
    work();
    return pool.requests_served() - before;
  }

  Engine& engine() const { return dynamic_cast<BlockingFilesystem&>(*first).engine(); }
  /// Runs `work` on the thread of the client's reactor.
  void on_client(const std::function<void()>& work) const {
    std::promise<void> done;
    const bool posted = engine().leases().run_after({}, [&] {
      work();
      done.set_value();
    });
    REQUIRE(posted);
    done.get_future().wait();
  }
  /// From now on the client's messages to the manager wait, until let_messages_go().
  void hold_messages() {
    on_client([this] {
      link->plan().delay_ppm = 1'000'000;
      link->plan().delay_max = std::chrono::milliseconds(10);
      delays.stop();
    });
  }
  void let_messages_go() {
    on_client([this] {
      link->plan().delay_ppm = 0;
      delays.go_on();
    });
  }
  /// Returns what `ask` says of the client's leases.
  template <class T>
  T of_leases(const std::function<T(DirectoryLeases&)>& ask) const {
    const Lock lock(engine().shared().mutex);
    return ask(dynamic_cast<DirectoryLeases&>(*engine().leases().holder()));
  }
  bool is_held_here(FileId one) const {
    return of_leases<bool>([one](DirectoryLeases& leases) {
      engine_lock.assert_held();
      return leases.is_held(one);
    });
  }
  std::uint64_t losses() const {
    return of_leases<std::uint64_t>([](DirectoryLeases& leases) {
      engine_lock.assert_held();
      return leases.losses();
    });
  }

  Pool pool;
  StoppableClock delays;  ///< of the client's messages to the manager
  transport::fault::FaultEndpoint* link = nullptr;
  std::unique_ptr<Filesystem> first;
  FileId directory;
};

/// Returns what `is_true` says, at the latest after 10 s.
inline bool comes_true(const std::function<bool()>& is_true) {
  for (int i = 0; i < 1000 && !is_true(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return is_true();
}

inline msg::SetAttributes new_mode(FileId file, std::uint32_t mode) {
  msg::SetAttributes change;
  change.file = file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
  change.mode = mode;
  return change;
}

inline Code code_of(const Result<Attributes>& found) { return found ? Code{} : found.error().code; }

}  // namespace stdchk::client::test
