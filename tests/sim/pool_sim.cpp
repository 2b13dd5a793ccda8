// Simulates a pool in one thread from one seed: the manager's and the benefactors' real code, and
// clients that speak the protocol.
//
// Fault model. Each seed draws which of these faults occur, and how often (swarm.h).
//    Processes   A client or a benefactor dies at any moment and never comes back; its memory is
//                gone. A client, a benefactor or the manager is stopped for up to 25 s, longer than
//                a lease, and continues with its old state. The manager dies and restarts from its
//                journal; commands that were not durable are gone. Or the journal is lost, and the
//                manager is rebuilt from the benefactors. Or only the journal's end is lost: a
//                benefactor knows it, and the manager must notice the loss.
//    Links       A link breaks at any moment. Messages in flight are lost: a request that was not
//                received, or the answer to an executed request, which the client repeats. All
//                links of a process break. A process is cut off for up to 12 s: nothing arrives or
//                leaves, and no process is notified.
//    Messages    A message is late. It overtakes messages of other links, and transfers. A message
//                on a live link is lost or arrives twice: no transport does that, see README.md.
//    Transfers   A write fails with nothing or a part written, or its bytes land up to 3 s after
//                the failure.
//    Journal     Commands become durable up to 20 ms late.
//    Memory      A bit of one copy flips silently while another copy exists, or a bit of one of
//                the metadata logs on benefactors.
//    Clocks      Each process has its own clock. Clocks began at different times and drift by up
//                to 200 ppm; the time of day jumps by up to 6 h in either direction. The manager's
//                clock stays where a folder's policy removes sets by age.
//    Leaving     A benefactor asks to end, and ends when the manager allows it, or after 10 s.
//    Standbys    In a third of the seeds a standby follows the manager and takes over: when the
//                manager dies, with its disk or without; when it is stopped, and wakes up beside
//                its successor; when it is cut off from its standby, from benefactors, and from
//                some clients, so that two managers run for a time. The standby is killed, stopped
//                and cut off, too. Afterwards the old manager restarts on its old disk, or a new
//                standby starts.
//    Not here    Reordered messages of one link; a benefactor that restarts with its memory.
//
// Checked.
//    bytes       A read answers a content that the model allows, or an error. After faults have
//                stopped it answers the content, unless bytes were lost.
//    lost        Bytes are lost only with the memory of a benefactor that held their last good
//                copy, and whose stripe could not make them again: see lost_bytes.h.
//    leave       A benefactor that may end holds no only copy, unless no other benefactor has room.
//    M1          Committed maps name only chunks that are present and whole.
//    M3          A grant never covers bytes that another client knows and can still write.
//    M4          A chunk that the manager called present is present when the session commits.
//    epochs      After a take-over, the old manager acknowledges no change. Its other answers are
//                contents that once were true. After faults have stopped, it ends.
//    M9          Every operation ends within kOperationDeadline of virtual time. Time for which
//                its client was stopped does not count.
//    metadata    The manager's own audit finds nothing, after each step.
//    names       Directories, links, attributes and policies match the answers, also after lost
//                answers, restarts and rebuilds.
//    sets        A set of images disappears only when its folder's policy allows it. The link
//                never names a set that mixes two runs. After faults have stopped, obsolete sets
//                are gone, and the link names the newest set. In half of the seeds the names follow
//                a pattern of the folder. Of directories, the link and the pointer always name a
//                whole one.
//    leases      A client holds a directory and changes its names in batches. A listing by another
//                client shows all that the holder has told its application, or, if the holder has
//                lost the lease, the names of its last answered batch or of the next one.
//    parity      Every parity block equals a second, slow computation from the chunks.
//    copies      After faults have stopped, every chunk has the wanted copies on different hosts,
//                where there is room.
//    nodes       In a third of the seeds, images are placed by node. Their first copies are on one
//                benefactor, and each further copy on one other, unless one was lost or full.
//    space       After every file is removed and every client has gone, all space is free.
//    garbage     Then, after a garbage collection, no arena has a header of an extent.
//
// pool-sim [--seed N] [--runs N] [--steps N] [--no-faults] [--flips]: runs the seeds N, N + 1, ...
// The same seed makes the same run. With --flips, writes silently flip bits now and then: the
// checkers must notice.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "manager/arenas/garbage_collector.h"
#include "tests/sim/checkers.h"
#include "tests/sim/directory_script.h"
#include "tests/sim/fixed_addresses.h"
#include "tests/sim/folder_script.h"
#include "tests/sim/lease_script.h"
#include "tests/sim/lost_bytes.h"
#include "tests/sim/model.h"
#include "tests/sim/node_faults.h"
#include "tests/sim/node_places.h"
#include "tests/sim/pool_questions.h"
#include "tests/sim/rotten_copies.h"
#include "tests/sim/series_script.h"
#include "tests/sim/swarm.h"

