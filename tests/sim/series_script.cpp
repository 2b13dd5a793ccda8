#include "tests/sim/series_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"
#include "manager/replication/copy_planner.h"
#include "manager/service/service.h"
#include "tests/sim/engine_scripts.h"
#include "tests/sim/plain_operations.h"

namespace stdchk::sim {

namespace {

constexpr const char* kFolder = "series";
constexpr const char* kApplication = "job";
constexpr std::string_view kPattern = "{A}.{T}.{N|base}";
constexpr std::ptrdiff_t kPinnedMax = 3;
constexpr std::uint64_t kRounds = 64;  // number of rounds that an image's length tells apart

}  // namespace

SeriesScript::SeriesScript(Cluster& cluster, std::uint64_t seed, SeriesOptions options,
                           Complain complain, Note note)
    : SetScript(cluster, kFolder, seed, std::move(complain), std::move(note)),
      options_(options),
      naming_(options.by_pattern ? SetNaming(kPattern) : SetNaming()) {}

std::string SeriesScript::name(std::uint64_t timestep, std::uint64_t image) const {
  if (!options_.by_pattern) return fmt::format("{}.N{}.T{}", kApplication, image, timestep);
  const std::string rank = image + 1 == kImages ? "base" : std::to_string(image);
  return fmt::format("{}.{:04}.{}", kApplication, timestep, rank);
}

std::optional<std::uint64_t> SeriesScript::timestep_of(std::string set) const {
  const std::size_t star = set.find('*');
  if (star == std::string::npos) return std::nullopt;
  const auto image = naming_.parse(set.replace(star, 1, options_.by_pattern ? "0" : "N0"));
  return image ? std::optional(image->timestep) : std::nullopt;
}

void SeriesScript::start_one(PlainClient& client) {
  if (!idle() || settled_ > cluster_.now()) return;
  run(client);
  if (!folder_) return make_folder();
  if (options_.by_pattern && !has_rule_) return set_rule();
  if (!has_policy_) return set_policy();
  if (images_ == kImages ? prng_.chance(1, 20) : prng_.chance(1, 4)) return ask_for_images();
  switch (prng_.below(10)) {
    case 0:
    case 1:
    case 2:
      return load();
    case 3:
      return pin();
    case 4:
      return list();
    default:
      return write();
  }
}

/// Sets the rule before the first image: a later change begins all sets anew.
void SeriesScript::set_rule() {
  set_attribute(std::string(kXattrRule) + "series", std::string(kPattern), [this](bool is_set) {
    has_rule_ = is_set;
    end(18);
  });
}

void SeriesScript::set_policy() {
  msg::SetPolicy request;
  request.client = client_->id();
  request.directory = folder_;
  request.changes.settings = {{PolicyKey::kImages, ranks_of(kImages)},
                              {PolicyKey::kKeep, options_.keep},
                              {PolicyKey::kPurgeAfter, options_.purge_after_s},
                              {PolicyKey::kMustBeDrained, options_.must_be_drained ? 1U : 0U},
                              {PolicyKey::kDrainEvery, options_.drain_every}};
  client_->ask(request, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
                 has_policy_ = answer.has_value();
                 if (!has_policy_ && !ending_of(answer).maybe) {
                   complain_("sets: the policy is refused: " + describe(answer.error().error));
                 }
                 end(5);
               }));
}

/// Changes how many images the folder asks for: too many, unlimited, or the right number.
void SeriesScript::ask_for_images() {
  const std::uint64_t other = prng_.chance(1, 2) ? kImages + 2 : 0;
  const std::uint64_t images = images_ == kImages ? other : kImages;
  msg::SetPolicy request;
  request.client = client_->id();
  request.directory = folder_;
  request.changes.settings = {{PolicyKey::kImages, ranks_of(images)}};
  if_lost_ = [this] {
    images_.reset();
    settled_ = cluster_.now() + kSettle;
  };
  client_->ask(request, while_running<rpc::Answer>([this, images](const rpc::Answer& answer) {
                 if (answer.has_value()) {
                   asked_for_images(images);
                 } else if (ending_of(answer).maybe) {
                   if_lost_();
                 }
                 end(17);
               }));
}

