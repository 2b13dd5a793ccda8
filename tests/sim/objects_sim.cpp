// Simulates a pool that drains into an object store, in one thread, from one seed. Manager, benefactors
// and ObjectDrainer are the real code. The clients speak the protocol.
//
// Fault model.
//    Store       A call fails before it is carried out, or its answer is lost. A read ends early. A
//                call takes up to 40 s: an upload reaches its deadline between any two of its calls.
//    Drainers    A benefactor dies in any call of the store, before or after the store carries the call
//                out. Then its memory is gone, and nobody gets its answer.
//    Processes   Benefactors die, stop, and are cut off. The manager restarts. As in pool_sim.cpp.
//    Not here    What pool_sim.cpp has beyond that; calls that the store carries out after their caller
//                has left; changed bytes (tests/unit/benefactor/object_drain_test.cpp).
//
// Clients write, replace, rename and remove files. Some files are longer than a part of an upload.
// Besides, a client writes checkpoints that are directories (directory_script.h).
//
// Checked. "Always" means after each call that changes the store.
//    directories Always: where a marker is, all members of its directory are. The pointer names a
//                directory with a marker.
//    M6          Always: an object shows a content that a whole file once had, and its checksums are
//                those of its bytes. After faults have stopped, the store has each file, and no other.
//    uploads     Always: when the note of an upload is removed, the upload has ended. When all files are
//                gone and a manager has restarted, no upload and no staged object is left.
//    safe        A file that counts as drained has its object, with its length, and so has a file that
//                the pool calls safe.
//    M9          After faults have stopped, the drain ends.
//
// objects-sim [--seed N] [--runs N] [--steps N] [--no-faults]

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/naming.h"
#include "core/files/drain_manifest.h"
#include "core/objects/object_attributes.h"
#include "core/policy/redundancy.h"
#include "manager/drain/object_import.h"
#include "tests/sim/checkers.h"
#include "tests/sim/directory_script.h"
#include "tests/sim/faulty_objects.h"
#include "tests/sim/fixed_addresses.h"
#include "tests/sim/lost_bytes.h"
#include "tests/sim/node_faults.h"
#include "tests/sim/swarm.h"

namespace stdchk::sim {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBenefactors = 3;
constexpr std::size_t kClients = 2;
constexpr std::size_t kNames = 5;
/// Longer than a part of an upload.
constexpr std::uint64_t kLongBytes = benefactor::ObjectAssembly::kPartBytes + limits::kMiB;
constexpr std::uint64_t kArenaBytes = 32 * limits::kMiB;
/// The longest time for which a request may stay in flight after its answer was lost.
constexpr Duration kSettle = 45s;

struct Tally {
  std::uint64_t stores = 0, failed = 0, renames = 0, removes = 0, safe = 0, uploads = 0;
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, std::uint64_t steps, bool faults);
  ~Simulation() { clients_.clear(); }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// Runs the seed. True: all checks passed.
  bool run();
  void print(std::uint64_t seed);

 private:
  struct Client {
    std::unique_ptr<PlainClient> plain;
    std::string running;             ///< empty: idle
    std::vector<std::string> names;  ///< that the operation changes
    Time since{};
  };

  Cluster::Options options(std::uint64_t seed);
  ObjectHooks hooks();
  static std::string key_of(const std::string& path) {
    return fmt::format("{}/{}", FaultyObjects::kPrefix, path);
  }
  double seconds() const {
    return std::chrono::duration<double>(cluster_.now().time_since_epoch()).count();
  }
  void complain(const std::string& what) {
    wrong_.push_back(fmt::format("at {:.3f} s: {}", seconds(), what));
  }
  void note(std::uint64_t value) {
    trace_ = (trace_ ^ value) * 0x100000001B3ULL;
    trace_ ^= static_cast<std::uint64_t>(cluster_.now().time_since_epoch().count());
  }
  const manager::State& state() { return cluster_.manager()->state(); }

  void benefactor_died(std::uint64_t life);
  void bury();
  void pass(Duration time);
  void set_faults(bool on);
  void inject();
  /// Two operations on a name would make contents that nobody has written.
  bool is_free(const std::string& name) { return free_at_[name] <= cluster_.now(); }
  void begin(Client& client, std::string what, std::vector<std::string> names);
  PlainClient::Done ending(Client& client, std::uint64_t outcome);
  void start_operation();
  void store(Client& client, const std::string& name);
  void ask_whether_safe(Client& client);
  void check_directories();
  void check_object(const std::string& key);
  void check_drained();
  void check_file(const manager::File& file, const std::string& claim);
  void check();
  void settle();
  void remove_all();
  void check_clean();

