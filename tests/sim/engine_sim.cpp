// Simulates a pool with the real client library: manager, benefactors, drain and clients run in one
// thread, from one seed.
//
// Fault model: that of pool_sim.cpp, and:
//    Storage     The drain directory is real (in memory, for speed). A job on it takes up to
//                300 ms; a few take up to 40 s, longer than their deadline. A job fails either
//                before or after its execution. For up to a minute there is no room:
//                pieces are written in part, and no file gets its name.
//    Standbys    As in pool_sim.cpp.
//    Not here    What pool_sim.cpp leaves out; storage that forgets durable bytes.
//
// Each process with the library runs scripts (engine_scripts.h). They write in sequence and at
// random, append, cut, and read both uncommitted and committed bytes. They sync, commit, abort,
// rename, and remove open files, and close in every way. Two processes write halves of one file.
// Chunk size, window and cache differ by process. Arenas are small, so that the pool evicts and
// compacts all the time.
//
// Besides, a client that speaks the plain protocol changes folders and writes sets of images into a
// folder with a policy. In every second seed, the processes change names in a folder that the library
// holds (docs/decisions/0075). Some pools begin with files that an earlier pool has drained.
//
// Checked: bytes, lost, leave, M1, M9, names, sets, nodes and space as in pool_sim.cpp (which alone
// checks M3). A read must not fail for lost bytes while they exist and no process is cut off. A superseded
// manager must end. And:
//    redundant   After a close that waits for copies, every chunk has its copies or its parity,
//                unless something was lost since. In some seeds the processes ask for such closes;
//                in others, the policy of the pool's folder does.
//    M5          A chunk without a place in memory, although no benefactor has died, is in the
//                drained file with the right checksum.
//    M6          At any time a name in the drain directory shows only a content that the whole file
//                once had. After faults have stopped, the directory has each file, and no other.
//
// engine-sim [--seed N] [--runs N] [--steps N] [--no-faults] [--no-deaths] [--directory DIR]

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/naming.h"
#include "core/files/drain_manifest.h"
#include "tests/sim/checkers.h"
#include "tests/sim/directory_script.h"
#include "tests/sim/engine_scripts.h"
#include "tests/sim/fixed_addresses.h"
#include "tests/sim/folder_script.h"
#include "tests/sim/held_folder_script.h"
#include "tests/sim/lost_bytes.h"
#include "tests/sim/node_faults.h"
#include "tests/sim/node_places.h"
#include "tests/sim/pool_questions.h"
#include "tests/sim/rotten_copies.h"
#include "tests/sim/series_script.h"
#include "tests/sim/swarm.h"

