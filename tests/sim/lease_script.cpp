#include "tests/sim/lease_script.h"

#include <fmt/core.h>

#include <utility>

#include "manager/service/service.h"

namespace stdchk::sim {
namespace {

using namespace std::chrono_literals;

constexpr const char* kFolder = "leased";
constexpr std::uint64_t kNames = 6;
constexpr std::uint32_t kNumbers = 200;
constexpr Duration kRepeatPause = 300ms;

}  // namespace

LeaseScript::LeaseScript(Cluster& cluster, std::uint64_t seed, Complain complain, Note note)
    : cluster_(cluster), prng_(seed), complain_(std::move(complain)), note_(std::move(note)) {}

void LeaseScript::start_one(PlainClient& client) {
  if (!folder_) return make_folder(client);
  if (holder_ == &client) {
    if (lease_ != Lease::kHeld) return;
    if (prng_.chance(1, 40)) return give_back();
    for (std::uint64_t i = 1 + prng_.below(4); i > 0; --i) change();
    return send_batch();
  }
  if (asking_ != nullptr) return;
  if (reader_ == nullptr && prng_.chance(1, lease_ == Lease::kNone ? 30 : 12)) return list(client);
  if (lease_ == Lease::kNone && prng_.chance(1, 2)) ask_lease(client);
}

/// Looks the folder up or makes it.
void LeaseScript::make_folder(PlainClient& client) {
  if (asking_ != nullptr) return;
  asking_ = &client;
  const auto ended = [this](FileId made) {
    asking_ = nullptr;
    folder_ = made;
  };
  client.ask(msg::Lookup{client.id(), kRootFile, kFolder},
             [this, &client, ended](const rpc::Answer& found) {
               if (asking_ != &client || folder_) return;
               if (found.has_value())
                 return ended(std::get<msg::Lookup::Reply>(*found).attributes.id);
               if (found.error().error.code != Code::kNotFound) return ended({});
               // After a lost answer, the next look-up tells whether the folder exists.
               client.ask(msg::MakeDirectory{client.id(), kRootFile, kFolder, 0755},
                          [this, &client, ended](const rpc::Answer&) {
                            if (asking_ == &client && !folder_) ended({});
                          });
             });
}

void LeaseScript::ask_lease(PlainClient& client) {
  asking_ = &client;
  ++asked_;
  client.ask(msg::LeaseDirectory{client.id(), folder_, kNumbers},
             [this, &client, number = asked_](const rpc::Answer& answer) {
               if (asking_ != &client || number != asked_) return;
               const auto* reply =
                   answer.has_value() ? &std::get<msg::LeaseDirectory::Reply>(*answer) : nullptr;
               if (reply != nullptr && reply->granted) {
                 return granted(client, *reply);
               }
               asking_ = nullptr;
               note_(1);
             });
}

/// Fetches the names, which only the holder changes from now on.
void LeaseScript::granted(PlainClient& client, const msg::LeaseDirectory::Reply& reply) {
  client.ask(msg::ReadDirectory{client.id(), folder_},
             [this, &client, reply, number = asked_](const rpc::Answer& answer) {
               if (asking_ != &client || number != asked_) return;
               asking_ = nullptr;
               note_(2);
               if (!answer.has_value()) return;
               const Names names = names_of(std::get<msg::ReadDirectory::Reply>(*answer));
               if (!possible().contains(names)) {
                 complain_("leases: a holder finds names that never were");
               }
               other_.reset();
               told_ = answered_ = names;
               holder_ = &client;
               holder_number_ = reply.holder;
               lease_ = Lease::kHeld;
               ++lease_number_;
               next_file_ = reply.first_number.value;
               files_end_ = next_file_ + reply.number_count;
               batch_number_ = reply.newest_batch;
             });
}

/// Changes a name, and tells the application at once.
void LeaseScript::change() {
  const std::string name = fmt::format("n{}", prng_.below(kNames));
  const std::string other = fmt::format("n{}", prng_.below(kNames));
  msg::NameChange change;
  change.parent = folder_;
  change.name = name;
  change.time_ns = 1;
  const auto found = told_.find(name);
  if (found == told_.end()) {
    if (next_file_ == files_end_) return;
    change.kind = msg::NameChangeKind::kAddFile;
    change.file = FileId{next_file_++};
    told_[name] = change.file;
  } else if (prng_.chance(1, 2) || name == other) {
    change.kind = msg::NameChangeKind::kRemoveFile;
    change.file = found->second;
    told_.erase(found);
  } else {
    change.kind = msg::NameChangeKind::kRename;
    change.file = found->second;
    change.to_parent = folder_;
    change.to_name = other;
    told_[other] = change.file;
    told_.erase(name);
  }
  unsent_.push_back(std::move(change));
}

void LeaseScript::send_batch() {
  if (in_flight_ || unsent_.empty()) return;
  ++batches_;
  in_flight_ = Batch{{{}, holder_number_, ++batch_number_, std::exchange(unsent_, {})}, told_};
  send_again();
}

void LeaseScript::send_again() {
  in_flight_->request.client = holder_->id();
  holder_->ask(in_flight_->request,
               while_held<rpc::Answer>([this](const rpc::Answer& answer) { batch_ended(answer); }));
}

void LeaseScript::batch_ended(const rpc::Answer& answer) {
  note_(answer.has_value() ? 3 : 4);
  if (answer.has_value()) {
    answered_ = std::move(in_flight_->after);
    in_flight_.reset();
    return lease_ == Lease::kReturning ? give_back() : send_batch();
  }
  if (answer.error().detail == "The batch does not fit.") complain_("leases: a batch does not fit");
  if (answer.error().error.code == Code::kStale) return lose();
  holder_->node().reactor.schedule_after(kRepeatPause, [this, number = lease_number_] {
    if (lease_ != Lease::kNone && number == lease_number_) send_again();
  });
}

/// Sends what is left, and then returns the lease.
void LeaseScript::give_back() {
  lease_ = Lease::kReturning;
  if (in_flight_) return;
  if (!unsent_.empty()) return send_batch();
  holder_->ask(msg::ReturnLease{holder_->id(), holder_number_, {folder_}},
               while_held<rpc::Answer>([this](const rpc::Answer& answer) {
                 note_(5);
                 if (answer.has_value() || answer.error().error.code == Code::kStale) return lose();
                 holder_->node().reactor.schedule_after(
                     kRepeatPause, [this, number = lease_number_] {
                       if (lease_ == Lease::kReturning && number == lease_number_) {
                         give_back();
                       }
                     });
               }));
}

/// The lease has ended. The pool has the names of the last answered batch, or of the batch in
/// flight.
void LeaseScript::lose() {
  if (in_flight_) other_ = std::move(in_flight_->after);
  in_flight_.reset();
  unsent_.clear();
  holder_ = nullptr;
  lease_ = Lease::kNone;
}

void LeaseScript::recalled(PlainClient& client, FileId directory) {
  if (directory != folder_) return;
  if (holder_ == &client) {
    if (lease_ == Lease::kHeld) give_back();
    return;
  }
  // The answer that granted the lease is on its way, and the manager repeats the recall. Or that
  // answer was lost: the manager ends the lease after its time.
}

void LeaseScript::client_died(const PlainClient& client) {
  if (asking_ == &client) asking_ = nullptr;
  if (reader_ == &client) reader_ = nullptr;
  if (holder_ == &client) lose();
}

void LeaseScript::list(PlainClient& client) {
  reader_ = &client;
  reader_asked_ = asked_;
  client.ask(msg::ReadDirectory{client.id(), folder_},
             [this, &client, number = ++listings_](const rpc::Answer& answer) {
               if (reader_ != &client || number != listings_) return;
               reader_ = nullptr;
               note_(6);
               // The answer of an earlier manager may be out of date.
               if (!answer.has_value() || client.behind()) return;
               listed(std::get<msg::ReadDirectory::Reply>(*answer));
             });
}

void LeaseScript::listed(const msg::ReadDirectory::Reply& reply) {
  // Since a lease that was asked for later, the names may have changed again.
  if (reader_asked_ != asked_) return;
  const bool is_leased =
      lease_ != Lease::kNone && cluster_.manager() != nullptr &&
      cluster_.manager()->state().name_leases().holder(folder_) == holder_number_;
  if (is_leased) complain_("leases: a listing was answered although another client held the names");
  const Names names = names_of(reply);
  if (!possible().contains(names)) {
    complain_(fmt::format("leases: a listing shows {} names, which never were there together",
                          names.size()));
  }
  if (lease_ != Lease::kNone) return;
  answered_ = names;
  other_.reset();
}

std::set<LeaseScript::Names> LeaseScript::possible() const {
  std::set<Names> out{answered_};
  if (other_) out.insert(*other_);
  if (in_flight_) out.insert(in_flight_->after);
  return out;
}

LeaseScript::Names LeaseScript::names_of(const msg::ReadDirectory::Reply& reply) {
  Names out;
  for (const msg::DirectoryEntry& entry : reply.entries) out[entry.name] = entry.attributes.id;
  return out;
}

}  // namespace stdchk::sim
