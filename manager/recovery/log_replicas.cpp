#include "manager/recovery/log_replicas.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <string>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "manager/journal/journal_codec.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kStoreDeadline = 1s;
constexpr Duration kPause = 5s;        ///< before a benefactor that has failed gets a log again
constexpr Duration kSmallPause = 60s;  ///< before a benefactor that was full gets a log again
/// A longer log begins anew when it is twice as long as its snapshot, because the benefactor lends
/// memory for it.
constexpr std::uint64_t kLong = 8 * limits::kMiB;
constexpr std::uint64_t kSlack = 16;  ///< 1/16 of a log is kept for records after the snapshot

/// A log may use half of a benefactor's limit, because the next log begins while the old one
/// exists.
std::uint64_t half(std::uint64_t room_bytes) { return room_bytes / 2; }

/// A snapshot of so many bytes leaves room for records behind it.
bool fits(std::uint64_t snapshot_bytes, std::uint64_t room_bytes) {
  return snapshot_bytes + half(room_bytes) / kSlack <= half(room_bytes);
}

/// Returns true when a log is longer than it should be, and a new snapshot would shorten it.
bool is_long(std::uint64_t log_bytes, std::uint64_t snapshot_bytes, std::uint64_t room_bytes) {
  const std::uint64_t most = half(room_bytes);
  if (log_bytes >= 2 * snapshot_bytes) return log_bytes > std::min(most / 4 * 3, kLong);
  return log_bytes > most / 8 * 7 && log_bytes >= snapshot_bytes + most / kSlack;
}

}  // namespace

/// A manager that comes back does not know its standby's quorum. Until the standby asks again, no
/// set of benefactors is a majority.
LogReplicas::LogReplicas(Pool& pool, std::function<void()> on_replica)
    : pool_(pool), on_replica_(std::move(on_replica)), keys_(pool.config().membership.log_key()) {
  if (!pool_.config().standby.empty()) quorums_.push_back({0, {BenefactorId{}}});
}

msg::FollowManager::Reply LogReplicas::follow(const msg::FollowManager& request) {
  const Epoch epoch = pool_.state().epoch();
  if (request.newest_epoch == epoch) {
    // The newest quorum stays: a standby that has ended may have reported a later number.
    while (quorums_.size() > 1 && quorums_.front().number < request.seen) quorums_.pop_front();
  }
  auto now = complete_replicas();
  // The quorum changes by one step at a time: until the standby is known to have this quorum, both
  // quorums must agree.
  const bool changed = quorums_.empty() || quorums_.back().ids != now;
  if (changed && quorums_.size() < 2) {
    const std::uint64_t number = quorums_.empty() ? 1 : quorums_.back().number + 1;
    quorums_.push_back({number, std::move(now)});
  }
  settle_later();
  const Quorum& newest = quorums_.back();
  return {epoch, newest.number, {newest.ids.begin(), newest.ids.end()}};
}

std::set<BenefactorId> LogReplicas::complete_replicas() const {
  std::set<BenefactorId> ids;
  for (const auto& [id, replica] : replicas_) {
    if (replica.counts) ids.insert(id);
  }
  return ids;
}

bool LogReplicas::is_gaining_replicas() const {
  return !replicas_.empty() || std::ranges::any_of(pool_.benefactors(), [](const auto& each) {
    return each.second.info.state == msg::BenefactorState::kSilent;
  });
}

/// Returns true when a majority of each quorum by which the standby may decide has the record.
bool LogReplicas::agreed(std::uint64_t sequence) const {
  return std::all_of(quorums_.begin(), quorums_.end(), [&](const Quorum& quorum) {
    const auto have = std::count_if(quorum.ids.begin(), quorum.ids.end(), [&](BenefactorId id) {
      const auto replica = replicas_.find(id);
      return replica != replicas_.end() && replica->second.counts &&
             replica->second.sequence >= sequence;
    });
    return quorum.ids.empty() || 2 * static_cast<std::size_t>(have) > quorum.ids.size();
  });
}

