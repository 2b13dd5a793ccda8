// Measures the manager alone, without a network. `memory`: the resident memory of a chunk in the
// manager's table and in a version's map, and the time to find a chunk. `lookups`: names looked up
// per second of processor time for many clients at once. They open sessions, ask for chunks by
// Place, half of which the pool has, and close. The clients are simulated: one thread, a transport
// in memory, a stopped clock. Prints one JSON object a line.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/runtime/options.h"
#include "core/runtime/reactor.h"
#include "manager/journal/memory_journal.h"
#include "manager/service/service.h"
#include "transport/mem/mem.h"
#include "transport/rpc.h"

namespace stdchk::bench {
namespace {

constexpr std::uint32_t kChunkBytes = 64 * limits::kKiB;
constexpr std::size_t kFileChunks = 1024;
constexpr std::size_t kBatch = 128;   ///< names in one Place, as the client library batches them
constexpr std::size_t kBatches = 16;  ///< of one session
constexpr std::uint64_t kKnown = 1 << 20;  ///< chunks of the pool
const std::string kAddress = "mem:manager";

/// Names that look random like a hash; chunk `number` always has the same name.
ChunkName name_of(std::uint64_t number) {
  Prng prng(number + 1);
  ChunkName name;
  for (std::size_t at = 0; at < name.bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = prng.next();
    std::memcpy(name.bytes.data() + at, &word, sizeof(word));
  }
  return name;
}

Chunk chunk_of(std::uint64_t number) {
  return {name_of(number), kChunkBytes, 7, {{BenefactorId{1}, number * extent_bytes(kChunkBytes)}}};
}

// ---- memory -----------------------------------------------------------------------------------

double nanoseconds_to_find(const manager::ChunkTable& table, std::uint64_t first,
                           std::uint64_t below, bool known) {
  constexpr std::uint64_t kCount = 1 << 20;
  Prng prng(3);
  std::vector<ChunkName> names;
  names.reserve(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) names.push_back(name_of(first + prng.below(below)));
  const double started = thread_seconds();
  for (const ChunkName& name : names) {
    if ((table.find(name, kChunkBytes) != manager::kNoChunk) != known) give_up("a wrong answer");
  }
  return (thread_seconds() - started) / kCount * 1e9;
}

nlohmann::json measure_memory(std::uint64_t chunks) {
  const std::uint64_t before = resident_bytes();
  manager::ChunkTable table;
  // maximum while filling: the index is emptiest just after a part of it has grown
  double most = 0;
  for (std::uint64_t i = 0; i < chunks; ++i) {
    table.refer(table.add(chunk_of(i)), false);
    if (i < chunks / 2 || i % (chunks / 100) != 0) continue;
    most = std::max(most, static_cast<double>(table.memory_bytes()) / static_cast<double>(i + 1));
  }
  const std::uint64_t with_table = resident_bytes();
  std::vector<manager::PackedSlices> maps;
  for (std::uint64_t first = 0; first < chunks; first += kFileChunks) {
    manager::PackedSlices& slices = maps.emplace_back();
    slices.reserve(kFileChunks);
    for (std::uint64_t i = 0; i < kFileChunks; ++i) {
      slices.push_back(
          {i * kChunkBytes, kChunkBytes, 0, static_cast<manager::ChunkIndex>(first + i)});
    }
  }
  const auto each = [&](std::uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(chunks);
  };
  return {{"chunks", chunks},
          {"taken", wall_seconds()},
          {"table_bytes_a_chunk", each(with_table - before)},
          {"table_bytes_a_chunk_most", most},
          {"map_bytes_a_chunk", each(resident_bytes() - with_table)},
          {"find_ns", nanoseconds_to_find(table, 0, chunks, true)},
          {"miss_ns", nanoseconds_to_find(table, chunks, chunks, false)}};
}

// ---- look-ups ---------------------------------------------------------------------------------

/// A Client opens a session, asks for batches of names, closes it, and begins again.
class Client final : public rpc::PeerHandler {
 public:
  Client(Reactor& reactor, transport::mem::Fabric& fabric, Clock& clock, std::uint64_t number)
      : prng_(number), name_("rank.N" + std::to_string(number) + ".T") {
    endpoint_ = fabric.make_endpoint("client" + std::to_string(number), clock);
    reactor_ = &reactor;
    reactor.add(*endpoint_);
    peer_ =
        must(rpc::Peer::connect(reactor, *endpoint_, kAddress, *this, limits::kConnectDeadline));
    msg::RegisterClient request;
    call(request, [this](const msg::RegisterClient::Reply& reply) {
      id_ = reply.client;
      peer_->set_sender(id_.value);
      open();
    });
  }
  ~Client() override {
    peer_.reset();
    reactor_->remove(*endpoint_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::uint64_t names_asked() const { return asked_; }
  void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder) override {}
  void on_closed(rpc::Peer&, Error why) override { give_up("a link was lost: " + describe(why)); }

 private:
  template <class M, class Done>
  void call(M request, Done done) {
    peer_->call(std::move(request), limits::kCallDeadline, [done](rpc::Answer answer) {
      if (!answer.has_value()) give_up(describe(answer.error().error));
      done(std::get<typename M::Reply>(*answer));
    });
  }
  void open() {
    msg::OpenSession request;
    request.client = id_;
    request.parent = kRootFile;
    request.name = name_ + std::to_string(++image_);
    call(request, [this](const msg::OpenSession::Reply& reply) {
      session_ = reply.session;
      left_ = kBatches;
      ask();
    });
  }
  void ask() {
    if (left_-- == 0) {
      return call(msg::CloseSession{session_, false, 0, false},
                  [this](const msg::CloseSession::Reply&) { open(); });
    }
    msg::Place request;
    request.session = session_;
    for (std::size_t i = 0; i < kBatch; ++i) {
      // Half of the names are new.
      request.chunks.push_back({name_of(prng_.below(kKnown) + i % 2 * kKnown), kChunkBytes});
    }
    call(std::move(request), [this](const msg::Place::Reply& reply) {
      if (reply.existing.size() != kBatch / 2) give_up("the pool does not know its chunks");
      asked_ += kBatch;
      ask();
    });
  }

  Prng prng_;
  const std::string name_;
  Reactor* reactor_ = nullptr;
  std::unique_ptr<transport::Endpoint> endpoint_;
  std::unique_ptr<rpc::Peer> peer_;
  ClientId id_;
  SessionId session_;
  std::uint64_t image_ = 0;
  std::size_t left_ = 0;
  std::uint64_t asked_ = 0;
};

/// Fills a journal with the commands of a pool of kKnown chunks.
void fill(manager::MemoryJournal& journal) {
  journal.set_automatic(false);
  journal.append(manager::AddBenefactor{{1}, 1, 1, 2 * kKnown * kChunkBytes, "host"}, {});
  for (std::uint64_t first = 0; first < kKnown; first += kFileChunks) {
    manager::CommitVersion commit;
    commit.file = FileId{first + 2};
    commit.create = manager::NewName{kRootFile, "file" + std::to_string(first), 0644, 0, 0, 0, {}};
    for (std::uint32_t i = 0; i < kFileChunks; ++i) {
      commit.written.chunks.push_back(chunk_of(first + i));
      commit.written.slices.push_back({std::uint64_t{i} * kChunkBytes, kChunkBytes, 0, i});
    }
    journal.append(commit, {});
  }
  journal.sync();
  journal.set_automatic(true);
}

nlohmann::json measure_lookups(std::uint32_t clients, std::uint32_t rounds) {
  ManualClock clock;
  Reactor manager_reactor(clock);
  Reactor client_reactor(clock);
  transport::mem::Fabric fabric;
  manager::MemoryJournal journal;
  fill(journal);
  manager::Config config;
  config.membership = manager::Membership::trusting_all();
  manager::Service service(manager_reactor, journal, config);
  must(service.start());
  const auto endpoint = fabric.make_endpoint("manager", clock);
  manager_reactor.add(*endpoint);
  must(endpoint->listen(service));
  std::vector<std::unique_ptr<Client>> all;
  for (std::uint32_t i = 0; i < clients; ++i) {
    all.push_back(std::make_unique<Client>(client_reactor, fabric, clock, i));
  }
  const auto asked = [&] {
    std::uint64_t sum = 0;
    for (const auto& client : all) sum += client->names_asked();
    return sum;
  };
  const std::uint64_t names_a_round =
      std::max<std::uint64_t>(1 << 20, std::uint64_t{clients} * kBatch * kBatches / 2);
  std::vector<double> rates;
  for (std::uint32_t round = 0; round <= rounds; ++round) {
    const std::uint64_t before = asked();
    double spent = 0;
    while (asked() < before + names_a_round) {
      const double started = thread_seconds();
      manager_reactor.run_once(Duration::zero());
      spent += thread_seconds() - started;
      client_reactor.run_once(Duration::zero());
    }
    if (round > 0) rates.push_back(static_cast<double>(asked() - before) / spent);
  }
  all.clear();
  service.stop();
  manager_reactor.remove(*endpoint);
  return {{"clients", clients}, {"taken", wall_seconds()}, {"lookups_per_s", rates}};
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  std::string mode;
  std::uint32_t chunks = 100'000'000;
  std::uint32_t clients = 100;
  std::uint32_t rounds = 5;
  Options options("manager-bench", "Measures the manager's memory and look-ups.");
  options.argument("MODE", mode, "memory or lookups").required();
  options.count("--chunks", chunks, 1000, 1U << 31, "of the table; takes up to 90 bytes for each");
  options.count("--clients", clients, 1, 100000, "that ask at once");
  options.count("--rounds", rounds, 1, 1000, "that count; one more goes before them");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  if (mode != "memory" && mode != "lookups") bench::give_up("MODE is memory or lookups");
  const auto found = mode == "memory" ? bench::measure_memory(chunks / 1024 * 1024)
                                      : bench::measure_lookups(clients, rounds);
  std::printf("%s\n", found.dump().c_str());
  return 0;
}
