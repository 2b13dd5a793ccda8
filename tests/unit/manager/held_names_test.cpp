#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/files/drain_manifest.h"
#include "tests/unit/manager/training.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr const char* kRules = "set=directory set-names=step-* marker=.metadata pointer=latest";
constexpr std::uint32_t kMarkerBytes = 50;

/// A DrainModel is the drain directory that a benefactor's requests make: the length of each file,
/// and the target of each symbolic link.
class DrainModel {
 public:
  struct Entry {
    std::uint64_t bytes = 0;
    std::string target;
  };
  using Entries = std::map<std::string, Entry>;

  void take(const msg::Request& request) {
    if (const auto* finish = std::get_if<msg::DrainFinish>(&request)) {
      entries_.erase(temporary(finish->file, finish->number));
      entries_[finish->path] = {finish->size_bytes, {}};
    } else if (const auto* change = std::get_if<msg::MirrorChange>(&request)) {
      take_change(*change);
    }
  }
  const Entries& entries() const { return entries_; }
  std::optional<std::uint64_t> bytes(const std::string& path) const {
    const auto found = entries_.find(path);
    return found == entries_.end() ? std::nullopt : std::optional(found->second.bytes);
  }

 private:
  static std::string temporary(FileId file, std::uint64_t number) {
    return std::string(msg::kTemporaryFolder) + "/" + msg::temporary_name(file, number);
  }
  void take_change(const msg::MirrorChange& change) {
    if (change.path == kPolicyLinkName) return;
    const std::string number = temporary(change.file, change.number);
    const std::string from = change.path.empty() ? number : change.path;
    const std::string to = change.other_path.empty() ? number : change.other_path;
    switch (change.kind) {
      case msg::MirrorKind::kRename:
        return move(from, to);
      case msg::MirrorKind::kSetAside:
        if (entries_.contains(from)) entries_[number] = entries_[from];
        return;
      case msg::MirrorKind::kLink:
        if (entries_.contains(from)) entries_[to] = entries_[from];
        return;
      case msg::MirrorKind::kSymlink:
        entries_[from] = {0, change.other_path};
        return;
      case msg::MirrorKind::kUnlink:
        entries_.erase(from);
        return;
      case msg::MirrorKind::kDropTemporary:
        entries_.erase(number);
        return;
      default:
        return;
    }
  }
  /// Moves a file, or all files of a folder.
  void move(const std::string& from, const std::string& to) {
    Entries moved;
    for (const auto& [path, entry] : entries_) {
      const bool is_in = path == from || path.starts_with(from + "/");
      if (is_in) moved[to + path.substr(from.size())] = entry;
    }
    std::erase_if(entries_, [&](const auto& entry) {
      return entry.first == from || entry.first.starts_with(from + "/");
    });
    for (const auto& [path, entry] : moved) entries_[path] = entry;
  }

  Entries entries_;
};

/// Writes checkpoints with one of the ways in which programs name markers and pointers.
class Renamer {
 public:
  explicit Renamer(Training& training) : training_(training) {}

  /// Names a file that exists under `from` in the folder.
  void rename(FileId parent, const std::string& from, const std::string& to,
              bool exchange = false) {
    REQUIRE(training_.client.call(
        msg::Rename{training_.client.id, parent, from, parent, to, false, exchange}));
  }
  void remove(FileId parent, const std::string& name) {
    REQUIRE(training_.client.call(msg::Remove{training_.client.id, parent, name}));
  }
  bool has(FileId parent, const std::string& name) {
    return training_.client.call(msg::Lookup{training_.client.id, parent, name}).has_value();
  }
  /// `folder` is empty, or ends with a slash.
  void write_then_name(const std::string& folder, const std::string& name, std::uint32_t bytes,
                       unsigned way, const std::function<void()>& pause) {
    const FileId parent = folder.empty()
                              ? kRootFile
                              : training_.trainer.directory(folder.substr(0, folder.size() - 1));
    if (way == 0) {
      training_.trainer.write(folder + name, bytes);
      return;
    }
    const std::string temporary = name + ".new";
    const FileId file = training_.trainer.write(folder + temporary, bytes);
    pause();
    const bool exists = has(parent, name);
    if (way == 1 || (way == 2 && !exists)) {
      rename(parent, temporary, name);
    } else if (way == 2) {
      rename(parent, temporary, name, true);
      pause();
      remove(parent, temporary);
    } else {
      if (exists) remove(parent, name);
      REQUIRE(training_.client.call(msg::MakeLink{training_.client.id, file, parent, name}));
      pause();
      remove(parent, temporary);
    }
  }
  /// Points the symbolic link at the step.
  void link(const std::string& target, bool renames, const std::function<void()>& pause) {
    TestClient& client = training_.client;
    const auto make = [&](const std::string& name) {
      REQUIRE(client.call(msg::MakeSymlink{client.id, kRootFile, name, target}));
    };
    if (renames) {
      make("latest.new");
      pause();
      rename(kRootFile, "latest.new", "latest");
    } else {
      if (has(kRootFile, "latest")) remove(kRootFile, "latest");
      make("latest");
    }
  }