namespace stdchk::sim {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBenefactors = 4;
constexpr std::size_t kClients = 3;
constexpr std::size_t kNames = 10;
constexpr std::size_t kFolders = 2;
// steps between two checks of all stripes, which are slow
constexpr std::uint64_t kStripesChecked = 10;
/// The longest time for which a request may stay in flight after its answer was lost.
constexpr Duration kSettle = 45s;

struct Tally {
  std::uint64_t stores = 0, stores_failed = 0, loads = 0, loads_failed = 0, renames = 0,
                removes = 0;
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, std::uint64_t steps, bool faults, bool flips)
      : prng_(seed),
        steps_(steps),
        flips_(flips),
        swarm_(seed, faults),
        cluster_(options(seed, swarm_)),
        beside_(seed ^ 0xF01D),
        ages_(series_options(seed).purge_after_s > 0),
        series_(cluster_, seed ^ 0x5E21E5, series_options(seed), complain_one(), note_one()),
        directories_(cluster_, seed ^ 0xD12EC7, 1 + seed % 2, complain_one(), note_one()),
        leases_(cluster_, seed ^ 0x1EA5E5, complain_one(), note_one()) {
    for (std::size_t i = 0; i < kFolders; ++i) {
      folders_.push_back(std::make_unique<FolderScript>(
          cluster_, fmt::format("work{}", i), seed * kFolders + i, complain_one(), note_one()));
    }
  }
  ~Simulation() { clients_.clear(); }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// Runs the seed. True: all checks passed.
  bool run();
  const std::vector<std::string>& wrong() const { return wrong_; }
  const Tally& tally() const { return tally_; }
  std::uint64_t folder_operations() const {
    std::uint64_t count = 0;
    for (const auto& each : folders_) count += each->operations();
    return count;
  }
  std::uint64_t set_operations() const { return series_.operations() + directories_.operations(); }
  /// A hash of the run; two runs of one seed have equal hashes.
  std::uint64_t trace() const { return trace_; }
  Time now() const { return cluster_.now(); }
  std::string faults() {
    return fmt::format("{}, {}, chunks lost with benefactors {}", swarm_.describe(),
                       describe(cluster_.faults()), lost_.lost());
  }

 private:
  struct Running {
    std::string what;
    Time started{};
    PlainClient* client = nullptr;
  };

  static Cluster::Options options(std::uint64_t seed, Swarm& swarm) {
    Cluster::Options options;
    options.seed = seed ^ 0x5EED;
    swarm.limit(options);
    options.arena_bytes = swarm.draw_bytes(limits::kMiB, 4 * limits::kMiB);
    options.pool.chunk_bytes = limits::kChunkBytesMin;
    constexpr Redundancy kRedundancies[] = {{1, 2, 1}, {1, 0, 0}, {2, 0, 0},
                                            {3, 0, 0}, {1, 2, 2}, {1, 3, 1}};
    options.pool.copies = kRedundancies[seed % std::size(kRedundancies)].number();
    options.hosts = 1 + seed % 4;
    if (seed / 2 % 3 == 1) options.policy = *parse_policy("placement=node");
    options.scrub_rate_bytes_per_s = seed % 2 == 0 ? limits::kMiB : 0;
    constexpr Duration kGcPeriods[] = {5s, 500ms, Duration::zero()};
    options.gc_period = kGcPeriods[seed % std::size(kGcPeriods)];
    return options;
  }

  static SeriesOptions series_options(std::uint64_t seed) {
    return {1 + seed % 3, seed % 4 == 0 ? 30U : 0U, false, 1, seed % 2 == 0};
  }
  FolderScript::Complain complain_one() {
    return [this](const std::string& what) { complain({what}); };
  }
  FolderScript::Note note_one() {
    return [this](std::uint64_t value) { note(value); };
  }