void LogReplicas::append(std::uint64_t sequence, const Command& command) {
  if (replicas_.empty()) return;
  std::string record;
  const Status framed = append_record(keys_, pool_.state().epoch(), sequence, command, record);
  std::vector<BenefactorId> ids;
  for (const auto& [id, replica] : replicas_) ids.push_back(id);
  std::vector<Piece> pieces;
  for (auto& bytes : cut_log(record)) {
    pieces.push_back({std::make_shared<const std::string>(std::move(bytes)), 0, false});
  }
  if (!pieces.empty()) pieces.back().sequence = sequence;
  for (const BenefactorId id : ids) {
    if (!framed) {
      drop(id, framed.error());
      continue;
    }
    Replica& replica = replicas_.at(id);
    replica.waiting.insert(replica.waiting.end(), pieces.begin(), pieces.end());
    send(id);
  }
}

void LogReplicas::when_stored(std::uint64_t sequence, std::function<void()> done) {
  waiting_.emplace_back(sequence, std::move(done));
  settle();
}

std::uint32_t LogReplicas::count() const {
  return static_cast<std::uint32_t>(complete_replicas().size());
}

void LogReplicas::run() {
  if (pool_.journal().failed()) return;
  std::vector<BenefactorId> gone;
  for (const auto& [id, replica] : replicas_) {
    if (pool_.peer_of(id) == nullptr) gone.push_back(id);
  }
  for (const BenefactorId id : gone) drop(id, Error{Code::kPeerLost, 0, "manager.log"});
  std::erase_if(full_, [&](const auto& each) {
    return pool_.now() >= each.second.until || pool_.is_presumed_lost(each.first);
  });
  add_replicas();
  spread();
  log_advice();
  const bool any_starting = std::any_of(replicas_.begin(), replicas_.end(),
                                        [](const auto& each) { return each.second.starting; });
  if (any_starting) return;  // one log at a time: the other logs keep every answered record
  for (const auto& [id, replica] : replicas_) {
    const auto& status = pool_.benefactors().at(id);
    if (!is_long(replica.offset, replica.snapshot_bytes, status.log_bytes_max)) continue;
    return start(id, snapshot());
  }
}

bool LogReplicas::may_store(BenefactorId id) const {
  const auto& status = pool_.benefactors().at(id);
  const auto pause = not_before_.find(id);
  const bool small = std::ranges::any_of(full_, [&](const auto& each) {
    const Full& full = each.second;
    return full.by_host() ? each.first == id : status.log_bytes_max <= full.room_bytes;
  });
  return status.peer != nullptr && status.info.state == msg::BenefactorState::kAlive &&
         !status.leaving && status.log_bytes_max > 0 && !small && replicas_.count(id) == 0 &&
         (pause == not_before_.end() || pool_.now() >= pause->second);
}

/// Chooses benefactors on hosts without a log first, then any benefactors.
void LogReplicas::add_replicas() {
  std::set<std::string> hosts;
  std::size_t staying = 0;
  for (const auto& [id, replica] : replicas_) {
    const auto& status = pool_.benefactors().at(id);
    if (status.leaving) continue;
    ++staying;
    hosts.insert(status.info.host_token);
  }
  std::vector<Piece> pieces;
  for (const bool any_host : {false, true}) {
    for (const auto& [id, status] : pool_.benefactors()) {
      if (staying >= limits::kLogCopies) return;
      if (!may_store(id) || (!any_host && hosts.count(status.info.host_token) > 0)) continue;
      hosts.insert(status.info.host_token);
      ++staying;
      if (pieces.empty()) pieces = snapshot();
      start(id, pieces);
    }
  }
}