  const std::uint64_t steps_;
  const bool with_faults_;
  Prng prng_;
  Swarm swarm_;
  MemoryObjectStore store_;
  FaultyObjects objects_;
  Cluster cluster_;
  DirectoryScript directories_;
  LostBytes lost_{cluster_, {}};
  NodeFaults faults_{cluster_, swarm_, prng_, lost_};
  std::vector<Client> clients_{kClients};
  std::set<std::string> dead_;  ///< names of nodes
  /// Lengths and checksums of all contents that a file may have.
  std::set<std::pair<std::uint64_t, std::uint32_t>> contents_;
  std::map<std::string, Time> free_at_;  ///< no request in flight changes the name from then on
  ObjectFaults object_faults_;
  std::vector<std::string> wrong_;
  Tally tally_;
  std::uint64_t trace_ = 0xCBF29CE484222325ULL;
};

Simulation::Simulation(std::uint64_t seed, std::uint64_t steps, bool faults)
    : steps_(steps),
      with_faults_(faults),
      prng_(seed),
      swarm_(seed, faults),
      objects_(store_, hooks(), seed ^ 0x0B7EC7),
      cluster_(options(seed)),
      directories_(
          cluster_, seed ^ 0xD12EC7, 1 + seed % 2,
          [this](const std::string& what) { complain(what); },
          [this](std::uint64_t value) { note(value); }) {
  Prng draws(seed ^ 0xFA017);
  const auto draw = [&](std::uint32_t usual) {
    const auto ppm = usual / 2 + static_cast<std::uint32_t>(draws.below(2 * usual));
    return draws.chance(3, 4) ? ppm : 0;
  };
  object_faults_ = {draw(20'000), draw(10'000), draw(6'000), draw(1'500)};
}

Cluster::Options Simulation::options(std::uint64_t seed) {
  Cluster::Options options;
  options.seed = seed ^ 0x0B5E7;
  swarm_.limit(options);
  options.managers = Cluster::manager_address();
  options.arena_bytes = kArenaBytes;
  options.pool.chunk_bytes = limits::kChunkBytesMin;
  options.pool.copies = Redundancy{2, 0, 0}.number();
  options.pool.drain_directory = FaultyObjects::kPlace;
  options.hosts = kBenefactors;
  options.make_drainer = [this](ByteSpan arena, const Clock& clock, std::uint64_t life) {
    return objects_.make_drainer(arena, clock, life);
  };
  options.import_drained = [this](const std::function<void(manager::Command)>& emit) {
    return manager::import_objects(store_, FaultyObjects::kPrefix, Time::max(), emit);
  };
  return options;
}

ObjectHooks Simulation::hooks() {
  return {.died = [this](std::uint64_t life) { benefactor_died(life); },
          .changed =
              [this](const std::string& key) {
                check_directories();
                check_object(key);
              },
          .note_removed =
              [this](const std::string& upload) {
                ++tally_.uploads;
                if (!store_.has_upload(upload)) return;
                complain("uploads: the note of an upload is gone, and the upload has not ended");
              }};
}

// ---- faults -------------------------------------------------------------------------------------

/// Nothing leaves the process any more. bury() ends it: the process is running now.
void Simulation::benefactor_died(std::uint64_t life) {
  const std::string name = fmt::format("benefactor{}", life);
  for (const auto& each : cluster_.benefactors()) {
    if (each.node->name != name) continue;
    each.node->stopped = true;
    each.node->endpoint.stall(true);
    dead_.insert(name);
  }
}

void Simulation::bury() {
  while (!dead_.empty()) {
    const std::string name = *dead_.begin();
    dead_.erase(dead_.begin());
    auto& all = cluster_.benefactors();
    const auto found =
        std::ranges::find_if(all, [&](const auto& each) { return each.node->name == name; });
    if (found == all.end()) continue;
    faults_.kill_benefactor(static_cast<std::size_t>(found - all.begin()));
  }
}

void Simulation::pass(Duration time) {
  for (const Time end = cluster_.now() + time; cluster_.now() < end && !cluster_.livelock();) {
    cluster_.run_for(std::min<Duration>(end - cluster_.now(), 500ms));
    bury();
  }
}