 private:
  Training& training_;
};

std::string step_name(std::uint64_t step) { return "step-" + std::to_string(step); }

/// Requires that each marker of the drain directory, and its pointer, vouch for whole sets.
void check(const DrainModel& drained, const std::vector<std::uint32_t>& shards) {
  const auto is_whole = [&](std::uint64_t step) {
    const std::string directory = step_name(step) + "/";
    for (std::uint32_t shard = 0; shard < shards.at(step); ++shard) {
      if (drained.bytes(directory + std::to_string(shard)) != 1000 + shard) return false;
    }
    return true;
  };
  for (std::uint64_t step = 0; step < shards.size(); ++step) {
    INFO("step " << step);
    if (drained.bytes(step_name(step) + "/.metadata")) REQUIRE(is_whole(step));
  }
  const auto pointer = drained.entries().find("latest");
  if (pointer == drained.entries().end()) return;
  const std::uint64_t step = pointer->second.target.empty()
                                 ? pointer->second.bytes - kPointerBytes
                                 : std::stoull(pointer->second.target.substr(5));
  INFO("the pointer names step " << step);
  REQUIRE(drained.bytes(step_name(step) + "/.metadata") == kMarkerBytes);
  REQUIRE(is_whole(step));
}

void answer_all(TestBenefactor& benefactor) {
  benefactor.hangs.clear();
  for (rpc::Responder& late : benefactor.hung) late(msg::Reply{msg::DrainPieces::Reply{}});
  benefactor.hung.clear();
}

}  // namespace

TEST_CASE(
    "whatever renames a program makes, the drain directory never has a pointer before its set") {
  constexpr std::uint64_t kSteps = 3;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Training training("/pfs");
    auto& [world, benefactor, client, trainer] = training;
    Renamer renamer(training);
    trainer.set_policy(kRules);
    const bool links = prng.below(4) == 0;  // a symbolic link is the pointer
    const auto pause = [&world = world, &prng] {
      world.pass(std::chrono::milliseconds(100 * prng.below(8)));
    };
    std::vector<std::uint32_t> shards;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const bool moves = prng.below(3) == 0;  // the directory gets its name when it is whole
      const std::string directory = moves ? "new-" + std::to_string(step) : step_name(step);
      trainer.make_directory(directory);
      shards.push_back(1 + static_cast<std::uint32_t>(prng.below(4)));
      const bool early = prng.below(4) == 0;
      const auto mark = [&] {
        renamer.write_then_name(directory + "/", ".metadata", kMarkerBytes,
                                static_cast<unsigned>(prng.below(4)), pause);
      };
      const auto point = [&] {
        if (links) return renamer.link(step_name(step), prng.below(2) == 0, pause);
        renamer.write_then_name("", "latest", kPointerBytes + static_cast<std::uint32_t>(step),
                                static_cast<unsigned>(prng.below(4)), pause);
      };
      const std::string temporary = "latest.soon";
      if (early && !links) {
        trainer.write(temporary, kPointerBytes + static_cast<std::uint32_t>(step));
        pause();
      }
      for (std::uint32_t shard = 0; shard < shards.back(); ++shard) {
        const FileId file = trainer.write(directory + "/" + std::to_string(shard), 1000 + shard);
        if (prng.below(3) == 0) benefactor.hangs.insert(file);
        if (prng.below(3) == 0) world.pass(100ms);
      }
      mark();
      if (moves) {
        pause();
        renamer.rename(kRootFile, directory, step_name(step));
        trainer.moved(directory, step_name(step));
      }
      if (early && !links) {
        renamer.rename(kRootFile, temporary, "latest");
      } else {
        point();
      }
      pause();
      if (prng.below(3) == 0) answer_all(benefactor);
      REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
      benefactor.beat();
    }
    answer_all(benefactor);
    training.live(8);
    // The pool may be lost after each request.
    DrainModel drained;
    for (const msg::Request& request : benefactor.served) {
      drained.take(request);
      check(drained, shards);
    }
    CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
    // Finally the drain directory has exactly the files of the pool.
    std::size_t files = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) files += shards[step] + 1;
    CHECK(drained.entries().size() == files + 1);
    const auto pointer = drained.entries().find("latest");
    REQUIRE(pointer != drained.entries().end());
    CHECK((links ? pointer->second.target == step_name(kSteps - 1)
                 : pointer->second.bytes == kPointerBytes + kSteps - 1));
  }
}