void SeriesScript::asked_for_images(std::uint64_t images) {
  images_ = images;
  if (images != kImages) return;
  for (Timestep& timestep : timesteps_) {
    if (!timestep.written() || timestep.counted) continue;
    timestep.counted = true;
    timestep.late |= is_old(timestep);
  }
}

/// The timestep's most recently written image. A failed round restarts with it. The manager then
/// recognises a new run, even if a restart made it forget the failure.
std::size_t SeriesScript::newest_image(std::size_t index) {
  std::size_t newest = prng_.below(kImages);
  std::uint64_t written = 0;
  for (std::size_t image = 0; image < kImages; ++image) {
    const auto found = cluster_.manager()->state().lookup(folder_, name(index + 1, image), {});
    if (!found || (*found)->newest.content() <= written) continue;
    written = (*found)->newest.content();
    newest = image;
  }
  return newest;
}

/// Begins to write all images of the timestep once more.
void SeriesScript::begin_round(std::size_t index) {
  Timestep& timestep = timesteps_[index];
  const bool may_be_gone_now = may_be_gone(index + 1);
  timestep.first = timestep.failed ? newest_image(index) : prng_.below(kImages);
  timestep.round = ++rounds_ % kRounds;
  timestep.failed = timestep.late = timestep.counted = false;
  timestep.begun = cluster_.now();
  for (Image& image : timestep.images) {
    if (may_be_gone_now) image.is_there = false;
    if (image.stored == Stored::kYes) image.earlier.clear();
    if (image.stored != Stored::kNot) image.earlier.push_back(std::move(image.bytes));
    image.stored = Stored::kNot;
    image.empty_first = prng_.chance(1, 4);
    image.bytes.resize(kRounds * (1 + prng_.below(300)) + timestep.round);
    for (std::byte& each : image.bytes) each = static_cast<std::byte>(prng_.next() >> 56);
  }
}

void SeriesScript::write() {
  if (cluster_.manager() == nullptr) return end(16);
  if (timesteps_.empty()) {
    timesteps_.emplace_back();
    begin_round(current_);
  } else if (timesteps_[current_].written()) {
    // A restarted job continues there, and overwrites its later timesteps.
    if (prng_.chance(1, 5)) {
      current_ -= std::min<std::size_t>(current_, prng_.below(2));
    } else if (++current_ == timesteps_.size()) {
      timesteps_.emplace_back();
    }
    begin_round(current_);
  } else if (timesteps_[current_].failed) {
    begin_round(current_);
  }
  Timestep& timestep = timesteps_[current_];
  std::size_t image = timestep.first;
  while (timestep.images[image].stored == Stored::kYes) image = (image + 1) % kImages;
  const bool empty = timestep.images[image].empty_first;
  const std::size_t index = current_;
  if_lost_ = [this, index, image, empty] {
    settle(index, image, empty, {fail(Code::kCancelled, "sim"), true});
  };
  std::vector<Part> parts;
  if (!empty) parts.push_back({0, timestep.images[image].bytes});
  client_->store(name(index + 1, image), std::move(parts), true,
                 while_running<Ending>([this, index, image, empty](const Ending& ending) {
                   settle(index, image, empty, ending);
                   end(ending.status.has_value() ? 6 : 7);
                 }),
                 folder_);
}

/// Records how a store ended. A failed store ends the round; the script pauses until no request of
/// it can be in flight.
void SeriesScript::settle(std::size_t index, std::size_t image, bool empty, const Ending& ending) {
  Timestep& timestep = timesteps_[index];
  Image& written = timestep.images[image];
  const bool done = ending.status.has_value();
  timestep.late |= is_old(timestep);
  if (!done) {
    timestep.failed = true;
    settled_ = cluster_.now() + kSettle;
  }
  if (!done && !ending.maybe) return;
  timestep.changed = operations_;
  timestep.overtaken.clear();
  written.is_there |= done;
  if (empty) {
    if (done) written.earlier.clear();
    written.earlier.emplace_back();
    written.empty_first = false;
  } else {
    written.stored = done ? Stored::kYes : Stored::kMaybe;
  }
  timestep.counted |= timestep.written() && images_ == kImages;
  if (!timestep.may_be_complete()) return;
  for (Timestep& other : timesteps_) {
    if (other.changed < timestep.changed) other.overtaken.insert(index);
  }
}