  void add_client();
  PlainClient* pick_client();
  void start_beside();
  bool beside_idle() const;
  void step();
  void start_operation();
  void start_store(PlainClient& client, const std::string& name);
  void start_load(PlainClient& client, const std::string& name, bool must_succeed);
  void start_rename(PlainClient& client, const std::string& from, const std::string& to);
  void start_remove(PlainClient& client, const std::string& name);
  void inject();
  void make(Event event);
  void jump_clock();
  void kill_client();
  void stop_client();
  void release_due(bool all);
  void set_plans(bool on);
  void check();
  void final_reads();
  void final_removal();
  std::vector<Part> make_parts(bool truncate);
  std::uint64_t begin(PlainClient& client, std::string what);
  void end(std::uint64_t number, std::uint64_t outcome);
  void note(std::uint64_t value) {
    trace_ = (trace_ ^ value) * 0x100000001B3ULL;
    trace_ ^= static_cast<std::uint64_t>(cluster_.now().time_since_epoch().count());
  }
  bool healthy(const std::string& name);
  /// Complains if an old manager acknowledged a change after a take-over. `behind`: the client
  /// belonged to the old epoch when it asked.
  void check_epoch(const PlainClient& client, bool behind, const Ending& ending,
                   const std::string& what);
  void complain(std::vector<std::string> what) {
    for (auto& each : what) {
      wrong_.push_back(fmt::format("at {:.3f} s: {}",
                                   std::chrono::duration<double>(now().time_since_epoch()).count(),
                                   each));
    }
  }

  Prng prng_;
  const std::uint64_t steps_;
  const bool flips_;
  Swarm swarm_;
  Cluster cluster_;
  Model model_;
  Prng beside_;      ///< draws for everything outside the model
  const bool ages_;  ///< sets expire by the manager's time of day
  std::vector<std::unique_ptr<FolderScript>> folders_;
  SeriesScript series_;
  DirectoryScript directories_;
  LeaseScript leases_;
  std::vector<std::unique_ptr<PlainClient>> clients_;
  std::uint64_t clients_made_ = 0;
  std::map<std::uint64_t, Running> running_;
  /// The model's update for each operation whose client dies meanwhile.
  std::map<std::uint64_t, std::function<void()>> when_lost_;
  std::uint64_t operations_made_ = 0;
  std::uint64_t checks_made_ = 0;
  LostBytes lost_{cluster_, {}};
  NodeFaults faults_{cluster_, swarm_, prng_, lost_};
  NodePlaces places_{cluster_};
  RottenCopies rotten_{cluster_, prng_};
  StripeCheck stripes_;
  std::vector<std::string> wrong_;
  Tally tally_;
  std::uint64_t trace_ = 0xCBF29CE484222325ULL;
};

void Simulation::add_client() {
  clients_.push_back(std::make_unique<PlainClient>(
      cluster_, fmt::format("client{}", ++clients_made_), [this](PlainClient& who) {
        std::vector<PlainClient*> all;
        for (const auto& each : clients_) all.push_back(each.get());
        complain(check_grants(cluster_, all, who));
        note(who.known().size());
      }));
  clients_.back()->on_recall = [this](PlainClient& client, FileId directory) {
    leases_.recalled(client, directory);
  };
}

PlainClient* Simulation::pick_client() {
  PlainClient& client = *clients_[prng_.below(clients_.size())];
  return client.registered() && !client.node().stopped ? &client : nullptr;
}

std::uint64_t Simulation::begin(PlainClient& client, std::string what) {
  const std::uint64_t number = ++operations_made_;
  running_[number] = {std::move(what), now(), &client};
  return number;
}

void Simulation::end(std::uint64_t number, std::uint64_t outcome) {
  running_.erase(number);
  when_lost_.erase(number);
  note(number * 131 + outcome);
}

std::vector<Part> Simulation::make_parts(bool truncate) {
  std::vector<Part> parts;
  const std::size_t count = 1 + prng_.below(3);
  std::uint64_t offset = truncate ? 0 : prng_.below(200000);
  for (std::size_t i = 0; i < count; ++i) {
    Part part;
    part.offset = offset;
    part.bytes.resize(1 + prng_.below(120000));
    // Few patterns, so that equal chunks are often in the pool already.
    const std::uint64_t seed = 1 + prng_.below(12);
    Prng bytes(seed);
    for (std::byte& each : part.bytes) each = static_cast<std::byte>(bytes.next() >> 56);
    offset += part.bytes.size() + (prng_.chance(1, 3) ? prng_.below(5000) : 0);
    parts.push_back(std::move(part));
  }
  return parts;
}