/// When a host has two logs and another host has none, the other host gets a log. Once this log is
/// whole, the first host drops a log.
void LogReplicas::spread() {
  std::map<std::string, BenefactorId> hosts;
  BenefactorId surplus;
  for (const auto& [id, replica] : replicas_) {
    if (!replica.counts) return;
    const auto [at, is_new] = hosts.emplace(pool_.benefactors().at(id).info.host_token, id);
    if (!is_new) surplus = id;
  }
  if (!surplus) return;
  if (replicas_.size() > limits::kLogCopies) {
    replicas_.erase(surplus);
    not_before_[surplus] = pool_.now() + kPause;
    return settle_later();
  }
  for (const auto& [id, status] : pool_.benefactors()) {
    if (hosts.count(status.info.host_token) == 0 && may_store(id)) return start(id, snapshot());
  }
}

std::vector<LogReplicas::Piece> LogReplicas::snapshot() {
  std::vector<Piece> pieces;
  std::string bytes;
  std::uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  LogSnapshot written(keys_, pool_.state().epoch(), pool_.journal().appended(), number, bytes);
  Status framed;
  const auto flush = [&](bool all) {
    while (bytes.size() >= limits::kLogPieceBytesMax || (all && !bytes.empty())) {
      const std::size_t count = std::min(bytes.size(), limits::kLogPieceBytesMax);
      pieces.push_back({std::make_shared<const std::string>(bytes.substr(0, count)), 0, false});
      bytes.erase(0, count);
    }
  };
  pool_.state().snapshot([&](const Command& command) {
    if (framed) framed = written.append(command, bytes);
    flush(false);
  });
  written.finish(bytes);
  flush(true);
  if (!framed || pieces.empty()) return {};
  pieces.front().begins = true;
  pieces.back().sequence = pool_.journal().appended();
  snapshot_bytes_ = 0;
  for (const Piece& piece : pieces) snapshot_bytes_ += piece.bytes->size();
  snapshot_items_ = items();
  return pieces;
}

void LogReplicas::start(BenefactorId id, const std::vector<Piece>& pieces) {
  Replica& replica = replicas_[id];
  if (pieces.empty()) return drop(id, Error{Code::kTooLarge, 0, "manager.log"});
  // While it is the only one that counts, answers wait for its new log.
  replica.counts = replica.counts && count() == 1;
  replica.starting = true;
  replica.waiting.assign(pieces.begin(), pieces.end());
  replica.snapshot_bytes = 0;
  for (const Piece& piece : pieces) replica.snapshot_bytes += piece.bytes->size();
  settle_later();
  send(id);
}

void LogReplicas::send(BenefactorId id) {
  const auto found = replicas_.find(id);
  if (found == replicas_.end() || found->second.in_flight || found->second.waiting.empty()) return;
  rpc::Peer* const peer = pool_.peer_of(id);
  if (peer == nullptr) return drop(id, Error{Code::kPeerLost, 0, "manager.log"});
  Replica& replica = found->second;
  msg::KeepLog request;
  request.epoch = pool_.state().epoch();
  request.begins = replica.waiting.front().begins;
  request.offset = request.begins ? 0 : replica.offset;
  while (!replica.waiting.empty()) {
    const Piece& next = replica.waiting.front();
    const bool fits = request.bytes.size() + next.bytes->size() <= limits::kLogPieceBytesMax;
    // A request that ends a record takes no part of the next record: its answer counts for the
    // record.
    const bool parts = request.sequence != 0 && next.sequence == 0;
    if (!request.bytes.empty() && (!fits || parts || next.begins)) break;
    request.bytes += *next.bytes;
    request.sequence = next.sequence;
    replica.waiting.pop_front();
  }
  replica.offset = request.offset + request.bytes.size();
  replica.in_flight = true;
  const std::uint64_t sequence = request.sequence;
  peer->call(std::move(request), kStoreDeadline,
             [this, id, sequence, alive = pool_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) answered(id, sequence, answer);
             });
}

