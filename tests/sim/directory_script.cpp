#include "tests/sim/directory_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"
#include "manager/service/service.h"
#include "tests/sim/engine_scripts.h"
#include "tests/sim/plain_operations.h"

namespace stdchk::sim {

namespace {

constexpr const char* kFolder = "directories";
constexpr const char* kMarker = "marker";
constexpr const char* kPointer = "newest";
constexpr std::uint64_t kPointerBytes = 100;  ///< of the pointer to checkpoint 0
constexpr std::uint64_t kMarkerBytes = 50;
constexpr std::size_t kShardsMax = 4;
/// A pointer may keep two directories besides those of `keep`: the newest begun and the newest
/// whole directory before it.
constexpr std::uint64_t kNamedMax = 2;
constexpr std::pair<const char*, const char*> kRules[] = {
    {"set-names", "step-*"}, {"marker", kMarker}, {"pointer", kPointer}, {"set", "directory"}};

std::string directory_name(std::uint64_t number) { return fmt::format("step-{}", number); }

std::uint64_t number_of(const std::string& name) {
  std::uint64_t number = ~std::uint64_t{0};
  if (name.starts_with("step-")) {
    std::from_chars(name.data() + 5, name.data() + name.size(), number);
  }
  return number;
}

}  // namespace

DirectoryScript::DirectoryScript(Cluster& cluster, std::uint64_t seed, std::uint64_t keep,
                                 Complain complain, Note note)
    : SetScript(cluster, kFolder, seed, std::move(complain), std::move(note)), keep_(keep) {}

void DirectoryScript::start_one(PlainClient& client) {
  if (!idle() || settled_ > cluster_.now() || prng_.chance(1, 3)) return;
  run(client);
  if (!folder_) return make_folder();
  if (rules_set_ < std::size(kRules)) return set_rule();
  if (!has_policy_) return set_policy();
  return prng_.chance(1, 10) ? list() : write();
}

/// Sets the next rule. Setting a rule again changes nothing, so a lost answer does no harm.
void DirectoryScript::set_rule() {
  const auto& [name, value] = kRules[rules_set_];
  set_attribute(std::string(kXattrRule) + name, value, [this](bool is_set) {
    rules_set_ += is_set ? 1 : 0;
    end(5);
  });
}

void DirectoryScript::set_policy() {
  msg::SetPolicy request;
  request.client = client_->id();
  request.directory = folder_;
  request.changes.settings = {{PolicyKey::kKeep, keep_}};
  client_->ask(request, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
                 has_policy_ = answer.has_value();
                 end(6);
               }));
}

void DirectoryScript::begin() {
  Checkpoint& next = checkpoints_.emplace_back();
  next.lengths.resize(1 + prng_.below(kShardsMax));
  for (std::uint64_t& length : next.lengths) length = 1 + prng_.below(20'000);
}

/// Leaves the checkpoint unfinished. Waits until no request for it can be in flight: a marker that
/// came late would be newer than the next checkpoint.
void DirectoryScript::give_up() {
  settled_ = cluster_.now() + kSettle;
  begin();
}

void DirectoryScript::write() {
  if (checkpoints_.empty()) begin();
  const std::uint64_t number = checkpoints_.size() - 1;
  const Checkpoint& now = checkpoints_.back();
  switch (now.step) {
    case Step::kDirectory:
      return make_directory();
    case Step::kShards:
      return store(fmt::format("shard{}", now.stored), now.directory, now.lengths[now.stored]);
    case Step::kMarker:
      return store(kMarker, now.directory, kMarkerBytes);
    case Step::kPointer:
      return store(kPointer, folder_, kPointerBytes + number);
  }
}

void DirectoryScript::make_directory() {
  msg::MakeDirectory request;
  request.client = client_->id();
  request.parent = folder_;
  request.name = directory_name(checkpoints_.size() - 1);
  request.mode = 0755;
  if_lost_ = [this] { give_up(); };
  client_->ask(request, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
                 if (!answer.has_value()) {
                   give_up();
                   return end(7);
                 }
                 checkpoints_.back().directory =
                     std::get<msg::MakeDirectory::Reply>(*answer).attributes.id;
                 checkpoints_.back().step = Step::kShards;
                 end(8);
               }));
}

void DirectoryScript::store(const std::string& name, FileId parent, std::uint64_t length) {
  std::vector<Part> parts(1);
  parts[0].bytes.resize(length);
  for (std::byte& each : parts[0].bytes) each = static_cast<std::byte>(prng_.next() >> 56);
  if_lost_ = [this] { stored({fail(Code::kCancelled, "sim"), true}); };
  // Some programs write markers and pointers under another name, and rename them.
  const bool renames = checkpoints_.back().step >= Step::kMarker && prng_.chance(1, 2);
  const std::string written = renames ? name + ".new" : name;
  client_->store(
      written, std::move(parts), true,
      while_running<Ending>([this, renames, written, name, parent](const Ending& ending) {
        const bool is_stored = ending.status.has_value();
        if (renames && is_stored) return rename(written, name, parent);
        stored({ending.status, ending.maybe && !renames});
        end(is_stored ? 9 : 10);
      }),
      parent);
}

void DirectoryScript::rename(const std::string& from, const std::string& to, FileId parent) {
  const msg::Rename request{client_->id(), parent, from, parent, to, false, false};
  client_->ask(request, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
                 const bool done = answer.has_value();
                 stored(done ? Ending{} : Ending{fail(answer.error().error), true});
                 end(done ? 15 : 16);
               }));
}