namespace stdchk::sim {

namespace {

using namespace std::chrono_literals;
namespace files = std::filesystem;

constexpr std::size_t kBenefactors = 3;
constexpr std::size_t kProcesses = 3;
constexpr std::size_t kNames = 8;
constexpr std::size_t kScriptsMax = 7;
constexpr std::size_t kFolders = 2;
constexpr std::size_t kEarlierFiles = 3;
/// Arena size of pools with long writers: two places have room for all that they write.
constexpr std::uint64_t kLongArena = 8 * limits::kMiB;
/// The least time between two benefactor deaths with long writers: all others have noticed the
/// first.
constexpr Duration kLongApart = 30s;
/// The longest silence of a benefactor; others take it for lost meanwhile.
constexpr Duration kHeldMax = 25s;

struct Settings {
  std::uint64_t seed = 1;
  std::uint64_t steps = 300;
  bool faults = true;
  bool deaths = true;
  std::string directory;
};

std::vector<std::byte> load_file(const files::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

class Simulation {
 public:
  explicit Simulation(const Settings& settings);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// Runs the seed. True: all checks passed.
  bool run();
  void print();

 private:
  static Cluster::Options options(const Settings& settings, Swarm& swarm);
  static SeriesOptions series_options(std::uint64_t seed) {
    return {1 + seed % 2, seed % 5 == 0 ? 30U : 0U, seed % 3 == 1, seed % 4 == 2 ? 2U : 1U,
            seed % 7 < 3};
  }
  /// Long writers must outlive one death: each chunk has two places. In such a seed, only deaths
  /// make a benefactor unreachable.
  static bool has_long_writers(std::uint64_t seed) { return seed % 6 == 5; }
  void leave_files_of_earlier_pool();
  void ask_for_copies();
  void start_beside();
  bool beside_idle() const;
  Time now() const { return cluster_.now(); }
  double seconds() const { return std::chrono::duration<double>(now().time_since_epoch()).count(); }
  void complain(const std::string& what) {
    wrong_.push_back(fmt::format("at {:.3f} s: {}", seconds(), what));
  }
  void add_process();
  void kill_process(std::size_t index);
  void start_script();
  void begin(std::shared_ptr<Script> script);
  void release_due(bool all);
  void inject();
  void make(Event event);
  void lose_benefactor(Event event, std::size_t index);
  void hear_anew();
  void jump_clock();
  void fill_storage();
  void set_plans(bool on);
  void check();
  void check_evicted();
  void check_shown();
  void check_directory();
  bool healthy(const std::string& name);
  bool settle_scripts(Duration time);
  void final_checks();
  void final_removal();

  const Settings settings_;
  Prng prng_;
  Swarm swarm_;
  Cluster cluster_;
  ChangeModel model_;
  Scene scene_;
  std::vector<std::unique_ptr<EngineNode>> processes_;
  std::uint64_t processes_made_ = 0;
  std::vector<std::shared_ptr<Script>> scripts_;
  Prng beside_;  ///< draws for everything outside the model
  std::vector<std::unique_ptr<FolderScript>> folders_;
  std::unique_ptr<SeriesScript> series_;
  std::unique_ptr<DirectoryScript> directories_;
  std::unique_ptr<HeldFolderScript> held_;  ///< in every second seed
  std::unique_ptr<PlainClient> plain_;      ///< works in folders
  LostBytes lost_{cluster_, settings_.directory};
  NodeFaults faults_{cluster_, swarm_, prng_, lost_};
  NodePlaces places_{cluster_};
  RottenCopies rotten_{cluster_, prng_};
  Time full_until_{};  ///< the drain directory has no room until then
  std::vector<std::string> wrong_;
  std::uint64_t trace_ = 0xCBF29CE484222325ULL;
  std::uint64_t evicted_seen_ = 0;
  /// Files in the drain directory that were checked: inode number, length, time of change.
  std::map<std::string, std::tuple<ino_t, off_t, std::int64_t, std::int64_t>> shown_;
};

Cluster::Options Simulation::options(const Settings& settings, Swarm& swarm) {
  Cluster::Options options;
  options.seed = settings.seed ^ 0xE16E;
  swarm.limit(options);
  constexpr std::uint64_t kArenas[] = {2048, 1024, 640, 768};  // from ample to scarce
  options.arena_bytes = kArenas[settings.seed % 4] * limits::kKiB;
  options.pool.chunk_bytes = limits::kChunkBytesMin;
  options.pool.naming = static_cast<Naming>(settings.seed % 3);
  options.pool.content_cuts = settings.seed % 2 == 0;
  constexpr Redundancy kRedundancies[] = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {1, 2, 1},
                                          {1, 0, 0}, {1, 2, 2}, {2, 0, 0}};
  options.pool.copies = kRedundancies[settings.seed % std::size(kRedundancies)].number();
  options.hosts = 1 + settings.seed % 4;
  if (settings.seed / 2 % 3 == 1) options.policy = *parse_policy("placement=node");
  options.pool.drain_directory = settings.directory;
  if (has_long_writers(settings.seed)) {
    options.arena_bytes = kLongArena;
    options.pool.copies = Redundancy{2, 0, 0}.number();
    options.hosts = kBenefactors + 1;
  }
  return options;
}

Simulation::Simulation(const Settings& settings)
    : settings_(settings),
      prng_(settings.seed),
      swarm_(settings.seed, settings.faults),
      cluster_(options(settings, swarm_)),
      scene_{cluster_,
             prng_,
             model_,
             [this](const std::string& what) { complain(what); },
             [this](std::uint64_t value) {
               trace_ = (trace_ ^ value) * 0x100000001B3ULL;
               trace_ ^= static_cast<std::uint64_t>(now().time_since_epoch().count());
             },
             settings.faults,
             settings.deaths && settings.faults,
             [this](Time time) { return rotten_.since(time); },
             [this](FileId file, Time time) {
               return lost_.since(file, time) || faults_.troubled_since(time);
             },
             [this](Time time) {
               return faults_.deaths_since(time) <= 1 && !faults_.hidden_since(time) &&
                      !rotten_.since(time);
             },
             settings.seed % 5 == 1 || settings.seed % 5 == 3 || has_long_writers(settings.seed),
             has_long_writers(settings.seed),
             {},
             {}},
      beside_(settings.seed ^ 0xF01D) {
  files::remove_all(settings_.directory);
  files::create_directories(settings_.directory);
  if (settings_.seed % 3 == 0) leave_files_of_earlier_pool();
  for (std::size_t i = 0; i < kFolders; ++i) {
    folders_.push_back(std::make_unique<FolderScript>(cluster_, fmt::format("work{}", i),
                                                      settings_.seed * kFolders + i,
                                                      scene_.complain, scene_.note));
  }
  series_ =
      std::make_unique<SeriesScript>(cluster_, settings_.seed ^ 0x5E21E5,
                                     series_options(settings_.seed), scene_.complain, scene_.note);
  directories_ = std::make_unique<DirectoryScript>(
      cluster_, settings_.seed ^ 0xD12EC7, 1 + settings_.seed % 2, scene_.complain, scene_.note);
  if (settings_.seed % 2 == 0) {
    held_ = std::make_unique<HeldFolderScript>(scene_, settings_.seed ^ 0x4E1D);
  }
}

/// The manifest's entry for a file with that content, changed at `mtime_ns`.
std::string manifest_entry(const std::string& name, ByteSpan bytes, std::int64_t mtime_ns) {
  std::string pieces;
  for (std::size_t at = 0; at < bytes.size(); at += limits::kChunkBytesMin) {
    const ByteSpan piece =
        bytes.subspan(at, std::min<std::size_t>(limits::kChunkBytesMin, bytes.size() - at));
    pieces += fmt::format(R"({}{{"offset":{},"length":{},"crc32c":{}}})", at > 0 ? "," : "", at,
                          piece.size(), crc32c(0, piece));
  }
  return fmt::format(R"("{}":{{"size":{},"mtime":{},"pieces":[{}]}})", name, bytes.size(), mtime_ns,
                     pieces);
}

/// Leaves names that scripts use, a folder with a link, and an interrupted drain. The manifest
/// knows the first file, describes an earlier version of the second, and omits the third.
void Simulation::leave_files_of_earlier_pool() {
  const files::path root(settings_.directory);
  const auto write = [&](const files::path& path, const std::vector<std::byte>& bytes) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  };
  std::string entries;
  for (std::size_t i = 0; i < kEarlierFiles; ++i) {
    std::vector<std::byte> bytes(1 + beside_.below(300000));
    for (std::byte& each : bytes) each = static_cast<std::byte>(beside_.next() >> 56);
    const std::string name = fmt::format("app.N{}.T1", i);
    write(root / name, bytes);
    struct stat there {};
    if (::stat((root / name).c_str(), &there) != 0) complain(name + " is not there");
    if (i == 0) entries = manifest_entry(name, bytes, to_ns(there.st_mtim));
    if (i == 1) {
      std::vector<std::byte> earlier = bytes;
      earlier.front() ^= std::byte{1};
      entries += "," + manifest_entry(name, earlier, to_ns(there.st_mtim) - 1);
    }
    model_.name(name).possible = {std::move(bytes)};
    ChangeModel::remember(model_.name(name), model_.name(name).possible);
  }
  std::ofstream(root / kManifestName) << R"({"format":1,"files":{)" << entries << "}}";
  files::create_directories(root / "earlier" / "below");
  files::create_symlink("below", root / "earlier" / "link");
  files::create_directories(root / msg::kTemporaryFolder);
  write(root / msg::kTemporaryFolder / "left", {std::byte{1}});
}

Simulation::~Simulation() {
  while (!processes_.empty()) kill_process(0);
  scripts_.clear();
  plain_.reset();
  files::remove_all(settings_.directory);
}

void Simulation::add_process() {
  EngineNode::Limits of_process;
  of_process.chunk_bytes = limits::kChunkBytesMin << prng_.below(3);
  of_process.window_bytes = swarm_.draw_bytes(2 * of_process.chunk_bytes, 2 * limits::kMiB);
  of_process.cache_bytes = swarm_.draw_bytes(of_process.chunk_bytes, 2 * limits::kMiB);
  of_process.waits_for_copies = scene_.redundant;
  processes_.push_back(std::make_unique<EngineNode>(
      cluster_, fmt::format("process{}", ++processes_made_), of_process, prng_.next()));
  processes_.back()->executor().set_delays(2ms, 50ms, 50);
}

void Simulation::kill_process(std::size_t index) {
  EngineNode* const dead = processes_[index].get();
  if (held_ != nullptr) held_->killed(*dead);
  for (const auto& script : scripts_) {
    if (&script->node() == dead && !script->ended()) script->killed();
  }
  std::erase_if(scripts_, [&](const auto& script) { return &script->node() == dead; });
  processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Simulation::begin(std::shared_ptr<Script> script) {
  scripts_.push_back(script);
  script->start();
}

void Simulation::start_script() {
  std::erase_if(scripts_, [](const auto& script) { return script->ended(); });
  if (scripts_.size() >= kScriptsMax) return;
  EngineNode& process = *processes_[prng_.below(processes_.size())];
  const std::string name = fmt::format("app.N{}.T1", prng_.below(kNames));
  const auto way = prng_.below(10);
  const auto half = prng_.chance(1, 4);
  if (process.node().stopped || !process.ready()) return;
  ChangeModel::Name& entry = model_.name(name);
  if (entry.moving) return;
  if (way < 4) return begin(std::make_shared<ReaderScript>(scene_, process, name, false));
  if (entry.writers > 0 || entry.settled > now()) return;
  if (entry.possible.size() != 1) {
    return begin(std::make_shared<ReaderScript>(scene_, process, name, false));
  }
  if (!half) return begin(std::make_shared<WriterScript>(scene_, process, name, std::nullopt));
  entry.alone = true;
  for (unsigned i = 0; i < 2; ++i) {
    EngineNode& other = i == 0 ? process : *processes_[prng_.below(processes_.size())];
    if (i == 1 && (&other == &process || other.node().stopped || !other.ready())) return;
    begin(std::make_shared<WriterScript>(scene_, other, name, i));
  }
}

/// Makes closes wait for copies wherever no other policy is set.
void Simulation::ask_for_copies() {
  msg::SetPolicy request;
  request.client = plain_->id();
  request.directory = kRootFile;
  request.changes.settings = {
      {PolicyKey::kCommit, static_cast<std::uint64_t>(CommitLevel::kRedundant)}};
  bool done = false;
  plain_->ask(request, [&](const rpc::Answer& answer) {
    done = true;
    if (!answer.has_value()) complain("the policy of the root folder is refused");
  });
  if (!cluster_.run_until([&] { return done; }, 10s)) complain("M9: no end of setting a policy");
}

/// Starts activities outside the model's files: folders, sets of images, administrative questions.
void Simulation::start_beside() {
  if (!plain_->registered() || plain_->behind()) return;
  for (const auto& each : folders_) {
    if (beside_.chance(1, 2)) each->start_one(*plain_);
  }
  if (beside_.chance(1, 2)) series_->start_one(*plain_);
  directories_->start_one(*plain_);
  if (held_ != nullptr && beside_.chance(1, 5)) held_->start_one(processes_);
  if (beside_.chance(1, 20)) ask_about_pool(cluster_, *plain_, beside_, scene_.complain);
  if (beside_.chance(1, 40)) check_metrics(cluster_, scene_.complain);
}

bool Simulation::beside_idle() const {
  return series_->idle() && directories_->idle() && (held_ == nullptr || held_->idle()) &&
         std::ranges::all_of(folders_, [](const auto& each) { return each->idle(); });
}

void Simulation::release_due(bool all) {
  faults_.held().release(now(), all, [](const Node&) {});
  if (all || full_until_ <= now()) cluster_.set_storage_full(false);
}

/// Whether the event makes a live benefactor unreachable or unknown, corrupts its copies, or ends
/// it. Seeds with long writers end benefactors by their own schedule.
bool disturbs_long_writers(Event event) {
  switch (event) {
    case Event::kKillBenefactor:
    case Event::kLeave:
    case Event::kDamageJournal:
    case Event::kLoseManagerDisk:
    case Event::kStopBenefactor:
    case Event::kStopManager:
    case Event::kCutBenefactor:
    case Event::kCutManager:
    case Event::kFlip:
    case Event::kPartManager:
    case Event::kStopStandby:
    case Event::kCutStandby:
      return true;
    default:
      return false;
  }
}

void Simulation::inject() {
  for (std::size_t i = 0; i < kEvents; ++i) {
    const auto event = static_cast<Event>(i);
    if (has_long_writers(settings_.seed) && disturbs_long_writers(event)) continue;
    if (swarm_.happens(event)) make(event);
  }
  if (!settings_.faults || !has_long_writers(settings_.seed)) return;
  if (faults_.deaths_since(now() - kLongApart) == 0 && prng_.chance(1, 20)) {
    make(Event::kKillBenefactor);
  }
}

void Simulation::make(Event event) {
  auto& benefactors = cluster_.benefactors();
  const std::size_t which = prng_.below(benefactors.size());
  const std::size_t process = prng_.below(processes_.size());
  Node& benefactor = *benefactors[which].node;
  Node& client = processes_[process]->node();
  Node& manager = cluster_.manager_node();
  switch (event) {
    case Event::kKillClient:
      swarm_.happened(event);
      kill_process(process);
      return add_process();
    case Event::kKillBenefactor:
    case Event::kLeave:
      return lose_benefactor(event, which);
    case Event::kRestartManager:
      hear_anew();
      return faults_.restart_manager();
    case Event::kStopClient:
      // Stops the client in the middle of an operation.
      cluster_.run_for(Duration(1ms) * prng_.below(40));
      return faults_.hold(event, client);
    case Event::kCutClient:
      return faults_.hold(event, client);
    case Event::kStopBenefactor:
    case Event::kCutBenefactor:
      scene_.lost_last = now() + kHeldMax;
      return faults_.hold(event, benefactor);
    case Event::kStopManager:
    case Event::kCutManager:
      scene_.lost_last = now() + kHeldMax;
      return faults_.hold(event, manager);
    case Event::kDropClient:
      return faults_.drop(event, client);
    case Event::kDropBenefactor:
      return faults_.drop(event, benefactor);
    case Event::kDropManager:
      return faults_.drop(event, manager);
    case Event::kJumpClock:
      return jump_clock();
    case Event::kFillStorage:
      return fill_storage();
    case Event::kLoseManagerDisk:
      if (!rotten_.logs_do()) return;
      if (!faults_.lose_manager_disk()) complain("M8: no manager could be rebuilt");
      return hear_anew();
    case Event::kDamageJournal:
      if (!rotten_.logs_do()) return;
      set_plans(false);
      if (!faults_.damage_journal())
        complain("M8: a journal without its end was used, or could not be rebuilt");
      hear_anew();
      return set_plans(true);
    case Event::kFlip:
      if (rotten_.flip()) swarm_.happened(event);
      return;
    case Event::kPartManager: {
      scene_.lost_last = now() + kHeldMax;
      std::vector<Node*> nodes{&plain_->node()};
      for (const auto& each : processes_) nodes.push_back(&each->node());
      return faults_.part_manager(nodes);
    }
    case Event::kKillStandby:
    case Event::kStopStandby:
    case Event::kCutStandby:
    case Event::kStartOldManager:
      return faults_.trouble_standby(event);
  }
}

/// After a change of manager, the time to notice a recently lost benefactor begins anew.
void Simulation::hear_anew() {
  if (scene_.lost_last + 3 * kNoticed > now()) {
    scene_.lost_last = std::max(scene_.lost_last, now());
  }
}

void Simulation::lose_benefactor(Event event, std::size_t index) {
  if (!settings_.deaths) return;
  if (event == Event::kLeave) {
    faults_.leave(index);
  } else {
    faults_.kill_benefactor(index);
    swarm_.happened(event);
  }
  scene_.lost_last = std::max(scene_.lost_last, now());
}

/// Jumps the time of day of one process. The manager's clock stays in seeds whose sets expire by
/// age.
void Simulation::jump_clock() {
  faults_.jump_clock(series_options(settings_.seed).purge_after_s == 0, [this]() -> Node& {
    return processes_[prng_.below(processes_.size())]->node();
  });
}

void Simulation::fill_storage() {
  cluster_.set_storage_full(true);
  full_until_ = now() + Duration(1s) * prng_.below(60);
  swarm_.happened(Event::kFillStorage);
}

void Simulation::set_plans(bool on) {
  const bool faults = on && settings_.faults;
  for (const Role role : {Role::kManager, Role::kBenefactor, Role::kClient}) {
    cluster_.set_plan(role, faults ? swarm_.plan(role) : transport::fault::Plan());
  }
  cluster_.set_job_faults(300ms, faults ? Duration(40s) : Duration(2s),
                          faults ? swarm_.slow_jobs() : 40, faults ? swarm_.storage_fail_ppm() : 0);
}

/// Whether nothing that the file needs was lost with benefactors. LostBytes complains of all other
/// losses.
bool Simulation::healthy(const std::string& name) {
  const auto file = cluster_.manager()->state().lookup(kRootFile, name, ClientId{});
  return !file.has_value() || lost_.is_there(**file, false);
}

/// Checks rule M5, where the names in the drain directory agree with those in the pool. They follow
/// the pool's with a delay.
void Simulation::check_evicted() {
  if (cluster_.manager() == nullptr) return;
  const manager::State& state = cluster_.manager()->state();
  if (!state.mirror_queue().empty()) return;
  for (std::size_t i = 0; i < kNames; ++i) {
    const auto file = state.lookup(kRootFile, fmt::format("app.N{}.T1", i), ClientId{});
    if (!file.has_value() || !(*file)->newest.drained) continue;
    const manager::VersionData& version = (*file)->newest;
    const ChunkMap map = state.contents().map_page(version, 0, version.slices.size());
    std::optional<std::vector<std::byte>> drained;
    for (const Slice& slice : map.slices) {
      const Chunk& chunk = map.chunks[slice.chunk];
      if (!chunk.copies.empty() || slice.length != chunk.length || chunk.crc == 0) continue;
      ++evicted_seen_;
      const auto path = files::path(settings_.directory) / state.path(**file);
      if (!drained.has_value()) drained = load_file(path);
      if (slice.file_offset + slice.length > drained->size() ||
          crc32c(0, ByteSpan(*drained).subspan(slice.file_offset, slice.length)) != chunk.crc) {
        return complain(fmt::format("M5: {} at {} was evicted and is not in its drained file",
                                    path.filename().string(), slice.file_offset));
      }
    }
  }
}

void Simulation::check() {
  rotten_.forget_mended();
  places_.observe();
  for (const std::string& each : check_committed(cluster_, rotten_.all())) complain(each);
  for (const std::string& each : lost_.check()) complain(each);
  for (const std::string& each : check_metadata(cluster_)) complain(each);
  if (plain_ != nullptr) {
    for (const std::string& each : plain_->take_wrong()) complain(each);
  }
  check_evicted();
  check_shown();
  series_->check_latest();
  series_->check_drained_latest(settings_.directory);
  directories_->check();
  directories_->check_drained(DirectoryScript::lengths_in(settings_.directory));
  for (const auto& each : processes_) {
    if (each->node().stopped) continue;
    const std::string what = each->overdue();
    if (!what.empty()) complain("M9: no end of: " + what);
  }
  if (cluster_.livelock()) complain("M9: the pool spins without time passing");
}

bool Simulation::settle_scripts(Duration time) {
  return cluster_.run_until(
      [&] {
        for (const auto& script : scripts_) {
          if (!script->ended()) return false;
        }
        return true;
      },
      time);
}

/// Checks rule M6 at any time: each name shows a content that the whole file once had.
void Simulation::check_shown() {
  for (const auto& [name, entry] : model_.names()) {
    const files::path path = files::path(settings_.directory) / name;
    struct stat there {};
    if (::lstat(path.c_str(), &there) != 0) {
      shown_.erase(name);
      continue;
    }
    const std::tuple now(there.st_ino, there.st_size, std::int64_t{there.st_ctim.tv_sec},
                         std::int64_t{there.st_ctim.tv_nsec});
    const auto seen = shown_.find(name);
    if (seen != shown_.end() && seen->second == now) continue;
    const std::vector<std::byte> bytes = load_file(path);
    if (entry.ever.contains(ChangeModel::stamp(bytes))) {
      shown_[name] = now;
    } else if (!ChangeModel::reachable(entry).contains(bytes)) {
      complain(fmt::format("M6: {} shows {} bytes in the drain directory that it never had", name,
                           bytes.size()));
    }
  }
}

/// Checks rule M6 after the drain: each name shows the whole file.
void Simulation::check_directory() {
  const manager::State& state = cluster_.manager()->state();
  for (const auto& each : files::directory_iterator(settings_.directory)) {
    const std::string name = each.path().filename().string();
    if (name == msg::kTemporaryFolder || is_pool_file(name)) continue;
    if (!state.lookup(kRootFile, name, ClientId{}).has_value()) {
      complain("M6: " + name + " is in the drain directory and not in the pool");
    }
  }
  for (auto& [name, entry] : model_.names()) {
    const auto file = state.lookup(kRootFile, name, ClientId{});
    if (!file.has_value() || !(*file)->newest.drained) continue;
    const Content there = load_file(files::path(settings_.directory) / name);
    if (!entry.possible.contains(there)) {
      complain(fmt::format("M6: {} has {} bytes in the drain directory that it never had", name,
                           there->size()));
    }
  }
}

void Simulation::final_checks() {
  for (auto& [name, entry] : model_.names()) {
    auto& process = *processes_.front();
    begin(std::make_shared<ReaderScript>(scene_, process, name, healthy(name)));
    if (!settle_scripts(60s)) complain("M9: no end of reading " + name);
    if (!wrong_.empty()) return;
  }
  const auto drained = [&] {
    const manager::State& state = cluster_.manager()->state();
    if (!state.mirror_queue().empty()) return false;
    for (const auto& [sequence, id] : state.commits().undrained()) {
      const auto* file = state.file(id);
      bool named = false;
      for (auto& [name, entry] : model_.names()) {
        const auto found = state.lookup(kRootFile, name, ClientId{});
        // A chunk that exists only as a stripe is drained after its reconstruction.
        if (found.has_value() && *found == file) named = lost_.is_there(*file, true);
      }
      if (named) return false;
    }
    return true;
  };
  if (!cluster_.run_until(drained, 200s)) return complain("M9: the drain does not end");
  check();
  check_directory();
  series_->check_settled();
  directories_->check_settled();
  for (const auto& each : folders_) each->check_drained(settings_.directory);
}

void Simulation::final_removal() {
  auto& process = *processes_.front();
  for (const auto& entry : model_.names()) {
    const std::string name = entry.first;
    msg::Remove request;
    {
      const client::Lock lock(process.engine().shared().mutex);
      request = {process.engine().client(), kRootFile, name, false};
    }
    const bool exists = cluster_.manager()->state().lookup(kRootFile, name, ClientId{}).has_value();
    bool done = false;
    process.ask("remove " + name, request, [&](const rpc::Answer& answer) {
      done = true;
      if (answer.has_value() != exists) complain("final removal of " + name + " fails");
    });
    if (!cluster_.run_until([&] { return done; }, 40s)) complain("M9: no end of final removal");
    if (!wrong_.empty()) return;
  }
  series_->remove_all(*plain_);
  if (!cluster_.run_until([&] { return series_->idle(); }, 120s)) {
    complain("M9: no end of removing sets");
  }
  directories_->remove_all(*plain_);
  if (!cluster_.run_until([&] { return directories_->idle(); }, 120s)) {
    complain("M9: no end of removing directories");
  }
  if (held_ != nullptr) held_->remove_all(process);
  if (!cluster_.run_until([&] { return beside_idle(); }, 120s)) {
    complain("M9: no end of removing held names");
  }
  plain_.reset();
  cluster_.run_for(10s);
  for (const auto& each : processes_) {
    const client::Lock lock(each->engine().shared().mutex);
    if (!each->engine().idle()) complain("a process has sessions left: " + each->node().name);
    if (each->engine().window().free_count() != each->engine().window().slot_count()) {
      complain("a process has window slots left: " + each->node().name);
    }
  }
  while (!processes_.empty()) kill_process(0);
  cluster_.run_for(60s);
  for (const std::string& each : check_empty(cluster_)) complain(each);
  check_directory();
}

bool Simulation::run() {
  cluster_.start_manager();
  for (std::size_t i = 0; i < kBenefactors; ++i) cluster_.add_benefactor();
  for (std::size_t i = 0; i < kProcesses; ++i) add_process();
  plain_ = std::make_unique<PlainClient>(cluster_, "plain", [](PlainClient&) {});
  cluster_.run_for(5s);
  if (settings_.seed % 5 == 2) ask_for_copies();
  set_plans(true);
  for (std::uint64_t i = 0; i < settings_.steps && wrong_.empty(); ++i) {
    release_due(false);
    faults_.tend_standby();
    start_script();
    start_beside();
    inject();
    cluster_.run_for(Duration(1ms) * prng_.below(500));
    check();
  }
  if (!wrong_.empty()) return false;
  // Faults end: within a bounded time the pool must be healthy again.
  set_plans(false);
  release_due(true);
  if (!faults_.settle_managers()) complain("epochs: a manager does not hear of a later one");
  scene_.faults = true;  // operations that began earlier may still fail
  if (!settle_scripts(300s)) complain("M9: scripts do not end");
  scripts_.clear();
  cluster_.run_for(kSettle + 90s);
  if (!beside_idle()) complain("M9: operations on folders do not end");
  check();
  scene_.faults = false;
  if (wrong_.empty()) {
    for (const std::string& each : rotten_.scrub()) complain(each);
  }
  for (const auto& each : processes_) {
    if (!each->ready()) complain("a process does not come back: " + each->node().name);
  }
  for (const std::string& each : places_.check()) complain(each);
  if (wrong_.empty()) final_checks();
  scripts_.clear();
  if (wrong_.empty()) final_removal();
  return wrong_.empty();
}

void Simulation::print() {
  const ScriptTally& t = scene_.tally;
  std::uint64_t on_folders = 0;
  for (const auto& each : folders_) on_folders += each->operations();
  fmt::print(
      "seed {}: {}, {:.0f} s simulated, opens {}, writes {}, reads {}, cuts of files {}, syncs {}, "
      "commits {} (failed {}), waits for copies {} (failed {}), aborts {}, renames {}, unlinks {}, "
      "loads {} (failed {}), errors {}, "
      "evicted chunks seen {}, chunks lost with benefactors {}, operations on folders {}, on sets "
      "{}, on held names {} ({} changes in batches), {}, {}, trace {:016x}\n",
      settings_.seed, wrong_.empty() ? "ok" : "WRONG", seconds(), t.opens, t.writes, t.reads,
      t.truncates, t.syncs, t.commits, t.commits_failed, t.redundant, t.redundant_failed, t.aborts,
      t.renames, t.unlinks, t.loads, t.loads_failed, t.errors, evicted_seen_, lost_.lost(),
      on_folders, series_->operations() + directories_->operations(),
      held_ == nullptr ? 0 : held_->operations(), held_ == nullptr ? 0 : held_->changes_here(),
      swarm_.describe(), describe(cluster_.faults()), trace_);
  for (const auto& each : wrong_) fmt::print("  {}\n", each);
  if (!wrong_.empty()) {
    fmt::print("again: engine-sim --seed {} --steps {}{}{}\n", settings_.seed, settings_.steps,
               settings_.faults ? "" : " --no-faults", settings_.deaths ? "" : " --no-deaths");
  }
  std::fflush(stdout);
}

int run(int count, char** arguments) {
  Settings settings;
  settings.directory = fmt::format("/dev/shm/stdchk-engine-sim.{}", ::getpid());
  std::uint64_t runs = 1;
  log::Level level = static_cast<log::Level>(static_cast<int>(log::Level::kError) + 1);
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    const auto number = [&] {
      return std::strtoull(i + 1 < count ? arguments[++i] : "", nullptr, 10);
    };
    if (name == "--seed") {
      settings.seed = number();
    } else if (name == "--runs") {
      runs = number();
    } else if (name == "--steps") {
      settings.steps = number();
    } else if (name == "--no-faults") {
      settings.faults = false;
    } else if (name == "--no-deaths") {
      settings.deaths = false;
    } else if (name == "--verbose") {
      level = log::Level::kInfo;
    } else if (name == "--directory" && i + 1 < count) {
      settings.directory = arguments[++i];
    } else {
      fmt::print(stderr,
                 "engine-sim [--seed N] [--runs N] [--steps N] [--no-faults] [--no-deaths] "
                 "[--verbose] [--directory DIR]\n");
      return 2;
    }
  }
  log::start("engine-sim", level);
  const std::uint64_t first = settings.seed;
  for (; settings.seed < first + runs; ++settings.seed) {
    Simulation simulation(settings);
    const bool right = simulation.run();
    simulation.print();
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
