#include "client/names/directory_leases.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAskBackOffMin = 2s;
constexpr Duration kAskBackOffMax = 60s;
constexpr std::size_t kPlainMax = 4096;
constexpr Duration kTick = 20ms;  ///< between two calls of tick()

template <class R>
const typename R::Reply* reply_of(const rpc::Answer& answer) {
  return answer.has_value() ? std::get_if<typename R::Reply>(&*answer) : nullptr;
}

}  // namespace

DirectoryLeases::DirectoryLeases(Engine& engine)
    : engine_(engine),
      batches_({engine.shared(), engine.clock(),
                [this](msg::Request request, std::function<void(rpc::Answer)> done,
                       std::function<bool()> may_go) {
                  engine_lock.assert_held();
                  engine_.call(std::move(request), std::move(done), {}, std::move(may_go));
                },
                [this](Duration delay, std::function<void()> work) {
                  return engine_.leases().run_after(delay, std::move(work));
                },
                [this](const NameBatches::Changes& changes) {
                  engine_lock.assert_held();
                  lost(changes);
                },
                [this] { changed_.notify_all(); }}) {
  const Lock lock(engine.shared().mutex);
  engine.leases().set_holder(this);
}

DirectoryLeases::~DirectoryLeases() = default;

// ---- calls about names ------------------------------------------------------------------------

/// Calls wait. While the manager is silent they fail at once instead: calls in one directory queue
/// in the kernel, where no deadline ends them.
Status DirectoryLeases::not_now() const {
  const bool is_silent = silent_ticks_ * kTick >= limits::kManagerDeadline;
  return fail(is_silent ? Code::kManagerLost : Code::kWouldBlock, "client.lease");
}

/// The manager has heard this client less than a lease ago, so it has ended none of its leases.
/// Recalls under way were sent after that answer.
Status DirectoryLeases::may_answer() const {
  const bool heard = engine_.clock().now() < engine_.registration().heard_since + limits::kLease;
  if (!heard || !engine_.registration().manager_up || unproven_ != 0 || !batches_.may_go()) {
    return not_now();
  }
  return {};
}

Status DirectoryLeases::may_answer_about(FileId file) const {
  const HeldDirectories::File* const named = names_.file(file);
  const FileId directory = names_.directory(file) != nullptr ? file
                           : named != nullptr                ? named->parent
                                                             : FileId{};
  if (!directory) return {};
  if (returning_.contains(directory)) return not_now();
  return may_answer();
}

Status DirectoryLeases::may_begin(FileId directory) const {
  if (returning_.contains(directory)) return not_now();
  if (names_.directory(directory) != nullptr) return may_answer();
  const auto plain = plain_.find(directory);
  if (plain != plain_.end() && plain->second.asking) {
    return not_now();
  }
  return {};
}

void DirectoryLeases::begin(FileId directory) {
  if (plain_.size() >= kPlainMax) {
    std::erase_if(plain_,
                  [](const auto& one) { return one.second.under_way == 0 && !one.second.asking; });
  }
  ++plain_[directory].under_way;
}

void DirectoryLeases::end(FileId directory, bool changed) {
  const auto found = plain_.find(directory);
  if (found == plain_.end()) return;
  Plain& plain = found->second;
  --plain.under_way;
  if (changed) {
    plain.changes.push_back(engine_.clock().now());
    if (plain.changes.size() > kChangesToAsk) plain.changes.pop_front();
  }
  if (!plain.asking && wants(directory, plain)) plain.asking = true;
  if (plain.asking && plain.under_way == 0) ask(directory);
}

bool DirectoryLeases::wants(FileId directory, const Plain& plain) const {
  const Time now = engine_.clock().now();
  if (plain.changes.size() < kChangesToAsk || now < plain.asks_after) return false;
  if (now > plain.changes.front() + kChangesWithin) return false;
  if (!has_room_for_directory() || !has_room_for_name()) return false;
  // The manager refuses a directory with a file that has no version yet.
  bool is_pending = false;
  engine_.sessions().each([&](Session& session) STDCHK_REQUIRES(engine_lock) {
    const Resumer& resumer = session.resumer();
    is_pending = is_pending || (resumer.is_pending() && resumer.parent() == directory);
  });
  return !is_pending;
}

// ---- asking -----------------------------------------------------------------------------------