namespace {

/// A pool in which the temporary pointer was drained, and a shard of its set is not.
struct Early : Training {
  Early() : Training("/pfs") {
    trainer.set_policy(kRules);
    trainer.make_directory("step-0");
    temporary = trainer.write("latest.new", kPointerBytes);
    live(2);
    shard = trainer.write("step-0/0", 1000);
    benefactor.hangs.insert(shard);
    trainer.write("step-0/.metadata", kMarkerBytes);
    REQUIRE(client.lookup("latest.new")->drain == DrainState::kDrained);
    REQUIRE(client.call(
        msg::Rename{client.id, kRootFile, "latest.new", kRootFile, "latest", false, false}));
    live(2);
  }
  std::vector<std::string> finished() const {
    std::vector<std::string> out;
    for (const auto& finish : benefactor.all<msg::DrainFinish>()) out.push_back(finish.path);
    return out;
  }

  FileId temporary;
  FileId shard;
};

}  // namespace

TEST_CASE(
    "a drained file that becomes a pointer is not safe until its set is, and is not copied again") {
  Early pool;
  CHECK(pool.client.lookup("latest")->drain == DrainState::kPending);
  CHECK(pool.finished() == std::vector<std::string>{"latest.new"});
  const std::size_t pieces = pool.benefactor.all<msg::DrainPieces>().size();
  answer_all(pool.benefactor);
  pool.live(3);
  CHECK(pool.finished().back() == "latest");
  CHECK(pool.client.lookup("latest")->drain == DrainState::kDrained);
  // Since then only the marker was copied.
  CHECK(pool.benefactor.all<msg::DrainPieces>().size() <= pieces + 1);
  CHECK(pool.world.service->state().file(pool.temporary)->newest.aside == 0);
}

TEST_CASE("a snapshot has what waits for its name in the drain directory") {
  Early pool;
  REQUIRE(pool.client.call(msg::MakeSymlink{pool.client.id, kRootFile, "latest.link", "step-0/0"}));
  pool.trainer.set_policy("pointer=latest|latest.link|latest.name");
  REQUIRE(pool.client.call(msg::Rename{pool.client.id, kRootFile, "latest.link", kRootFile,
                                       "latest.name", false, false}));
  const State& state = pool.world.service->state();
  REQUIRE(state.mirror().held().size() == 1);
  std::vector<Command> expected;
  State copy;
  state.snapshot([&](const Command& command) {
    expected.push_back(command);
    REQUIRE(copy.apply(command));
  });
  std::vector<Command> again;
  copy.snapshot([&](Command command) { again.push_back(std::move(command)); });
  CHECK(again == expected);
  CHECK(copy.mirror().held() == state.mirror().held());
  CHECK(copy.file(pool.temporary)->newest.staged);
}