void DirectoryScript::stored(const Ending& ending) {
  Checkpoint& now = checkpoints_.back();
  const bool done = ending.status.has_value();
  if (now.step == Step::kMarker) {
    now.has_marker = done;
    now.may_have_marker = done || ending.maybe;
  }
  if (!done || now.step == Step::kPointer) return done ? begin() : give_up();
  if (now.step == Step::kShards && ++now.stored < now.lengths.size()) return;
  // Some programs have no pointer, or write the next checkpoint first.
  const bool is_unnamed = now.step == Step::kMarker && prng_.chance(1, 4);
  if (is_unnamed) return begin();
  now.step = now.step == Step::kShards ? Step::kMarker : Step::kPointer;
}

void DirectoryScript::list() {
  client_->ask(msg::ListSets{folder_},
               while_running<rpc::Answer>([this](const rpc::Answer& answer) {
                 if (!answer.has_value()) return end(11);
                 for (const auto& set : std::get<msg::ListSets::Reply>(*answer).sets) {
                   const std::uint64_t number = number_of(set.application);
                   const bool is_known = number < checkpoints_.size();
                   if (is_known && (!set.complete || checkpoints_[number].may_have_marker))
                     continue;
                   complain_(fmt::format("directories: {} is listed as complete", set.application));
                 }
                 end(12);
               }));
}

std::uint64_t DirectoryScript::length_of(const manager::File& directory,
                                         const std::string& name) const {
  const auto found = directory.as_directory.children.find(name);
  if (found == directory.as_directory.children.end()) return 0;
  return cluster_.manager()->state().file(found->second)->newest.size_bytes;
}

/// Says why the directory is not whole in the pool; empty: it is whole.
std::string DirectoryScript::fault_of(std::uint64_t number) const {
  if (number >= checkpoints_.size()) return "was never written";
  const auto found = folder()->as_directory.children.find(directory_name(number));
  if (found == folder()->as_directory.children.end()) return "is gone";
  const manager::File& directory = *cluster_.manager()->state().file(found->second);
  if (length_of(directory, kMarker) != kMarkerBytes) return "has no marker";
  const std::vector<std::uint64_t>& lengths = checkpoints_[number].lengths;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::string name = fmt::format("shard{}", i);
    if (length_of(directory, name) != lengths[i]) return "lacks " + name;
  }
  return {};
}

void DirectoryScript::check() const {
  if (folder() == nullptr) return;
  const auto link = cluster_.manager()->state().lookup(folder_, kLatestName, ClientId{});
  if (link) {
    const std::string fault = fault_of(number_of((*link)->target));
    if (!fault.empty())
      complain_(fmt::format("directories: latest: {} {}", (*link)->target, fault));
  }
  const std::uint64_t pointer = length_of(*folder(), kPointer);
  if (pointer == 0 || !has_policy_) return;
  const std::uint64_t number = pointer - kPointerBytes;
  const std::string fault = fault_of(number);
  if (!fault.empty()) {
    complain_(
        fmt::format("directories: the pointer names {}, which {}", directory_name(number), fault));
  }
}

DirectoryScript::DrainedLength DirectoryScript::lengths_in(std::string drain_directory) {
  return [there = std::filesystem::path(std::move(drain_directory))](
             const std::string& path) -> std::optional<std::uint64_t> {
    std::error_code absent;
    const auto bytes = std::filesystem::file_size(there / path, absent);
    return absent ? std::nullopt : std::optional<std::uint64_t>(bytes);
  };
}

void DirectoryScript::check_drained(const DrainedLength& length_of_drained) const {
  const std::uint64_t pointer =
      length_of_drained(fmt::format("{}/{}", kFolder, kPointer)).value_or(0);
  for (std::uint64_t number = 0; number < checkpoints_.size(); ++number) {
    const std::string directory = fmt::format("{}/{}", kFolder, directory_name(number));
    const bool has_marker = length_of_drained(fmt::format("{}/{}", directory, kMarker)).has_value();
    if (!has_marker && pointer == kPointerBytes + number) {
      complain_(fmt::format("directories: the drained pointer names {}, which has no marker",
                            directory_name(number)));
    }
    const std::vector<std::uint64_t>& lengths = checkpoints_[number].lengths;
    for (std::size_t i = 0; has_marker && i < lengths.size(); ++i) {
      if (length_of_drained(fmt::format("{}/shard{}", directory, i)) == lengths[i]) continue;
      complain_(fmt::format("directories: {} was drained with its marker, and without shard {}",
                            directory_name(number), i));
    }
  }
}

void DirectoryScript::check_settled() const {
  if (!has_policy_ || folder() == nullptr) return;
  // Under commit=redundant, a directory that has lost bytes never becomes complete.
  const Policy policy = cluster_.manager()->pool().policy(*folder());
  if (policy.commit() == CommitLevel::kRedundant) return;
  std::uint64_t newest = checkpoints_.size();
  for (std::uint64_t number = 0; number < checkpoints_.size(); ++number) {
    if (checkpoints_[number].has_marker) newest = number;
  }
  if (newest == checkpoints_.size()) return;
  const auto link = cluster_.manager()->state().lookup(folder_, kLatestName, ClientId{});
  const std::string latest = link ? (*link)->target : "nothing";
  const std::uint64_t named = number_of(latest);
  const bool may_be_newer =
      named > newest && named < checkpoints_.size() && checkpoints_[named].may_have_marker;
  if (named != newest && !may_be_newer) {
    complain_(fmt::format("directories: {} is the newest, and the link names {}",
                          directory_name(newest), latest));
  }
  std::uint64_t whole = 0;
  for (std::uint64_t number = 0; number < checkpoints_.size(); ++number) {
    whole += fault_of(number).empty() ? 1 : 0;
  }
  if (whole > keep_ + kNamedMax) {
    complain_(fmt::format("directories: {} complete ones are kept", whole));
  }
}

}  // namespace stdchk::sim