void DirectoryLeases::call(msg::Request request,
                           void (DirectoryLeases::*done)(FileId, const rpc::Answer&),
                           FileId directory) {
  engine_.call(std::move(request), [this, done, directory](const rpc::Answer& answer) {
    const Lock lock(engine_.shared().mutex);
    (this->*done)(directory, answer);
  });
}

void DirectoryLeases::ask(FileId directory) {
  call(msg::LeaseDirectory{engine_.client(), directory, batches_.numbers().wanted()},
       &DirectoryLeases::asked, directory);
}

void DirectoryLeases::asked(FileId directory, const rpc::Answer& answer) {
  const auto* reply = reply_of<msg::LeaseDirectory>(answer);
  if (reply == nullptr || !reply->granted) return refused(directory);
  const bool is_first = names_.empty() && returning_.empty();
  batches_.granted(*reply, is_first);
  if (batches_.holder() != reply->holder) {
    // The manager has ended the earlier leases, and this client learns it with the next batch.
    log::warning("a lease is not used: the earlier leases of this client have ended");
    batches_.lose();
    return_unknown(directory, reply->holder);
    return refused(directory);
  }
  auto listing = std::make_shared<Listing>();
  listing->directory.name_bytes_max = reply->name_bytes_max;
  engine_.call(msg::GetAttributes{engine_.client(), directory},
               [this, listing](const rpc::Answer& got) {
                 const Lock lock(engine_.shared().mutex);
                 const auto* attributes = reply_of<msg::GetAttributes>(got);
                 if (attributes != nullptr) listing->directory.attributes = attributes->attributes;
               });
  listings_[directory] = listing;
  list(directory, std::move(listing));
}

void DirectoryLeases::refused(FileId directory) {
  listings_.erase(directory);
  Plain& plain = plain_[directory];
  plain.asking = false;
  plain.back_off = std::clamp(2 * plain.back_off, kAskBackOffMin, kAskBackOffMax);
  plain.asks_after = engine_.clock().now() + plain.back_off;
  changed_.notify_all();
}

void DirectoryLeases::list(FileId directory, std::shared_ptr<Listing> listing) {
  const std::string after = listing->entries.empty() ? std::string() : listing->entries.back().name;
  engine_.call(
      msg::ReadDirectory{engine_.client(), directory, after},
      [this, directory, listing = std::move(listing), losses = losses_](const rpc::Answer& answer) {
        const Lock lock(engine_.shared().mutex);
        if (losses != losses_) return refused(directory);
        listed(directory, listing, answer);
      });
}

void DirectoryLeases::listed(FileId directory, std::shared_ptr<Listing> listing,
                             const rpc::Answer& answer) {
  const auto* reply = reply_of<msg::ReadDirectory>(answer);
  const bool is_bad = reply == nullptr || (reply->more && reply->entries.empty());
  if (!is_bad) {
    listing->entries.insert(listing->entries.end(), reply->entries.begin(), reply->entries.end());
    if (reply->more) return list(directory, std::move(listing));
  }
  if (is_bad || listing->directory.attributes.id != directory) {
    returning_.insert(directory);
    to_return_.push_back(directory);
    refused(directory);
    return return_now();
  }
  hold(directory, *listing);
}

void DirectoryLeases::hold(FileId directory, Listing& listing) {
  plain_.erase(directory);
  listings_.erase(directory);
  names_.add(std::move(listing.directory), listing.entries,
             [this](FileId file)
                 STDCHK_REQUIRES(engine_lock) { return engine_.sessions().find(file) != nullptr; });
  for (const FileId file : listing.changed) file_changed(file);
  changed_.notify_all();
}

/// Calls ask the manager for the file's attributes from now on. The attributes of a held directory
/// must be known here, so such a lease is returned.
void DirectoryLeases::file_changed(FileId file) {
  for (const auto& [directory, listing] : listings_) listing->changed.insert(file);
  names_.forget_attributes(file);
  give_back({file});
}

// ---- returning --------------------------------------------------------------------------------

void DirectoryLeases::recalled(const std::vector<FileId>& directories) {
  give_back(directories);
  for (const FileId directory : directories) {
    const auto plain = plain_.find(directory);
    const bool is_asking = plain != plain_.end() && plain->second.asking;
    const bool is_known = is_asking || returning_.contains(directory) || is_held(directory);
    if (!is_known) return_unknown(directory, 0);
  }
}

