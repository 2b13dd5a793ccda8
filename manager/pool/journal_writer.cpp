#include "manager/pool/journal_writer.h"

#include <utility>

namespace stdchk::manager {

JournalWriter::JournalWriter(Journal& journal, State& state, Hooks hooks)
    : journal_(journal), state_(state), hooks_(std::move(hooks)) {}

Status JournalWriter::load(Reactor& reactor) {
  STDCHK_TRY(journal_.load(reactor, [this](const Command& command) -> Status {
    const auto outcome = state_.apply(command);
    if (!outcome) return fail(outcome.error());
    return {};
  }));
  loaded_ = true;
  if (!state_.mirror_queue().empty()) mirror_newest_ = state_.mirror_queue().rbegin()->first;
  state_.take_freed();
  state_.take_unused_stripe_members();
  return {};
}

void JournalWriter::stop() {
  lifetime_.end();
  if (loaded_) journal_.stop();
}

void JournalWriter::execute(Command command, Done done) {
  if (failed_) {
    done(fail(Code::kReadOnly, "manager.journal"));
    return;
  }
  const auto outcome = state_.apply(command);
  if (!outcome) {
    done(outcome);
    return;
  }
  const std::uint64_t sequence = ++appended_;
  const auto& mirror = state_.mirror_queue();
  if (!mirror.empty() && mirror.rbegin()->first > mirror_newest_) {
    mirror_newest_ = mirror.rbegin()->first;
    mirror_appended_[mirror_newest_] = sequence;
  }
  settle_freed();
  if (replicas_ != nullptr) replicas_->append(sequence, command);
  journal_.append(command, [this, alive = lifetime_.watch(), sequence, outcome = *outcome,
                            done = std::move(done)](const Status& status) {
    if (alive.expired()) return;
    if (!status) {
      on_durable(sequence, status);
      return done(fail(status.error()));
    }
    const auto stored = [this, sequence, outcome, done] {
      on_durable(sequence, {});
      done(outcome);
    };
    if (replicas_ == nullptr) return stored();
    replicas_->when_stored(sequence, stored);
  });
}

void JournalWriter::on_durable(std::uint64_t sequence, const Status& status) {
  if (!status) {
    if (close() && hooks_.on_failure) hooks_.on_failure(status.error());
    return;
  }
  durable_ = sequence;
  settle_freed();
  while (!at_durable_.empty() && at_durable_.front().first <= durable_) {
    const auto call = std::move(at_durable_.front().second);
    at_durable_.pop_front();
    call();
  }
  hooks_.on_durable();
}

void JournalWriter::when_durable(std::function<void()> call) {
  if (durable_ == appended_) return call();
  at_durable_.emplace_back(appended_, std::move(call));
}

bool JournalWriter::is_mirror_change_durable(std::uint64_t change) {
  // Changes of one command have consecutive numbers; only the last number was noted.
  const auto noted = mirror_appended_.lower_bound(change);
  if (noted == mirror_appended_.end()) return true;
  if (noted->second > durable_) return false;
  mirror_appended_.erase(mirror_appended_.begin(), std::next(noted));
  return true;
}

void JournalWriter::settle_freed() {
  auto freed = state_.take_freed();
  if (!freed.empty()) to_free_.emplace_back(appended_, std::move(freed));
  while (!to_free_.empty() && to_free_.front().first <= durable_) {
    for (const FreedExtent& one : to_free_.front().second) hooks_.on_freed(one);
    to_free_.pop_front();
  }
}

void JournalWriter::run() {
  // Counts ticks, not time: a pause of this process does not count.
  const bool waits = durable_ < appended_ && durable_ == std::exchange(durable_before_, durable_);
  stuck_ticks_ = waits ? stuck_ticks_ + 1 : 0;
  if (journal_.wants_snapshot()) write_snapshot();
}

void JournalWriter::write_snapshot() {
  std::vector<Command> commands;
  state_.snapshot([&](Command command) { commands.push_back(std::move(command)); });
  journal_.write_snapshot(std::move(commands));
}

}  // namespace stdchk::manager