void LogReplicas::answered(BenefactorId id, std::uint64_t sequence, const rpc::Answer& answer) {
  const auto found = replicas_.find(id);
  // The replica was dropped meanwhile. Its pause is longer than any answer takes.
  if (found == replicas_.end()) return;
  Replica& replica = found->second;
  replica.in_flight = false;
  if (!answer) {
    const bool full = answer.error().error.code == Code::kNoSpace;
    if (full && !replica.starting && begin_anew_if_full(id)) return;
    return drop(id, answer.error().error);
  }
  if (sequence != 0 && (replica.waiting.empty() || !replica.waiting.front().begins)) {
    replica.sequence = sequence;
    replica.counts = true;
    replica.starting = false;
    full_.erase(id);
  }
  send(id);
  settle();
  on_replica_();
}

/// Begins the log of a full benefactor anew. Returns false when a snapshot would not fit, either.
bool LogReplicas::begin_anew_if_full(BenefactorId id) {
  const auto pieces = snapshot();
  const std::uint64_t room_bytes = pool_.benefactors().at(id).log_bytes_max;
  if (pieces.empty() || !fits(snapshot_bytes_, room_bytes)) return false;
  // If the host was short of memory, the snapshot must be shorter than the log that did fit.
  const Replica& replica = replicas_.at(id);
  if (snapshot_bytes_ + half(room_bytes) / kSlack > replica.offset) return false;
  start(id, pieces);
  return true;
}

void LogReplicas::drop(BenefactorId id, const Error& why) {
  if (why.code == Code::kNoSpace) {
    const std::uint64_t room_bytes = pool_.benefactors().at(id).log_bytes_max;
    const std::uint64_t needed = 2 * std::max(snapshot_bytes_, replicas_.at(id).offset);
    const Full full{room_bytes, needed, pool_.now() + kSmallPause};
    full_[id] = full;
    log::warning("benefactor {} keeps the metadata log no more: it needs {}, and {}", id.value,
                 format_bytes(needed),
                 full.by_host() ? "its host has no memory for that"
                                : "may have " + format_bytes(room_bytes));
  } else {
    log::warning("benefactor {} keeps the metadata log no more: {}", id.value, describe(why));
  }
  replicas_.erase(id);
  not_before_[id] = pool_.now() + kPause;
  settle_later();
}

// ---- what a person should know ----------------------------------------------------------------

std::uint64_t LogReplicas::items() const {
  return pool_.state().files().size() + pool_.state().chunks().chunk_count();
}

/// A guess of what a snapshot would take now: by the newest snapshot, and by how many files and
/// chunks have come since. A snapshot of far fewer of them says too little.
std::uint64_t LogReplicas::estimated_snapshot_bytes() const {
  constexpr std::uint64_t kTimesMost = 4;
  constexpr std::uint64_t kFileBytes = 250;
  constexpr std::uint64_t kChunkBytes = 120;
  const std::uint64_t now = items();
  if (now <= kTimesMost * snapshot_items_) return snapshot_bytes_ * now / snapshot_items_;
  const State& state = pool_.state();
  return std::max(snapshot_bytes_,
                  state.files().size() * kFileBytes + state.chunks().chunk_count() * kChunkBytes);
}

LogReplicas::Figures LogReplicas::figures() const {
  Figures out;
  out.needed_bytes = 2 * estimated_snapshot_bytes();
  const auto note_room = [&](std::uint64_t bytes) {
    out.room_bytes = out.room_bytes == 0 ? bytes : std::min(out.room_bytes, bytes);
  };
  for (const auto& [id, replica] : replicas_) {
    out.log_bytes = std::max(out.log_bytes, replica.offset);
    note_room(pool_.benefactors().at(id).log_bytes_max);
  }
  for (const auto& [id, full] : full_) {
    if (replicas_.count(id) > 0) continue;
    ++out.full;
    note_room(full.room_bytes);
    out.needed_bytes = std::max(out.needed_bytes, full.needed_bytes);
  }
  if (quorums_.empty()) return out;
  const auto& quorum = quorums_.back().ids;
  const auto known = [](BenefactorId id) { return static_cast<bool>(id); };
  out.quorum = static_cast<std::uint32_t>(std::ranges::count_if(quorum, known));
  const auto now = complete_replicas();
  out.reached = static_cast<std::uint32_t>(
      std::ranges::count_if(quorum, [&](BenefactorId id) { return now.count(id) > 0; }));
  return out;
}