void SeriesScript::load() {
  if (timesteps_.empty()) return end(8);
  // Mostly reads the last timesteps, because older ones are gone.
  const std::uint64_t back = prng_.below(std::min<std::size_t>(timesteps_.size(), 4));
  const std::uint64_t timestep = timesteps_.size() - back;
  const std::uint64_t image = prng_.below(kImages);
  client_->load(name(timestep, image),
                while_running<Result<std::vector<std::byte>>>(
                    [this, timestep, image](const Result<std::vector<std::byte>>& got) {
                      seen(timestep, image, got);
                      end(9);
                    }),
                folder_);
}

void SeriesScript::seen(std::uint64_t timestep, std::uint64_t image,
                        const Result<std::vector<std::byte>>& got) {
  const Image& written = timesteps_[timestep - 1].images[image];
  if (got.has_value()) {
    const bool is_new = written.stored != Stored::kNot && *got == written.bytes;
    const bool is_earlier =
        written.stored != Stored::kYes && std::ranges::count(written.earlier, *got) > 0;
    if (!is_new && !is_earlier) {
      complain_("sets: " + name(timestep, image) + " shows what it should not");
    }
    return;
  }
  const bool missed =
      got.error().code == Code::kNotFound && written.is_there && !may_be_gone(timestep);
  if (missed) complain_("sets: " + name(timestep, image) + " is gone against the policy");
}

bool SeriesScript::is_old(const Timestep& timestep) const {
  return options_.purge_after_s > 0 &&
         cluster_.now() - timestep.begun >= std::chrono::seconds(options_.purge_after_s);
}

/// Whether newer sets allow the removal: `keep` complete sets, or one where sets expire by age.
bool SeriesScript::may_be_gone(std::uint64_t timestep) const {
  const Timestep& written = timesteps_[timestep - 1];
  if (written.pinned) return false;
  if (written.late || (!written.counted && is_old(written))) return true;
  const std::size_t newer = written.overtaken.size();
  return (options_.keep > 0 && newer >= options_.keep) || (options_.purge_after_s > 0 && newer > 0);
}

/// Pins the newest set, unless it may be removed: an incomplete set expires by age.
void SeriesScript::pin() {
  const auto pinned = std::ranges::count_if(timesteps_, &Timestep::pinned);
  const bool is_newest = !timesteps_.empty() && timesteps_[current_].complete();
  if (!is_newest || timesteps_[current_].pinned || pinned == kPinnedMax) return end(10);
  const std::size_t index = current_;
  set_attribute(std::string(manager::kXattrPin) + set_of(index + 1), "1",
                [this, index](bool is_set) {
                  timesteps_[index].pinned = is_set && !may_be_gone(index + 1);
                  end(11);
                });
}

void SeriesScript::list() {
  client_->ask(
      msg::ListSets{folder_}, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
        if (!answer.has_value()) return end(12);
        for (const auto& set : std::get<msg::ListSets::Reply>(*answer).sets) {
          const std::uint64_t timestep =
              options_.by_pattern ? timestep_of(set.application).value_or(0) : set.timestep;
          const bool known = timestep > 0 && timestep <= timesteps_.size();
          if (known && set.images <= ranks_of(kImages) && set.drained <= set.images) continue;
          complain_(fmt::format("sets: {} images of timestep {} are listed", set.images, timestep));
        }
        end(13);
      }));
}

