// A writer whose chunks are in several places outlives the loss of one benefactor.
#include <cstring>
#include <memory>
#include <set>
#include <string>
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

constexpr std::size_t kHosts = 4;
/// Longer than the time after which a silent benefactor counts as gone.
constexpr Duration kGone = 12s;

/// A pool in which a file is being written; each chunk goes to two of four hosts.
struct Writer {
  Writer() : cluster(options()) {
    log::start("test", log::Level::kError);
    cluster.start_manager();
    for (std::size_t i = 0; i < kHosts; ++i) cluster.add_benefactor();
    EngineNode::Limits limits;
    limits.waits_for_copies = true;
    process = std::make_unique<EngineNode>(cluster, "process", limits, 1);
    REQUIRE(cluster.run_until([&] { return process->ready(); }, 10s));
    cluster.run_for(2s);
    open();
  }
  ~Writer() {
    Lock lock(process->engine().shared().mutex);
    if (file != nullptr) file->release(lock);
    file.reset();
  }
  static Cluster::Options options() {
    Cluster::Options options;
    options.hosts = kHosts;
    options.pool.chunk_bytes = limits::kChunkBytesMin;
    options.pool.copies = Redundancy{2, 0, 0}.number();
    return options;
  }

  Status wait(EngineNode::Step step) {
    std::optional<Status> ended;
    process->wait("step", std::move(step), [&](Status status) { ended = status; });
    REQUIRE(cluster.run_until([&] { return ended.has_value(); }, 60s));
    return *ended;
  }
  Status wait_for(std::function<Result<client::CompletionPtr>(Lock&)> begin) {
    std::optional<Status> ended;
    process->wait_for("step", std::move(begin), [&](Status status) { ended = status; });
    REQUIRE(cluster.run_until([&] { return ended.has_value(); }, 60s));
    return *ended;
  }
  void open() {
    msg::OpenSession request;
    request.parent = kRootFile;
    request.name = "app.N0.T1";
    request.mode = 0644;
    std::shared_ptr<client::Engine::Opening> opening;
    {
      const Lock lock(process->engine().shared().mutex);
      opening = process->engine().open_session(std::move(request));
    }
    REQUIRE(wait([&](Lock&) -> Status {
      return opening->status ? *opening->status : fail(Code::kWouldBlock, "test");
    }));
    file = std::make_shared<client::OpenFile>(process->engine(),
                                              std::exchange(opening->session, {}), false);
    REQUIRE(file->session()->places() == 2);
  }
  /// Writes `count` more bytes, which differ from all others.
  void write(std::size_t count) {
    const std::size_t from = bytes.size();
    for (std::size_t i = 0; i < count; ++i) {
      bytes.push_back(static_cast<std::byte>(prng.next() >> 56));
    }
    std::size_t done = 0;
    REQUIRE(wait(
        [&](Lock& lock) { return file->write(lock, from, ByteSpan(bytes).subspan(from), done); }));
    REQUIRE(wait_for(
        [&](Lock&) -> Result<client::CompletionPtr> { return file->session()->start_sync(); }));
  }
  /// Kills the benefactor that holds the first place of the first chunk.
  void kill_one() {
    BenefactorId victim;
    {
      const Lock lock(process->engine().shared().mutex);
      const auto& chunk =
          file->session()->content().overlay().entries().begin()->second.piece.chunk;
      REQUIRE(chunk != nullptr);
      REQUIRE(chunk->chunk.copies.size() == 2);
      victim = chunk->chunk.copies.front().benefactor;
    }
    auto& all = cluster.benefactors();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].service->id() == victim) return cluster.kill_benefactor(i);
    }
    FAIL("the benefactor is not there");
  }
  std::vector<std::byte> read() {
    std::vector<std::byte> out(bytes.size());
    std::shared_ptr<client::OpenFile> reader;
    const FileId id = file->id();
    {
      Lock lock(process->engine().shared().mutex);
      file->release(lock);
      file.reset();
      reader = std::make_shared<client::OpenFile>(process->engine(), id, nullptr,
                                                  process->engine().maps().open(id));
    }
    CHECK(wait([&](Lock& lock) { return reader->opened(lock); }));
    std::size_t done = 0;
    CHECK(wait([&](Lock& lock) { return reader->read(lock, 0, out, done); }));
    CHECK(done == out.size());
    Lock lock(process->engine().shared().mutex);
    reader->release(lock);
    reader.reset();
    return out;
  }
  std::uint64_t debt() {
    const manager::State& state = cluster.manager()->state();
    const manager::VersionData& newest = state.file(file->id())->newest;
    std::uint64_t missing = 0;
    for (const manager::PackedSlice& slice : newest.slices) {
      std::set<BenefactorId> there;
      for (const Extent& copy : state.chunks().get(slice.chunk).copies) {
        if (cluster.manager()->pool().is_readable(copy)) there.insert(copy.benefactor);
      }
      missing += there.size() < 2 ? 1 : 0;
    }
    return missing;
  }

  Cluster cluster;
  std::unique_ptr<EngineNode> process;
  std::shared_ptr<client::OpenFile> file;
  Prng prng{1};
  std::vector<std::byte> bytes;
};

}  // namespace

TEST_CASE(
    "a file that is written on after one benefactor was lost is closed, whole, with all copies") {
  const bool replaced = GENERATE(false, true);
  Writer writer;
  writer.write(300000);
  writer.kill_one();
  if (replaced) writer.cluster.add_benefactor();
  writer.cluster.run_for(kGone);
  writer.write(200000);
  REQUIRE(writer.wait_for([&](Lock&) { return writer.file->session()->start_commit(true); }));
  CHECK(writer.cluster.run_until([&] { return writer.debt() == 0; }, 30s));
  CHECK(writer.read() == writer.bytes);
}

TEST_CASE("a file whose close comes right after one benefactor was lost is closed, and whole") {
  Writer writer;
  writer.write(300000);
  writer.kill_one();
  REQUIRE(writer.wait_for([&](Lock&) { return writer.file->session()->start_commit(true); }));
  CHECK(writer.cluster.run_until([&] { return writer.debt() == 0; }, 60s));
  CHECK(writer.read() == writer.bytes);
}

}  // namespace stdchk::sim
