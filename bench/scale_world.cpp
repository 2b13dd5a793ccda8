#include "bench/scale_world.h"

#include <algorithm>

#include "bench/measuring.h"
#include "core/messages/codec.h"
#include "manager/journal/journal_codec.h"

namespace stdchk::bench {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSync = 1ms;                  ///< of the journal: one fdatasync
constexpr Duration kOverload = 4s;               ///< a lease would end soon
constexpr std::uint64_t kSnapshotEvery = 20000;  ///< as in sqlite_journal.cpp

}  // namespace

Status CountingJournal::load(Reactor& reactor, const Apply&) {
  reactor_ = &reactor;
  return {};
}

void CountingJournal::append(const manager::Command& command, Durable durable) {
  must(manager::encode_command(command, record_));
  ++records_;
  ++since_snapshot_;
  bytes_ += record_.size();
  waiting_.push_back(std::move(durable));
  if (waiting_.size() > 1) return;
  reactor_->schedule_after(kSync, [this] {
    const auto synced = std::exchange(waiting_, {});
    for (const Durable& each : synced) {
      if (each && reactor_ != nullptr) each({});
    }
  });
}

bool CountingJournal::wants_snapshot() const {
  return since_snapshot_ >= std::max(kSnapshotEvery, 2 * snapshot_records_);
}

void CountingJournal::write_snapshot(std::vector<manager::Command> commands) {
  ++snapshots_;
  since_snapshot_ = 0;
  snapshot_records_ = commands.size();
  taken_.push_back(std::move(commands));
}

// ---- links --------------------------------------------------------------------------------------

/// A Link is the manager's end of the connection to a peer.
class ScaleWorld::Link final : public transport::Link {
 public:
  Link(ScaleWorld& world, std::uint32_t actor) : world_(world), actor_(actor) {}
  ~Link() override {
    if (!world_.stopping_) give_up("the manager has closed a link");
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void set_handler(transport::LinkHandler& handler) override { handler_ = &handler; }
  bool connected() const override { return true; }
  Status send(ByteSpan message) override {
    world_.outbox_.push_back({actor_, {message.begin(), message.end()}});
    return {};
  }
  Status write(std::span<const transport::LocalPiece>, const transport::RemoteKey&, std::uint64_t,
               transport::Operation&) override {
    return fail(Code::kUnsupported, "bench");
  }
  Status read(std::span<const transport::LocalPiece>, const transport::RemoteKey&, std::uint64_t,
              transport::Operation&) override {
    return fail(Code::kUnsupported, "bench");
  }
  bool fence() override { return true; }
  void deliver(ByteSpan message) { handler_->on_message(*this, message); }

 private:
  ScaleWorld& world_;
  const std::uint32_t actor_;
  transport::LinkHandler* handler_ = nullptr;
};

// ---- the world ----------------------------------------------------------------------------------

ScaleWorld::ScaleWorld(manager::Config config)
    : service_(std::make_unique<manager::Service>(reactor_, journal_, std::move(config))) {
  constexpr int kReads = 100000;
  const double before = thread_seconds();
  for (int i = 0; i < kReads; ++i) thread_seconds();
  clock_cost_ = (thread_seconds() - before) / kReads;
  must(service_->start());
}

ScaleWorld::~ScaleWorld() {
  stopping_ = true;
  service_->stop();
  service_.reset();
}

std::uint32_t ScaleWorld::add(Actor& actor) {
  const auto number = static_cast<std::uint32_t>(actors_.size());
  actors_.push_back(&actor);
  auto link = std::make_unique<Link>(*this, number);
  links_.push_back(link.get());
  service_->on_accept(std::move(link));
  return number;
}

void ScaleWorld::schedule(Time at, std::uint32_t actor, std::uint32_t what) {
  events_.push({at, ++events_made_, actor, what});
}

void ScaleWorld::send(std::uint32_t actor, const msg::Envelope& message) {
  inbox_.push_back({actor, {}});
  must(msg::encode(message, inbox_.back().bytes));
}

void ScaleWorld::send_later(std::uint32_t actor, const msg::Envelope& message) {
  late_.push_back({now() + kNetwork, {actor, {}}});
  must(msg::encode(message, late_.back().message.bytes));
}

/// Takes all messages that have arrived by now.
void ScaleWorld::collect() {
  while (!late_.empty() && late_.front().at <= now()) {
    inbox_.push_back(std::move(late_.front().message));
    late_.pop_front();
  }
  while (!events_.empty() && events_.top().at <= now()) {
    const Event due = events_.top();
    events_.pop();
    arrived_ = due.at;
    overloaded_ |= now() - due.at > kOverload;
    actors_[due.actor]->act(due.what);
  }
}

void ScaleWorld::turn() {
  collect();
  const double before = thread_seconds();
  for (const Message& each : inbox_) links_[each.actor]->deliver(each.bytes);
  reactor_.run_once(Duration::zero());
  const double took = std::max(thread_seconds() - before - clock_cost_, 0.0);
  busy_seconds_ += took;
  longest_turn_ = std::max(longest_turn_, took);
  clock_.advance(Duration(static_cast<std::int64_t>(took * 1e9)));
  inbox_.clear();
  journal_.forget_snapshots();
  std::vector<Message> sent;
  sent.swap(outbox_);
  for (const Message& each : sent) actors_[each.actor]->got(must(msg::decode(each.bytes)));
}

void ScaleWorld::run_until(Time end) {
  while (now() < end && !overloaded_) {
    Time next = std::min(end, reactor_.next_timer());
    if (!events_.empty()) next = std::min(next, events_.top().at);
    if (!late_.empty()) next = std::min(next, late_.front().at);
    clock_.advance_to(next);
    turn();
  }
}

}  // namespace stdchk::bench