/// pool_sim.cpp has the faults of transfers. A long file would rarely be stored with them.
void Simulation::set_faults(bool on) {
  const bool faults = on && with_faults_;
  for (const Role role : {Role::kManager, Role::kBenefactor, Role::kClient}) {
    transport::fault::Plan plan;
    if (faults) plan = swarm_.plan(role);
    plan.fail_ppm = plan.tear_ppm = plan.late_ppm = 0;
    cluster_.set_plan(role, plan);
  }
  cluster_.set_job_faults(300ms, faults ? Duration(40s) : Duration(2s),
                          faults ? swarm_.slow_jobs() : 40, 0);
  objects_.set_faults(faults ? object_faults_ : ObjectFaults());
}

void Simulation::inject() {
  const auto& all = cluster_.benefactors();
  const std::size_t which = prng_.below(all.size());
  Node& benefactor = *all[which].node;
  if (swarm_.happens(Event::kRestartManager)) faults_.restart_manager();
  if (swarm_.happens(Event::kStopManager)) {
    faults_.hold(Event::kStopManager, cluster_.manager_node());
  }
  if (swarm_.happens(Event::kStopBenefactor)) faults_.hold(Event::kStopBenefactor, benefactor);
  if (swarm_.happens(Event::kCutBenefactor)) faults_.hold(Event::kCutBenefactor, benefactor);
  if (swarm_.happens(Event::kDropBenefactor)) faults_.drop(Event::kDropBenefactor, benefactor);
  // Last: the node is gone then.
  if (swarm_.happens(Event::kKillBenefactor)) {
    faults_.kill_benefactor(which);
    swarm_.happened(Event::kKillBenefactor);
  }
}

// ---- operations ---------------------------------------------------------------------------------

void Simulation::begin(Client& client, std::string what, std::vector<std::string> names) {
  client.running = std::move(what);
  client.since = cluster_.now();
  for (const std::string& name : names) free_at_[name] = Time::max();
  client.names = std::move(names);
}

PlainClient::Done Simulation::ending(Client& client, std::uint64_t outcome) {
  return [this, &client, outcome](const Ending& ending) {
    client.running.clear();
    const Time free_at = cluster_.now() + (ending.maybe ? kSettle : Duration{});
    for (const std::string& name : client.names) free_at_[name] = free_at;
    tally_.failed += ending.status.has_value() ? 0 : 1;
    note(2 * outcome + (ending.status.has_value() ? 0 : 1));
  };
}

void Simulation::start_operation() {
  Client& client = clients_[prng_.below(clients_.size())];
  PlainClient& plain = *client.plain;
  if (!client.running.empty() || !plain.registered() || plain.behind()) return;
  const auto pick = [&] { return fmt::format("file{}", prng_.below(kNames)); };
  const std::string name = pick();
  if (!is_free(name)) return;
  switch (prng_.below(8)) {
    case 0: {
      ++tally_.removes;
      begin(client, "remove " + name, {name});
      return plain.remove(name, ending(client, 1));
    }
    case 1: {
      const std::string to = pick();
      if (to == name || !is_free(to)) return;
      ++tally_.renames;
      begin(client, "rename " + name, {name, to});
      return plain.rename(name, to, ending(client, 2));
    }
    case 2:
    case 3:
      return ask_whether_safe(client);
    default:
      return store(client, name);
  }
}

