// Processes on several hosts read one file at the same time: its chunks leave the benefactors that
// store them about once, whatever dies meanwhile.
#include <algorithm>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/policy/redundancy.h"
#include "tests/sim/engine_node.h"
#include "tests/support/catch.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {
namespace {

using namespace std::chrono_literals;
using client::Lock;

constexpr std::size_t kHosts = 6;
constexpr std::size_t kBytes = 40 * limits::kChunkBytesMin;

/// A process that reads the file, with what it has read.
struct Reading {
  std::unique_ptr<EngineNode> process;
  std::shared_ptr<client::OpenFile> file;
  std::vector<std::byte> bytes = std::vector<std::byte>(kBytes);
  std::size_t done = 0;
  std::optional<Status> ended;
};

/// A pool with a benefactor and a process on each of six hosts, and a file.
struct ReaderHosts {
  explicit ReaderHosts(std::uint32_t copies) : cluster(options(copies)) {
    log::start("test", log::Level::kError);
    cluster.start_manager();
    for (std::size_t i = 0; i < kHosts; ++i) cluster.add_benefactor();
    std::set<std::string> hosts;
    for (int number = 0; hosts.size() < kHosts; ++number) {
      const std::string name = "reader" + std::to_string(number);
      if (!hosts.insert(cluster.host_for(name)).second) continue;
      readings.emplace_back();
      readings.back().process =
          std::make_unique<EngineNode>(cluster, name, EngineNode::Limits{}, 1 + hosts.size());
    }
    for (const Reading& each : readings) {
      REQUIRE(cluster.run_until([&] { return each.process->ready(); }, 10s));
    }
    cluster.run_for(2s);
    write();
  }
  ~ReaderHosts() {
    for (Reading& each : readings) close(each);
  }
  static Cluster::Options options(std::uint32_t copies) {
    Cluster::Options options;
    options.hosts = kHosts;
    options.arena_bytes = 8 * limits::kMiB;
    options.pool.chunk_bytes = limits::kChunkBytesMin;
    options.pool.naming = Naming::kOff;
    options.pool.copies = Redundancy{copies, 0, 0}.number();
    return options;
  }
  static void close(Reading& reading) {
    if (reading.file == nullptr) return;
    Lock lock(reading.process->engine().shared().mutex);
    reading.file->release(lock);
    reading.file.reset();
  }
  Status wait(EngineNode& process, EngineNode::Step step) {
    std::optional<Status> ended;
    process.wait("step", std::move(step), [&](Status status) { ended = status; });
    REQUIRE(cluster.run_until([&] { return ended.has_value(); }, 60s));
    return *ended;
  }
  void write() {
    EngineNode& process = *readings.front().process;
    msg::OpenSession request;
    request.parent = kRootFile;
    request.name = "weights";
    request.mode = 0644;
    std::shared_ptr<client::Engine::Opening> opening;
    {
      const Lock lock(process.engine().shared().mutex);
      opening = process.engine().open_session(std::move(request));
    }
    REQUIRE(wait(process, [&](Lock&) -> Status {
      return opening->status ? *opening->status : fail(Code::kWouldBlock, "test");
    }));
    auto file = std::make_shared<client::OpenFile>(process.engine(),
                                                   std::exchange(opening->session, {}), false);
    id = file->id();
    for (std::size_t i = 0; i < kBytes; ++i) {
      content.push_back(static_cast<std::byte>(prng.next() >> 56));
    }
    std::size_t done = 0;
    REQUIRE(wait(process, [&](Lock& lock) { return file->write(lock, 0, content, done); }));
    std::optional<Status> committed;
    process.wait_for(
        "commit", [&](Lock&) { return file->session()->start_commit(true); },
        [&](Status status) { committed = status; });
    REQUIRE(cluster.run_until([&] { return committed.has_value(); }, 60s));
    REQUIRE(*committed);
    {
      Lock lock(process.engine().shared().mutex);
      file->release(lock);
      file.reset();
    }
    REQUIRE(cluster.run_until(
        [&] { return cluster.manager()->planners().copies.figures().debt_chunks == 0; }, 30s));
  }
  void open_all() {
    for (Reading& each : readings) {
      client::Engine& engine = each.process->engine();
      {
        const Lock lock(engine.shared().mutex);
        each.file = std::make_shared<client::OpenFile>(engine, id, nullptr, engine.maps().open(id));
      }
      REQUIRE(wait(*each.process, [&](Lock& lock) { return each.file->opened(lock); }));
    }
    // The notice to those that came first.
    cluster.run_for(100ms);
  }
  /// Reads chunk by chunk, as a mount does.
  static Status read_on(Reading& reading, Lock& lock) STDCHK_REQUIRES(client::engine_lock) {
    while (reading.done < kBytes) {
      const MutableByteSpan to =
          MutableByteSpan(reading.bytes).subspan(reading.done, limits::kChunkBytesMin);
      std::size_t got = 0;
      STDCHK_TRY(reading.file->read(lock, reading.done, to, got));
      reading.done += got;
    }
    return {};
  }
  void start_all() {
    for (Reading& each : readings) {
      each.process->wait(
          "read", [&each](Lock& lock) { return read_on(each, lock); },
          [&each](Status status) { each.ended = status; }, [&each] { return each.done; });
    }
  }
  bool have_all_ended() const {
    return std::ranges::all_of(readings,
                               [](const Reading& each) { return each.ended.has_value(); });
  }
  void check_all() {
    REQUIRE(cluster.run_until([&] { return have_all_ended(); }, 120s));
    for (const Reading& each : readings) {
      CHECK(each.ended->has_value());
      CHECK(each.bytes == content);
    }
  }
  const manager::NearCopies::Figures& figures() {
    return cluster.manager()->planners().near.figures();
  }
  /// Runs until near copies of so many bytes were made.
  void run_until_copied(std::uint64_t bytes) {
    REQUIRE(cluster.run_until([&] { return figures().copied_bytes >= bytes; }, 30s));
  }
  std::vector<std::string> broken() {
    return cluster.manager()->services().administration.audit().reply().broken;
  }