void Simulation::start_store(PlainClient& client, const std::string& name) {
  const bool truncate = prng_.chance(2, 3);
  auto parts = make_parts(truncate);
  Model::Name& entry = model_.name(name);
  entry.busy = true;
  const auto after = Model::written(entry, parts, truncate);
  const auto number = begin(client, "store " + name);
  ++tally_.stores;
  when_lost_[number] = [this, name, after] {
    Model::Name& lost = model_.name(name);
    lost.busy = false;
    Model::changed(lost, after, {fail(Code::kCancelled, "sim"), true}, now() + kSettle);
  };
  client.store(name, std::move(parts), truncate,
               [this, number, name, after, &client, behind = client.behind()](Ending ending) {
                 end(number, ending.status.has_value() ? 0 : 1);
                 check_epoch(client, behind, ending, "store " + name);
                 if (!ending.status.has_value()) ++tally_.stores_failed;
                 Model::Name& done = model_.name(name);
                 done.busy = false;
                 Model::changed(done, after, ending, now() + kSettle);
               });
}

/// Whether the file lost nothing with benefactors, and copies exist: this client reads no stripes.
/// LostBytes complains of all other losses.
bool Simulation::healthy(const std::string& name) {
  const auto file = cluster_.manager()->state().lookup(kRootFile, name, ClientId{});
  return !file.has_value() || lost_.is_there(**file, true);
}

void Simulation::start_load(PlainClient& client, const std::string& name, bool must_succeed) {
  model_.name(name).busy = true;
  const auto number = begin(client, "load " + name);
  ++tally_.loads;
  when_lost_[number] = [this, name] { model_.name(name).busy = false; };
  client.load(name, [this, number, name, must_succeed, began = now(),
                     behind = client.behind()](Result<std::vector<std::byte>> got) {
    end(number, got.has_value() ? got->size() : 7);
    Model::Name& entry = model_.name(name);
    entry.busy = false;
    Content seen;
    if (got.has_value()) {
      seen = std::move(*got);
    } else if (got.error().code != Code::kNotFound) {
      ++tally_.loads_failed;
      if (got.error().code == Code::kCorrupt && !behind && !rotten_.since(began)) {
        complain({"bytes: " + name + " is corrupt"});
      }
      if (must_succeed && healthy(name)) {
        complain({"bytes: " + name + " cannot be read without faults: " + describe(got.error())});
      }
      return;
    }
    if (!(behind ? entry.ever : entry.possible).contains(seen)) {
      return complain({fmt::format("bytes: {} shows {}, which it never had", name,
                                   seen ? fmt::format("{} bytes", seen->size()) : "nothing")});
    }
    if (!behind) entry.possible = {seen};
  });
}

void Simulation::check_epoch(const PlainClient& client, bool behind, const Ending& ending,
                             const std::string& what) {
  if (!behind || !client.behind() || !ending.status.has_value()) return;
  complain({"epochs: a manager answered after another one had taken over: " + what});
}

void Simulation::start_rename(PlainClient& client, const std::string& from, const std::string& to) {
  Model::Name& source = model_.name(from);
  Model::Name& target = model_.name(to);
  source.busy = target.busy = true;
  const auto number = begin(client, "rename " + from + " to " + to);
  ++tally_.renames;
  const auto moved = source.possible;
  const auto settle = [this, from, to, moved, behind = client.behind()](const Ending& ending) {
    Model::Name& a = model_.name(from);
    Model::Name& b = model_.name(to);
    a.busy = b.busy = false;
    std::set<Content> present = moved;
    present.erase(Content{});
    if (!ending.status.has_value() && ending.status.error().code == Code::kNotFound) {
      if (behind) return;
      if (!a.possible.contains(Content{})) return complain({"bytes: " + from + " was lost"});
      a.possible = {Content{}};
      return;
    }
    if (ending.status.has_value() && present.empty()) {
      return complain({"bytes: " + from + " was renamed but never was"});
    }
    Model::changed(a, {Content{}}, ending, now() + kSettle);
    Model::changed(b, present, ending, now() + kSettle);
  };
  when_lost_[number] = [settle] { settle({fail(Code::kCancelled, "sim"), true}); };
  client.rename(from, to,
                [this, number, settle, &client, from, behind = client.behind()](Ending ending) {
                  end(number, ending.status.has_value() ? 2 : 3);
                  check_epoch(client, behind, ending, "rename " + from);
                  settle(ending);
                });
}