std::vector<std::string> LogReplicas::advice() const {
  std::vector<std::string> out;
  for (auto& [danger, sentence] : dangers()) out.push_back(sentence);
  return out;
}

std::map<LogReplicas::Danger, std::string> LogReplicas::dangers() const {
  std::map<Danger, std::string> out;
  // Silent benefactors may come back with whole logs, so do not warn before all have settled.
  const bool settled = pool_.benefactors_settled();
  const bool starting =
      std::ranges::any_of(replicas_, [](const auto& each) { return each.second.starting; });
  const Figures figures = this->figures();
  const bool standby = !pool_.config().standby.empty();
  if (figures.full > 0 && figures.needed_bytes > figures.room_bytes) {
    out.emplace(
        Danger::kFull,
        fmt::format("The metadata needs {} of memory on a benefactor, and {} benefactors may "
                    "take only {}. Start benefactors with a larger --log-memory, or with "
                    "more memory.",
                    format_bytes(figures.needed_bytes), figures.full,
                    format_bytes(figures.room_bytes)));
  } else if (figures.full > 0) {
    out.emplace(
        Danger::kHostShort,
        fmt::format(
            "The metadata needs {} of memory on a benefactor, and the hosts of {} benefactors are "
            "short of memory. Start benefactors on other hosts, or end other programs there.",
            format_bytes(figures.needed_bytes), figures.full));
  } else if (figures.room_bytes > 0 && figures.needed_bytes > half(figures.room_bytes)) {
    out.emplace(
        Danger::kNearlyFull,
        fmt::format("The metadata needs {} of the {} that a benefactor may take for it. Act before "
                    "it is full: "
                    "start benefactors with a larger --log-memory or more memory, or remove files.",
                    format_bytes(figures.needed_bytes), format_bytes(figures.room_bytes)));
  }
  if (!settled || starting) return out;
  if (standby && count() < limits::kLogCopies) {
    out.emplace(
        Danger::kFewReplicas,
        fmt::format("{} of the {} benefactors that a standby needs keep the metadata: {}", count(),
                    limits::kLogCopies,
                    figures.full > 0 ? "the others have no room for it."
                                     : "start another benefactor, if possible on another host."));
  }
  if (standby && 2 * figures.reached <= figures.quorum) {
    out.emplace(
        Danger::kNoMajority,
        fmt::format("The standby decides by {} benefactors, and {} can be reached: it would "
                    "not take over, and changes wait until more than half are back.",
                    figures.quorum, figures.reached));
  }
  return out;
}

/// Each danger once, until it has passed.
void LogReplicas::log_advice() {
  const auto now = dangers();
  std::erase_if(logged_, [&](Danger danger) { return now.count(danger) == 0; });
  for (const auto& [danger, sentence] : now) {
    if (logged_.insert(danger).second) log::warning("{}", sentence);
  }
}

/// Settles in a later turn: a waiting call may execute commands, and a command may be under way.
void LogReplicas::settle_later() {
  pool_.reactor().schedule_after(Duration::zero(), [this, alive = pool_.alive()] {
    if (!alive.expired()) settle();
  });
}

void LogReplicas::settle() {
  if (settling_) return;
  settling_ = true;
  while (!waiting_.empty()) {
    std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
    for (const auto& [id, replica] : replicas_) {
      if (replica.counts) kept = std::min(kept, replica.sequence);
    }
    if (waiting_.front().first > kept || !agreed(waiting_.front().first)) break;
    const auto done = std::move(waiting_.front().second);
    waiting_.pop_front();
    done();
  }
  settling_ = false;
}

}  // namespace stdchk::manager
