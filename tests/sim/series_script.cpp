#include "tests/sim/series_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "core/image_name.h"
#include "manager/sets.h"
#include "tests/sim/engine_scripts.h"
#include "tests/sim/plain_operations.h"

namespace stdchk::sim {

namespace {

constexpr const char* kFolder = "series";
constexpr const char* kApplication = "job";
constexpr std::ptrdiff_t kPinnedMax = 3;

}  // namespace

SeriesScript::SeriesScript(Cluster& cluster, std::uint64_t seed, SeriesOptions options,
                           Complain complain, Note note)
    : cluster_(cluster),
      prng_(seed),
      options_(options),
      complain_(std::move(complain)),
      note_(std::move(note)) {}

std::string SeriesScript::name(std::uint64_t timestep, std::uint64_t image) {
  return fmt::format("{}.N{}.T{}", kApplication, image, timestep);
}

template <class Argument>
std::function<void(Argument)> SeriesScript::while_running(std::function<void(Argument)> done) {
  return [this, number = operations_, done = std::move(done)](Argument argument) {
    if (!idle() && number == operations_) done(std::move(argument));
  };
}

void SeriesScript::end(std::uint64_t outcome) {
  client_ = nullptr;
  if_lost_ = nullptr;
  note_(outcome * 131 + timesteps_.size());
}

void SeriesScript::client_died(const PlainClient& client) {
  if (client_ != &client) return;
  if (if_lost_) if_lost_();
  end(1);
}

void SeriesScript::start_one(PlainClient& client) {
  if (!idle() || settled_ > cluster_.now()) return;
  ++operations_;
  client_ = &client;
  if (!folder_) return make_folder();
  if (!has_policy_) return set_policy();
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

void SeriesScript::make_folder() {
  const msg::Lookup look_up{client_->id(), kRootFile, kFolder};
  client_->ask(look_up, while_running<rpc::Answer>([this](const rpc::Answer& found) {
                 if (found.has_value()) {
                   folder_ = std::get<msg::Lookup::Reply>(*found).attributes.id;
                   return end(2);
                 }
                 if (found.error().error.code != Code::kNotFound) return end(3);
                 // When the answer is lost, the next look-up says whether it is there.
                 msg::MakeDirectory request;
                 request.client = client_->id();
                 request.parent = kRootFile;
                 request.name = kFolder;
                 request.mode = 0755;
                 client_->ask(request,
                              while_running<rpc::Answer>([this](const rpc::Answer&) { end(4); }));
               }));
}

void SeriesScript::set_policy() {
  msg::SetPolicy request;
  request.client = client_->id();
  request.directory = folder_;
  request.changes.settings = {{PolicyKey::kImages, kImages},
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

void SeriesScript::write() {
  if (timesteps_.empty() || timesteps_.back().written()) {
    Timestep& next = timesteps_.emplace_back();
    next.begun = cluster_.now();
    for (auto& bytes : next.bytes) {
      bytes.resize(1 + prng_.below(20000));
      for (std::byte& each : bytes) each = static_cast<std::byte>(prng_.next() >> 56);
    }
  }
  const std::size_t index = timesteps_.size() - 1;
  const std::size_t image = timesteps_[index].stored[0] == Stored::kYes ? 1 : 0;
  const auto settle = [this, index, image](const Ending& ending) {
    Timestep& written = timesteps_[index];
    Stored& stored = written.stored[image];
    written.late = is_old(written);
    if (ending.status.has_value()) {
      stored = Stored::kYes;
    } else if (ending.maybe) {
      stored = Stored::kMaybe;
      settled_ = cluster_.now() + kSettle;
    }
  };
  if_lost_ = [settle] { settle({fail(Code::kCancelled, "sim"), true}); };
  client_->store(name(index + 1, image), {{0, timesteps_[index].bytes[image]}}, true,
                 while_running<Ending>([this, settle](const Ending& ending) {
                   settle(ending);
                   end(ending.status.has_value() ? 6 : 7);
                 }),
                 folder_);
}

void SeriesScript::load() {
  if (timesteps_.empty()) return end(8);
  // The last ones, most of the time: those of long ago are gone.
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
  const Timestep& written = timesteps_[timestep - 1];
  if (got.has_value()) {
    const bool right = written.stored[image] != Stored::kNot && *got == written.bytes[image];
    if (!right) complain_("sets: " + name(timestep, image) + " shows what was never written");
    return;
  }
  const bool missed = got.error().code == Code::kNotFound &&
                      written.stored[image] == Stored::kYes && !may_be_gone(timestep);
  if (missed) complain_("sets: " + name(timestep, image) + " is gone against the policy");
}

bool SeriesScript::is_old(const Timestep& timestep) const {
  return options_.purge_after_s > 0 &&
         cluster_.now() - timestep.begun >= std::chrono::seconds(options_.purge_after_s);
}

/// Newer sets allow it: `keep` complete ones, or one when time removes sets.
bool SeriesScript::may_be_gone(std::uint64_t timestep) const {
  const Timestep& written = timesteps_[timestep - 1];
  if (written.pinned) return false;
  if (written.late || (!written.written() && is_old(written))) return true;
  const auto newer = static_cast<std::uint64_t>(
      std::count_if(timesteps_.begin() + static_cast<std::ptrdiff_t>(timestep), timesteps_.end(),
                    [](const Timestep& each) { return each.may_be_complete(); }));
  return (options_.keep > 0 && newer >= options_.keep) || (options_.purge_after_s > 0 && newer > 0);
}

/// The newest one, which cannot be gone.
void SeriesScript::pin() {
  const auto pinned = std::ranges::count_if(timesteps_, &Timestep::pinned);
  if (timesteps_.empty() || !timesteps_.back().complete() || pinned == kPinnedMax) return end(10);
  const std::size_t index = timesteps_.size() - 1;
  msg::SetXattr request;
  request.client = client_->id();
  request.file = folder_;
  request.name = std::string(manager::kXattrPin) + set_name(kApplication, index + 1);
  request.value = "1";
  client_->ask(request, while_running<rpc::Answer>([this, index](const rpc::Answer& answer) {
                 timesteps_[index].pinned = answer.has_value();
                 end(11);
               }));
}

void SeriesScript::list() {
  client_->ask(
      msg::ListSets{folder_}, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
        if (!answer.has_value()) return end(12);
        for (const auto& set : std::get<msg::ListSets::Reply>(*answer).sets) {
          const bool known = set.timestep > 0 && set.timestep <= timesteps_.size();
          if (known && set.images <= kImages && set.drained <= set.images) continue;
          complain_(
              fmt::format("sets: {} images of timestep {} are listed", set.images, set.timestep));
        }
        end(13);
      }));
}

void SeriesScript::check_settled() const {
  if (!has_policy_ || timesteps_.empty()) return;
  const manager::State& state = cluster_.manager()->state();
  const manager::File& folder = *state.file(folder_);
  std::uint64_t complete = 0;
  std::uint64_t newest = 0;
  for (const manager::ImageSet& set : manager::sets_of(state, folder)) {
    if (set.images < kImages) continue;
    newest = std::max(newest, set.timestep);
    complete += set.pinned ? 0 : 1;
  }
  std::uint64_t wanted = timesteps_.size();
  while (wanted > 0 && !timesteps_[wanted - 1].complete()) --wanted;
  if (newest < wanted) {
    complain_(fmt::format("sets: timestep {} is not there, and {} is the newest", wanted, newest));
  }
  if (options_.must_be_drained || newest == 0) return;
  if (options_.keep > 0 && complete > options_.keep) {
    complain_(fmt::format("sets: {} complete ones are kept", complete));
  }
  const auto link = state.lookup(folder_, manager::kLatestName, ClientId{});
  const std::string latest = link.has_value() ? (*link)->target : std::string();
  if (latest != set_name(kApplication, newest)) {
    complain_(fmt::format("sets: {} is the newest, and the link says {}", newest, latest));
  }
}

void SeriesScript::remove_all(PlainClient& client) {
  ++operations_;
  client_ = &client;
  remove_next();
}

void SeriesScript::remove_next() {
  const manager::File* const folder = folder_ ? cluster_.manager()->state().file(folder_) : nullptr;
  const auto left = folder == nullptr ? 0 : folder->children.size();
  if (left == 0) return end(14);
  const msg::Remove request{client_->id(), folder_, folder->children.begin()->first, false};
  client_->ask(request, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
                 // The link to the newest set goes by itself.
                 if (!answer.has_value() && answer.error().error.code != Code::kNotFound) {
                   complain_("sets: a removal fails: " + describe(answer.error().error));
                   return end(15);
                 }
                 remove_next();
               }));
}

}  // namespace stdchk::sim