/// Returns a lease that this client does not use, because the answer that granted it was lost or
/// came late. Otherwise all leases of this client would end. Holder 0: the manager knows the number.
void DirectoryLeases::return_unknown(FileId directory, std::uint64_t holder) {
  engine_.call(msg::ReturnLease{engine_.client(), holder, {directory}}, [](const rpc::Answer&) {});
}

void DirectoryLeases::give_back(const std::vector<FileId>& directories) {
  for (const FileId directory : directories) {
    // A lease whose names have not arrived is returned when the manager repeats the recall.
    if (!is_held(directory)) continue;
    if (settle_) (void)settle_(directory);
    returning_.insert(directory);
    to_return_.push_back(directory);
    // Another client uses the directory, and would take a new lease away again.
    plain_[directory].asks_after = engine_.clock().now() + kAskBackOffMin;
  }
  return_now();
}

/// Sends the last changes, and then the leases. The link keeps this order, so there is no wait. A
/// batch whose outcome is unknown must come before them.
void DirectoryLeases::return_now() {
  if (to_return_.empty() || !engine_.registration().manager_up) return;  // tick() tries again
  batches_.send();
  if (!batches_.may_go() || unproven_ != 0) return;
  for (const FileId directory : to_return_) {
    if (settle_ && !settle_(directory)) return;  // tick() tries again
  }
  const auto directories = std::exchange(to_return_, {});
  const std::uint64_t holder = batches_.holder();
  for (const FileId directory : directories) {
    // Has the manager report what others change, while the kernel may still cache names.
    engine_.call(msg::GetAttributes{engine_.client(), directory}, [](const rpc::Answer&) {});
  }
  engine_.call(msg::ReturnLease{engine_.client(), holder, directories},
               [this, directories, holder, losses = losses_](const rpc::Answer& answer) {
                 const Lock lock(engine_.shared().mutex);
                 if (losses == losses_) returned(directories, holder, answer);
               });
}

void DirectoryLeases::returned(const std::vector<FileId>& directories, std::uint64_t holder,
                               const rpc::Answer& answer) {
  if (!answer.has_value()) {
    if (answer.error().error.code == Code::kStale && holder == batches_.holder()) {
      return batches_.lose();
    }
    to_return_.insert(to_return_.end(), directories.begin(), directories.end());
    return;  // tick() tries again
  }
  for (const FileId directory : directories) {
    names_.drop(directory);
    returning_.erase(directory);
  }
  // Cached entries are older than the changes.
  engine_.metadata().forget_all();
  changed_.notify_all();
}

// ---- the link ---------------------------------------------------------------------------------

void DirectoryLeases::registered(bool same, bool same_epoch) {
  if (!same && same_epoch) return batches_.lose();
  if (batches_.holder() == 0) return;
  if (same) {
    // A restarted manager has ended the holder's number with its last lease.
    if (is_idle()) return;
    // The leases may have ended while the link was lost. The manager answers a batch of a
    // valid lease only.
    batches_.send(true);
    unproven_ = batches_.newest();
    return;
  }
  // A restarted manager wants all leases back, and knows the last batch.
  give_back(names_.directories());
}

void DirectoryLeases::tick() {
  silent_ticks_ = engine_.registration().manager_up ? 0 : silent_ticks_ + 1;
  batches_.tick();
  if (unproven_ != 0 && batches_.is_durable(unproven_)) {
    unproven_ = 0;
    changed_.notify_all();
  }
  return_now();
}

void DirectoryLeases::lost(const NameBatches::Changes& changes) {
  ++losses_;
  unproven_ = 0;
  if (!names_.empty()) {
    log::warning("the leases on {} directories have ended: {} changes of names may be lost",
                 names_.directory_count(), changes.size());
  }
  const Error why{Code::kFenced, 0, "client.lease"};
  for (const msg::NameChange& change : changes) {
    for (const FileId about : {change.file, change.parent, change.to_parent}) {
      if (about) engine_.sessions().note_lost(about, why);
    }
  }
  for (const FileId directory : names_.directories()) names_.drop(directory);
  returning_.clear();
  to_return_.clear();
  engine_.metadata().forget_all();
  changed_.notify_all();
}

}  // namespace stdchk::client