TEST_CASE("a restarted manager names a pointer that waited for its set") {
  World world("/pfs");
  world.start();
  std::uint64_t staged = 0;
  {
    TestBenefactor benefactor(world, "b1", 1, kTrainingArena);
    TestClient client(world, "client");
    Trainer trainer(client);
    trainer.set_policy(kRules);
    trainer.make_directory("step-0");
    const FileId pointer = trainer.write("latest.new", kPointerBytes);
    world.pass(1s);
    benefactor.hangs.insert(trainer.write("step-0/0", 1000));
    trainer.write("step-0/.metadata", kMarkerBytes);
    REQUIRE(client.call(
        msg::Rename{client.id, kRootFile, "latest.new", kRootFile, "latest", false, false}));
    world.pass(1s);
    staged = world.service->state().file(pointer)->newest.aside;
    REQUIRE(staged > 0);
  }
  world.restart();
  TestBenefactor benefactor(world, "b1", 1, kTrainingArena);
  TestClient client(world, "again");
  for (int second = 0; second < 5; ++second) {
    world.pass(1s);
    benefactor.beat();
  }
  const auto finished = benefactor.all<msg::DrainFinish>();
  REQUIRE(finished.size() == 3);
  CHECK(finished.back().path == "latest");
  CHECK(finished.back().number == staged);
  for (const auto& change : benefactor.all<msg::MirrorChange>()) {
    if (change.kind != msg::MirrorKind::kDropTemporary) continue;
    // Temporary files of earlier managers go, and the pointer stays.
    CHECK((change.number & ((std::uint64_t{1} << 40) - 1)) <= staged);
  }
}

TEST_CASE("a pointer that cannot be found under its number is drained from memory") {
  Early pool;
  const auto waits = [&] {
    const auto finishes = pool.benefactor.all<msg::DrainFinish>();
    return static_cast<std::size_t>(
        std::ranges::count(finishes, std::string("latest"), &msg::DrainFinish::path));
  };
  pool.benefactor.fail_with = Code::kDrainFailed;
  pool.benefactor.fail_errno = ENOENT;
  pool.benefactor.hangs.clear();
  for (rpc::Responder& late : pool.benefactor.hung) late(msg::Reply{msg::DrainPieces::Reply{}});
  pool.benefactor.hung.clear();
  pool.live(2);
  pool.benefactor.fail_with = Code{};
  pool.live(10);
  // Let the first request for its name fail.
  CHECK(waits() >= 1);
  CHECK(pool.client.lookup("latest")->drain == DrainState::kDrained);
}

TEST_CASE("a marker that is removed, or renamed again, while it waits leaves nothing behind") {
  Early pool;
  auto& [world, benefactor, client, trainer] = static_cast<Training&>(pool);
  const bool removes = GENERATE(true, false);
  if (removes) {
    REQUIRE(client.call(msg::Remove{client.id, kRootFile, "latest"}));
  } else {
    REQUIRE(
        client.call(msg::Rename{client.id, kRootFile, "latest", kRootFile, "kept", false, false}));
  }
  answer_all(benefactor);
  pool.live(5);
  DrainModel drained;
  for (const msg::Request& request : benefactor.served) drained.take(request);
  CHECK_FALSE(drained.bytes("latest"));
  CHECK(drained.bytes("kept").has_value() == !removes);
  CHECK(drained.entries().size() == (removes ? 2 : 3));
  CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
}

TEST_CASE("a pointer that is a symbolic link waits for the set that it leads to") {
  Training training("/pfs");
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy(kRules);
  trainer.make_directory("step-0");
  const FileId shard = trainer.write("step-0/0", 1000);
  benefactor.hangs.insert(shard);
  trainer.write("step-0/.metadata", kMarkerBytes);
  REQUIRE(client.call(msg::MakeSymlink{client.id, kRootFile, "latest", "step-0"}));
  training.live(3);
  const auto links = [&benefactor = benefactor] {
    std::size_t count = 0;
    for (const auto& change : benefactor.all<msg::MirrorChange>()) {
      count += change.kind == msg::MirrorKind::kSymlink && change.path == "latest" ? 1 : 0;
    }
    return count;
  };
  CHECK(links() == 0);
  answer_all(benefactor);
  training.live(3);
  CHECK(links() == 1);
  CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
}