void Simulation::start_remove(PlainClient& client, const std::string& name) {
  Model::Name& entry = model_.name(name);
  entry.busy = true;
  const auto number = begin(client, "remove " + name);
  ++tally_.removes;
  const auto settle = [this, name, behind = client.behind()](const Ending& ending) {
    Model::Name& done = model_.name(name);
    done.busy = false;
    if (!ending.status.has_value() && ending.status.error().code == Code::kNotFound) {
      if (behind) return;
      if (!done.possible.contains(Content{})) return complain({"bytes: " + name + " was lost"});
      done.possible = {Content{}};
      return;
    }
    Model::changed(done, {Content{}}, ending, now() + kSettle);
  };
  when_lost_[number] = [settle] { settle({fail(Code::kCancelled, "sim"), true}); };
  client.remove(name,
                [this, number, settle, &client, name, behind = client.behind()](Ending ending) {
                  end(number, ending.status.has_value() ? 4 : 5);
                  check_epoch(client, behind, ending, "remove " + name);
                  settle(ending);
                });
}

void Simulation::start_operation() {
  PlainClient* const client = pick_client();
  if (client == nullptr) return;
  const auto pick_name = [&] { return fmt::format("app.N{}.T1", prng_.below(kNames)); };
  const auto free = [&](const std::string& name) {
    const Model::Name& entry = model_.name(name);
    return !entry.busy && entry.settled <= now();
  };
  const std::string name = pick_name();
  const std::string other = pick_name();
  if (!free(name)) return;
  switch (prng_.below(10)) {
    case 0:
      if (name != other && free(other)) start_rename(*client, name, other);
      return;
    case 1:
      return start_remove(*client, name);
    case 2:
    case 3:
    case 4:
    case 5:
      return start_load(*client, name, false);
    default:
      return start_store(*client, name);
  }
}

/// Starts activities outside the model's files: folders, sets of images, administrative questions.
void Simulation::start_beside() {
  PlainClient& client = *clients_[beside_.below(clients_.size())];
  if (!client.registered() || client.behind() || client.node().stopped) return;
  for (const auto& each : folders_) {
    if (beside_.chance(1, 2)) each->start_one(client);
  }
  if (beside_.chance(1, 2)) series_.start_one(client);
  directories_.start_one(client);
  leases_.start_one(client);
  if (beside_.chance(1, 20)) ask_about_pool(cluster_, client, beside_, complain_one());
  if (beside_.chance(1, 40)) check_metrics(cluster_, complain_one());
}

bool Simulation::beside_idle() const {
  return series_.idle() && directories_.idle() && leases_.idle() &&
         std::ranges::all_of(folders_, [](const auto& each) { return each->idle(); });
}

void Simulation::release_due(bool all) {
  faults_.held().release(now(), all, [&](const Node& node) {
    // The stopped client's operations could not proceed: restart their deadlines.
    for (auto& [number, running] : running_) {
      if (&running.client->node() == &node) running.started = now();
    }
  });
}

void Simulation::kill_client() {
  const std::size_t index = prng_.below(clients_.size());
  PlainClient* const dead = clients_[index].get();
  std::vector<std::uint64_t> lost;
  for (const auto& [number, running] : running_) {
    if (running.client == dead) lost.push_back(number);
  }
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
  for (const std::uint64_t number : lost) {
    const auto settle = when_lost_.at(number);
    end(number, 6);
    settle();
  }
  for (const auto& each : folders_) each->client_died(*dead);
  series_.client_died(*dead);
  directories_.client_died(*dead);
  leases_.client_died(*dead);
  swarm_.happened(Event::kKillClient);
  add_client();
}

