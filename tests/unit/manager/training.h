#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/policy/folder_settings.h"
#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"
#include "tests/unit/manager/world.h"

namespace stdchk::manager::test {

using namespace std::chrono_literals;

inline constexpr std::uint64_t kTrainingArena = 64 * limits::kMiB;
/// Length of the pointer to set 0; one more for each later set.
inline constexpr std::uint32_t kPointerBytes = 100;

/// Checkpoints as PyTorch writes them: a directory of shards for each step, with `.metadata` last,
/// and the pointer `latest` beside them.
class Trainer {
 public:
  explicit Trainer(TestClient& client) : client_(client) {}

  void set_policy(const std::string& text) {
    const auto settings = parse_folder_settings(text);
    REQUIRE(settings);
    for (const auto& [key, value] : settings->rules) {
      const std::string name = std::string(kXattrRule) + key;
      REQUIRE(client_.call(msg::SetXattr{client_.id, kRootFile, name, value}));
    }
    if (settings->policy.settings.empty()) return;
    REQUIRE(client_.call(msg::SetPolicy{client_.id, kRootFile, settings->policy}));
  }
  FileId make_directory(const std::string& name) {
    const auto made = client_.call(msg::MakeDirectory{client_.id, kRootFile, name, 0755});
    REQUIRE(made);
    return directories_[name] = made->attributes.id;
  }
  /// Writes a file anew. A `path` with a slash names a file of a directory made before.
  FileId write(const std::string& path, std::uint32_t length = 1000) {
    const std::size_t slash = path.find('/');
    msg::OpenSession open;
    open.client = client_.id;
    open.parent = slash == std::string::npos ? kRootFile : directories_.at(path.substr(0, slash));
    open.name = slash == std::string::npos ? path : path.substr(slash + 1);
    open.mode = 0644;
    open.want_bytes = 4096;
    const auto there = client_.call(msg::Lookup{client_.id, open.parent, open.name});
    if (there) {
      open.file = there->attributes.id;
      open.parent = {};
      open.truncate = true;
    }
    const auto opened = client_.call(open);
    REQUIRE(opened);
    auto commit = TestClient::commit_of(opened->session, opened->grants.at(0), 0, length, ++chunk_);
    commit.set_size = true;
    commit.size_bytes = length;
    commit.end = true;
    REQUIRE(client_.call(commit));
    return opened->attributes.id;
  }
  msg::ListSets::Entry set(const std::string& name) {
    const auto sets = client_.call(msg::ListSets{kRootFile});
    REQUIRE(sets);
    const auto found = std::ranges::find_if(sets->sets, [&](const auto& one) {
      return (one.timestep == kNamedTimestep ? one.application
                                             : set_name(one.application, one.timestep)) == name;
    });
    REQUIRE(found != sets->sets.end());
    return *found;
  }
  std::string latest() {
    const auto link = client_.lookup(kLatestName);
    if (!link) return "";
    const auto target = client_.call(msg::ReadSymlink{link->id});
    return target ? target->target : "a file";
  }

  FileId directory(const std::string& name) const { return directories_.at(name); }
  /// A directory has another name now.
  void moved(const std::string& from, const std::string& to) {
    directories_[to] = directories_.at(from);
    directories_.erase(from);
  }

 private:
  TestClient& client_;
  std::map<std::string, FileId> directories_;
  std::uint64_t chunk_ = 0;
};

/// A started World with one benefactor, and a client that writes checkpoints.
struct Training {
  explicit Training(const std::string& drain_directory = {})
      : world(drain_directory),
        benefactor(started(world), "b1", 1, kTrainingArena),
        client(world, "client") {}
  static World& started(World& world) {
    world.start();
    return world;
  }
  void live(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      benefactor.beat();
      REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
      world.pass(1s);
    }
  }

  World world;
  TestBenefactor benefactor;
  TestClient client;
  Trainer trainer{client};
};

}  // namespace stdchk::manager::test