void Simulation::store(Client& client, const std::string& name) {
  std::vector<Part> parts(1);
  const bool is_long = prng_.chance(1, 4);
  parts[0].bytes.resize(is_long ? kLongBytes + prng_.below(3) * 1000 : 1 + prng_.below(300'000));
  Prng bytes(1 + prng_.below(12));
  for (std::size_t at = 0; at < parts[0].bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t next = bytes.next();
    std::memcpy(parts[0].bytes.data() + at, &next,
                std::min(sizeof next, parts[0].bytes.size() - at));
  }
  contents_.insert({parts[0].bytes.size(), crc32c(0, parts[0].bytes)});
  ++tally_.stores;
  begin(client, "store " + name, {name});
  client.plain->store(name, std::move(parts), true, ending(client, 3));
}

/// Asks as `stdchk safe` does.
void Simulation::ask_whether_safe(Client& client) {
  const auto& children = state().file(kRootFile)->as_directory.children;
  const auto child = children.find(fmt::format("file{}", prng_.below(kNames)));
  if (child == children.end()) return;
  const FileId id = child->second;
  const Version version = state().file(id)->newest.version;
  msg::ConfirmDrained request;
  request.files = {id};
  begin(client, "safe " + child->first, {});
  client.plain->ask(request, [this, &client, id, version](const rpc::Answer& answer) {
    client.running.clear();
    note(answer.has_value() ? 8 : 9);
    if (!answer.has_value() || cluster_.manager() == nullptr) return;
    const auto& reply = std::get<msg::ConfirmDrained::Reply>(*answer);
    if (!reply.missing.empty() || !reply.undrained.empty()) return;
    ++tally_.safe;
    const manager::File* const file = state().file(id);
    if (file != nullptr && file->newest.version == version) check_file(*file, "is called safe");
  });
}

// ---- checks -------------------------------------------------------------------------------------

void Simulation::check_directories() {
  directories_.check_drained(
      [this](const std::string& path) { return store_.size_of(key_of(path)); });
}

/// Checks rule M6 for one object.
void Simulation::check_object(const std::string& key) {
  const std::string path = key.substr(key_of("").size());
  if (path.starts_with(msg::kTemporaryFolder) || path.ends_with('/')) return;
  const auto object = store_.object(key);
  if (!object) return;  // was removed
  const auto said = ObjectAttributes::parse(object->metadata);
  if (!said) return complain("M6: the object of " + path + " has no attributes");
  if (said->kind != ObjectKind::kFile) return;
  const std::uint32_t crc = crc32c(0, object->bytes);
  // All files here are shorter than a range.
  const bool has_right_crc = object->bytes.empty() || said->crcs == std::vector<std::uint32_t>{crc};
  if (!has_right_crc) complain("M6: the object of " + path + " has wrong checksums");
  if (path.starts_with("file") && !contents_.contains({object->bytes.size(), crc})) {
    complain(fmt::format("M6: {} shows {} bytes in the store that it never had", path,
                         object->bytes.size()));
  }
}

/// Checks the object of a drained file, unless its name is changing in the store.
void Simulation::check_file(const manager::File& file, const std::string& claim) {
  if (!file.newest.drained || !file.parent || !state().mirror_queue().empty()) return;
  const auto path = cluster_.manager()->planners().drain.drained_path(file, file.newest);
  if (!path) return;
  const auto bytes = store_.size_of(key_of(*path));
  if (bytes == file.newest.size_bytes) return;
  complain(fmt::format("safe: {} {}, and its object {}", *path, claim,
                       bytes ? fmt::format("has {} bytes", *bytes) : "is not there"));
}

void Simulation::check_drained() {
  if (cluster_.manager() == nullptr) return;
  std::vector<FileId> folders{kRootFile};
  while (!folders.empty()) {
    const manager::File& folder = *state().file(folders.back());
    folders.pop_back();
    for (const auto& [name, id] : folder.as_directory.children) {
      const manager::File& file = *state().file(id);
      if (file.type == FileType::kDirectory) folders.push_back(id);
      if (file.type == FileType::kRegular) check_file(file, "counts as drained");
    }
  }
}

void Simulation::check() {
  check_drained();
  directories_.check();
  for (const std::string& each : check_metadata(cluster_)) complain(each);
  for (const Client& each : clients_) {
    if (each.running.empty() || cluster_.now() - each.since <= limits::kOperationDeadline) continue;
    complain("M9: no end of: " + each.running);
  }
  if (cluster_.livelock()) complain("M9: the pool spins without time passing");
}

/// Faults have stopped: everything that the pool still has is drained within a bounded time.
void Simulation::settle() {
  set_faults(false);
  faults_.held().release(cluster_.now(), true, [](const Node&) {});
  pass(kSettle + 90s);
  const auto idle = [&] {
    return directories_.idle() &&
           std::ranges::all_of(clients_, [](const auto& each) { return each.running.empty(); });
  };
  if (!idle()) return complain("M9: operations go on after the end");
  const auto drained = [&] {
    if (!state().mirror_queue().empty()) return false;
    return std::ranges::none_of(state().commits().undrained(), [&](const auto& entry) {
      const manager::File* const file = state().file(entry.second);
      return file->parent == kRootFile && lost_.is_there(*file, true);
    });
  };
  if (!cluster_.run_until(drained, 200s)) return complain("M9: the drain does not end");
  check();
}

void Simulation::remove_all() {
  Client& client = clients_.front();
  for (std::size_t i = 0; i < kNames; ++i) {
    begin(client, "removal", {});
    client.plain->remove(fmt::format("file{}", i), ending(client, 4));
    if (!cluster_.run_until([&] { return client.running.empty(); }, 40s)) {
      return complain("M9: no end of a removal");
    }
  }
  directories_.remove_all(*client.plain);
  if (!cluster_.run_until([&] { return directories_.idle(); }, 120s)) {
    complain("M9: no end of removing directories");
  }
}

/// Checks that nothing is left of files that are gone. A restarted manager ends what crashes have left.
void Simulation::check_clean() {
  clients_.clear();
  cluster_.run_for(10s);
  cluster_.restart_manager();
  std::string left;
  const auto clean = [&] {
    left = store_.upload_count() == 0 ? "" : "uploads: an upload";
    store_.visit([&](const std::string& key, const auto&) {
      const std::string path = key.substr(key_of("").size());
      const std::string top = path.substr(0, path.find('/'));
      if (top == msg::kTemporaryFolder) left = "uploads: the staged object " + path;
      if (top == msg::kTemporaryFolder || is_pool_file(top)) return;
      if (!state().lookup(kRootFile, top, ClientId{})) left = "M6: the object " + path;
    });
    return left.empty();
  };
  if (!cluster_.run_until(clean, 300s)) complain(left + " stays when all files are gone");
}

bool Simulation::run() {
  cluster_.start_manager();
  for (std::size_t i = 0; i < kBenefactors; ++i) cluster_.add_benefactor();
  for (std::size_t i = 0; i < kClients; ++i) {
    clients_[i].plain =
        std::make_unique<PlainClient>(cluster_, fmt::format("client{}", i), [](PlainClient&) {});
  }
  pass(5s);
  set_faults(true);
  for (std::uint64_t i = 0; i < steps_ && wrong_.empty(); ++i) {
    faults_.held().release(cluster_.now(), false, [](const Node&) {});
    start_operation();
    PlainClient& plain = *clients_.front().plain;
    if (plain.registered() && !plain.behind()) directories_.start_one(plain);
    inject();
    pass(Duration(1ms) * prng_.below(500));
    check();
  }
  if (wrong_.empty()) settle();
  if (wrong_.empty()) remove_all();
  if (wrong_.empty()) check_clean();
  return wrong_.empty();
}

void Simulation::print(std::uint64_t seed) {
  fmt::print(
      "seed {}: {}, {:.0f} s simulated, stores {}, renames {}, removes {}, failed operations {}, "
      "answers that a file is safe {}, uploads {}, operations on sets {}, {}, {}, {}, "
      "trace {:016x}\n",
      seed, wrong_.empty() ? "ok" : "WRONG", seconds(), tally_.stores, tally_.renames,
      tally_.removes, tally_.failed, tally_.safe, tally_.uploads, directories_.operations(),
      objects_.describe(), swarm_.describe(), describe(cluster_.faults()), trace_);
  for (const auto& each : wrong_) fmt::print("  {}\n", each);
  if (!wrong_.empty()) {
    fmt::print("again: objects-sim --seed {} --steps {}{}\n", seed, steps_,
               with_faults_ ? "" : " --no-faults");
  }
  std::fflush(stdout);
}

int run(int count, char** arguments) {
  std::uint64_t seed = 1;
  std::uint64_t runs = 1;
  std::uint64_t steps = 200;
  bool faults = true;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    const auto number = [&] {
      return std::strtoull(i + 1 < count ? arguments[++i] : "", nullptr, 10);
    };
    if (name == "--seed") {
      seed = number();
    } else if (name == "--runs") {
      runs = number();
    } else if (name == "--steps") {
      steps = number();
    } else if (name == "--no-faults") {
      faults = false;
    } else {
      fmt::print(stderr, "objects-sim [--seed N] [--runs N] [--steps N] [--no-faults]\n");
      return 2;
    }
  }
  // The drain logs each of the faults that this program makes.
  log::start("objects-sim", static_cast<log::Level>(static_cast<int>(log::Level::kError) + 1));
  for (std::uint64_t i = 0; i < runs; ++i) {
    Simulation simulation(seed + i, steps, faults);
    const bool right = simulation.run();
    simulation.print(seed + i);
    if (!right) return 1;
  }
  return 0;
}

}  // namespace

}  // namespace stdchk::sim

int main(int count, char** arguments) {
  stdchk::sim::fix_addresses(arguments);
  return stdchk::sim::run(count, arguments);
}