/// Stops a client in the middle of a store, if possible: its pending writes must not land later.
void Simulation::stop_client() {
  PlainClient* const client = pick_client();
  if (client == nullptr) return;
  const std::string name = fmt::format("app.N{}.T1", prng_.below(kNames));
  const Model::Name& entry = model_.name(name);
  if (!entry.busy && entry.settled <= now()) start_store(*client, name);
  cluster_.run_for(Duration(1ms) * prng_.below(40));
  faults_.hold(Event::kStopClient, client->node());
}

void Simulation::inject() {
  for (std::size_t i = 0; i < kEvents; ++i) {
    const auto event = static_cast<Event>(i);
    if (swarm_.happens(event)) make(event);
  }
}

void Simulation::make(Event event) {
  auto& benefactors = cluster_.benefactors();
  const std::size_t which = prng_.below(benefactors.size());
  Node& benefactor = *benefactors[which].node;
  Node& client = clients_[prng_.below(clients_.size())]->node();
  Node& manager = cluster_.manager_node();
  switch (event) {
    case Event::kKillClient:
      return kill_client();
    case Event::kKillBenefactor:
      swarm_.happened(event);
      return faults_.kill_benefactor(which);
    case Event::kLeave:
      return faults_.leave(which);
    case Event::kRestartManager:
      return faults_.restart_manager();
    case Event::kLoseManagerDisk:
      if (!rotten_.logs_do()) return;
      if (!faults_.lose_manager_disk()) complain({"M8: no manager could be rebuilt"});
      return;
    case Event::kDamageJournal:
      if (!rotten_.logs_do()) return;
      set_plans(false);
      if (!faults_.damage_journal())
        complain({"M8: a journal without its end was used, or could not be rebuilt"});
      return set_plans(true);
    case Event::kStopClient:
      return stop_client();
    case Event::kCutClient:
      return faults_.hold(event, client);
    case Event::kStopBenefactor:
    case Event::kCutBenefactor:
      return faults_.hold(event, benefactor);
    case Event::kStopManager:
    case Event::kCutManager:
      return faults_.hold(event, manager);
    case Event::kDropClient:
      return faults_.drop(event, client);
    case Event::kDropBenefactor:
      return faults_.drop(event, benefactor);
    case Event::kDropManager:
      return faults_.drop(event, manager);
    case Event::kFlip:
      if (rotten_.flip()) swarm_.happened(event);
      return;
    case Event::kJumpClock:
      return jump_clock();
    case Event::kFillStorage:
      return;  // this pool has no drain
    case Event::kPartManager: {
      std::vector<Node*> nodes;
      for (const auto& each : clients_) nodes.push_back(&each->node());
      return faults_.part_manager(nodes);
    }
    case Event::kKillStandby:
    case Event::kStopStandby:
    case Event::kCutStandby:
    case Event::kStartOldManager:
      return faults_.trouble_standby(event);
  }
}

/// Jumps the time of day of one process.
void Simulation::jump_clock() {
  faults_.jump_clock(!ages_,
                     [this]() -> Node& { return clients_[prng_.below(clients_.size())]->node(); });
}

void Simulation::set_plans(bool on) {
  for (const Role role : {Role::kManager, Role::kBenefactor, Role::kClient}) {
    transport::fault::Plan plan;
    if (on) plan = swarm_.plan(role);
    if (on && flips_) plan.flip_ppm = 20000;
    cluster_.set_plan(role, plan);
  }
}

void Simulation::check() {
  rotten_.forget_mended();
  places_.observe();
  complain(check_committed(cluster_, rotten_.all()));
  complain(lost_.check());
  if (checks_made_++ % kStripesChecked == 0) complain(stripes_.check(cluster_, rotten_.all()));
  complain(check_metadata(cluster_));
  for (const auto& each : clients_) complain(each->take_wrong());
  series_.check_latest();
  directories_.check();
  for (const auto& [number, running] : running_) {
    const bool held = running.client->node().stopped;
    if (held || now() - running.started <= limits::kOperationDeadline) continue;
    complain({"M9: no end of: " + running.what});
  }
  if (cluster_.livelock()) complain({"M9: the pool spins without time passing"});
}

void Simulation::step() {
  release_due(false);
  faults_.tend_standby();
  start_operation();
  start_beside();
  inject();
  cluster_.run_for(Duration(1ms) * prng_.below(400));
  check();
}