void SeriesScript::check_latest() const {
  if (folder() == nullptr) return;
  const manager::State& state = cluster_.manager()->state();
  const auto link = state.lookup(folder_, kLatestName, ClientId{});
  const auto named = link ? timestep_of((*link)->target) : std::nullopt;
  if (!named) return;
  std::vector<std::uint64_t> sizes;
  for (const auto& [name, id] : folder()->as_directory.children) {
    const auto image = naming_.parse(name);
    if (!image || image->timestep != *named) continue;
    sizes.push_back(state.file(id)->newest.size_bytes);
  }
  check_named("the link", *named, sizes);
}

void SeriesScript::check_drained_latest(const std::string& drain_directory) const {
  namespace files = std::filesystem;
  const files::path there = files::path(drain_directory) / kFolder;
  std::error_code absent;
  const auto named = timestep_of(files::read_symlink(there / kLatestName, absent).string());
  if (!named) return;
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t image = 0; image < kImages; ++image) {
    const auto size_bytes = files::file_size(there / name(*named, image), absent);
    if (!absent) sizes.push_back(size_bytes);
  }
  check_named("the link in the drain directory", *named, sizes);
}

void SeriesScript::check_named(const std::string& link, std::uint64_t timestep,
                               const std::vector<std::uint64_t>& sizes) const {
  std::set<std::uint64_t> rounds;
  std::size_t images = 0;
  for (const std::uint64_t size_bytes : sizes) {
    rounds.insert(size_bytes % kRounds);
    images += size_bytes > 0 ? 1 : 0;
  }
  if (images == kImages && rounds.size() == 1) return;
  complain_(fmt::format("sets: {} names timestep {}, which has {} images of {} rounds", link,
                        timestep, images, rounds.size()));
}

/// Whether the set has lost bytes in a folder where only sets with all copies count. The loss may
/// have happened before the set had its copies.
bool SeriesScript::may_never_count(const manager::ImageSet& set) const {
  manager::Service& service = *cluster_.manager();
  if (service.pool().policy(*folder()).commit() != CommitLevel::kRedundant) return false;
  return std::ranges::any_of(set.members, [&](FileId id) {
    const manager::File& image = *service.state().file(id);
    return service.planners().copies.has_lost(image.newest);
  });
}

bool SeriesScript::must_count(const manager::ImageSet& set) const {
  const bool counted = images_ == kImages || timesteps_[set.timestep - 1].counted;
  return counted && !may_never_count(set);
}

void SeriesScript::check_settled() const {
  if (!has_policy_ || timesteps_.empty()) return;
  const manager::State& state = cluster_.manager()->state();
  std::uint64_t complete = 0;
  std::uint64_t newest = 0;
  std::set<std::string> linked{""};  // targets that the link may have
  for (const manager::ImageSet& set : manager::sets_of(state, *folder())) {
    if (set.images + set.others < kImages || set.stale > 0) continue;
    newest = set.timestep;
    if (must_count(set)) {
      complete += set.pinned || set.in_use ? 0 : 1;  // sets in use by the drain are kept besides
      linked.clear();
    }
    linked.insert(set_of(set.timestep));
  }
  // A rewritten set may have made other sets obsolete when it became whole.
  std::uint64_t wanted = 0;
  const auto changed = [this](std::uint64_t timestep) {
    return timestep > 0 ? timesteps_[timestep - 1].changed : 0;
  };
  for (std::uint64_t each = 1; each <= timesteps_.size(); ++each) {
    if (!timesteps_[each - 1].complete() || may_be_gone(each)) continue;
    if (changed(each) > changed(wanted)) wanted = each;
  }
  if (changed(newest) < changed(wanted)) {
    complain_(fmt::format("sets: timestep {} is not there, and {} is the newest", wanted, newest));
  }
  if (options_.must_be_drained || newest == 0) return;
  if (options_.keep > 0 && images_ > 0U && complete > options_.keep) {
    complain_(fmt::format("sets: {} complete ones are kept", complete));
  }
  const auto link = state.lookup(folder_, kLatestName, ClientId{});
  const std::string latest = link.has_value() ? (*link)->target : std::string();
  if (!linked.contains(latest)) {
    complain_(fmt::format("sets: {} is the newest, and the link says {}", newest, latest));
  }
}

}  // namespace stdchk::sim