  Cluster cluster;
  std::list<Reading> readings;
  FileId id;
  Prng prng{1};
  std::vector<std::byte> content;
};

}  // namespace

TEST_CASE("a file that six hosts read leaves the benefactors that store it once") {
  ReaderHosts hosts(1);
  hosts.open_all();
  hosts.start_all();
  hosts.check_all();
  // Each host gets the chunks that it does not store itself, five of six.
  CHECK(hosts.figures().copied_bytes >= (kHosts - 1) * kBytes * 9 / 10);
  CHECK(hosts.figures().stored_bytes <= kBytes + kBytes / 10);
  CHECK(hosts.broken().empty());
  for (Reading& each : hosts.readings) ReaderHosts::close(each);
  hosts.cluster.run_for(manager::NearCopies::kIdle + 2s);
  CHECK(hosts.broken().empty());
  std::uint64_t used = 0;
  for (const auto& [benefactor, status] : hosts.cluster.manager()->pool().benefactors()) {
    const auto& space = hosts.cluster.manager()->pool().space();
    used += space.arena_bytes(benefactor) - space.free_bytes(benefactor);
  }
  CHECK(used < kBytes + kBytes / 10);
}

TEST_CASE("readers are not harmed when a benefactor that passes chunks on dies") {
  ReaderHosts hosts(2);
  hosts.open_all();
  hosts.start_all();
  hosts.run_until_copied(kBytes);
  hosts.cluster.kill_benefactor(2);
  hosts.check_all();
}

TEST_CASE("readers are not harmed when another reader dies") {
  ReaderHosts hosts(1);
  hosts.open_all();
  hosts.start_all();
  hosts.run_until_copied(kBytes);
  const auto victim = std::next(hosts.readings.begin(), 3);
  {
    const Lock lock(victim->process->engine().shared().mutex);
    victim->file.reset();
  }
  hosts.readings.erase(victim);
  hosts.check_all();
  CHECK(hosts.broken().empty());
}

TEST_CASE("readers are not harmed when the manager dies") {
  ReaderHosts hosts(1);
  hosts.open_all();
  hosts.start_all();
  hosts.run_until_copied(kBytes);
  const bool restarted = GENERATE(true, false);
  hosts.cluster.kill_manager();
  if (!restarted) hosts.cluster.run_for(8s);
  hosts.cluster.start_manager();
  hosts.check_all();
  CHECK(hosts.broken().empty());
}

}  // namespace stdchk::sim