void Simulation::final_reads() {
  for (auto& [name, entry] : model_.names()) {
    start_load(*clients_.front(), name, true);
    if (!cluster_.run_until([&] { return running_.empty(); }, 40s)) check();
    if (!wrong_.empty()) return;
  }
}

void Simulation::final_removal() {
  for (auto& [name, entry] : model_.names()) {
    start_remove(*clients_.front(), name);
    if (!cluster_.run_until([&] { return running_.empty(); }, 40s)) check();
    if (!wrong_.empty()) return;
  }
  series_.remove_all(*clients_.front());
  if (!cluster_.run_until([&] { return series_.idle(); }, 120s)) {
    complain({"M9: no end of removing sets"});
  }
  directories_.remove_all(*clients_.front());
  if (!cluster_.run_until([&] { return directories_.idle(); }, 120s)) {
    complain({"M9: no end of removing directories"});
  }
  clients_.clear();
  cluster_.run_for(60s);
  complain(check_empty(cluster_));
  if (!wrong_.empty()) return;
  manager::GarbageCollector& garbage = cluster_.manager()->planners().garbage;
  const std::uint64_t round = garbage.start(true);
  const auto done = [&] { return garbage.ended(round); };
  if (!cluster_.run_until(done, 60s)) complain({"M9: the garbage collection does not end"});
  complain(check_forgotten(cluster_));
}

bool Simulation::run() {
  cluster_.start_manager();
  for (std::size_t i = 0; i < kBenefactors; ++i) cluster_.add_benefactor();
  for (std::size_t i = 0; i < kClients; ++i) add_client();
  cluster_.run_for(5s);
  set_plans(true);
  for (std::uint64_t i = 0; i < steps_ && wrong_.empty(); ++i) step();
  if (!wrong_.empty()) return false;
  // Faults end: within a bounded time the pool must be healthy again.
  set_plans(false);
  release_due(true);
  if (!faults_.settle_managers()) complain({"epochs: a manager does not hear of a later one"});
  cluster_.run_for(2 * kSettle);
  check();
  if (!running_.empty() || !beside_idle()) complain({"M9: operations go on after the end"});
  series_.check_settled();
  directories_.check_settled();
  for (const auto& each : clients_) {
    if (!each->registered()) complain({"a client does not come back"});
  }
  if (wrong_.empty()) complain(rotten_.scrub());
  complain(lost_.check());
  complain(check_copies(cluster_, lost_));
  if (!flips_) complain(places_.check());
  complain(stripes_.check(cluster_, rotten_.all()));
  if (wrong_.empty()) final_reads();
  if (wrong_.empty()) final_removal();
  return wrong_.empty();
}

int run(int count, char** arguments) {
  std::uint64_t seed = 1;
  std::uint64_t runs = 1;
  std::uint64_t steps = 400;
  bool faults = true;
  bool flips = false;
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
    } else if (name == "--flips") {
      flips = true;
    } else {
      fmt::print(stderr, "pool-sim [--seed N] [--runs N] [--steps N] [--no-faults] [--flips]\n");
      return 2;
    }
  }
  log::start("pool-sim", log::Level::kError);
  for (std::uint64_t i = 0; i < runs; ++i) {
    Simulation simulation(seed + i, steps, faults, flips);
    const bool right = simulation.run();
    const Tally& tally = simulation.tally();
    fmt::print(
        "seed {}: {}, {:.0f} s simulated, stores {} (failed {}), loads {} (failed {}), renames {}, "
        "removes {}, operations on folders {}, on sets {}, {}, trace {:016x}\n",
        seed + i, right ? "ok" : "WRONG",
        std::chrono::duration<double>(simulation.now().time_since_epoch()).count(), tally.stores,
        tally.stores_failed, tally.loads, tally.loads_failed, tally.renames, tally.removes,
        simulation.folder_operations(), simulation.set_operations(), simulation.faults(),
        simulation.trace());
    std::fflush(stdout);
    if (right) continue;
    for (const auto& each : simulation.wrong()) fmt::print("  {}\n", each);
    fmt::print("again: pool-sim --seed {} --steps {}{}\n", seed + i, steps,
               faults ? "" : " --no-faults");
    return 1;
  }
  return 0;
}

}  // namespace

}  // namespace stdchk::sim

int main(int count, char** arguments) {
  stdchk::sim::fix_addresses(arguments);
  return stdchk::sim::run(count, arguments);
}
