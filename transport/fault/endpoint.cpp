#include <algorithm>

#include "transport/fault/link.h"

namespace stdchk::transport::fault {

Counts& Counts::operator+=(const Counts& other) {
  delayed += other.delayed;
  failed += other.failed;
  torn += other.torn;
  late += other.late;
  flipped += other.flipped;
  dropped += other.dropped;
  requests_lost += other.requests_lost;
  answers_lost += other.answers_lost;
  others_lost += other.others_lost;
  messages_lost += other.messages_lost;
  repeated += other.repeated;
  overtaken += other.overtaken;
  return *this;
}

FaultEndpoint::FaultEndpoint(std::unique_ptr<Endpoint> inner, Clock& clock, std::uint64_t seed)
    : inner_(std::move(inner)), clock_(clock), prng_(seed) {}

FaultEndpoint::~FaultEndpoint() {
  waiting_.clear();
  STDCHK_ASSERT(link_count() == 0);
  links_.clear();
}

std::size_t FaultEndpoint::link_count() const {
  return static_cast<std::size_t>(std::count_if(
      links_.begin(), links_.end(), [](const auto& link) { return !link->destroyed(); }));
}

bool FaultEndpoint::draw(std::uint32_t ppm, std::uint64_t& count) {
  if (ppm == 0 || !prng_.chance(ppm, 1000000)) return false;
  ++count;
  return true;
}

Duration FaultEndpoint::draw_delay() {
  if (!draw(plan_.delay_ppm, counts_.delayed)) return Duration::zero();
  return Duration(static_cast<Duration::rep>(
      prng_.below(static_cast<std::uint64_t>(plan_.delay_max.count()) + 1)));
}

MessageKind FaultEndpoint::kind_of(ByteSpan message) const {
  return kind_of_ == nullptr ? MessageKind::kOther : kind_of_(message);
}

void FaultEndpoint::count_lost(MessageKind kind) {
  switch (kind) {
    case MessageKind::kRequest:
      ++counts_.requests_lost;
      return;
    case MessageKind::kAnswer:
      ++counts_.answers_lost;
      return;
    case MessageKind::kOther:
      ++counts_.others_lost;
      return;
  }
}

/// Decides whether to lose a message. Spares messages without an answer, because their senders
/// cannot notice a loss.
bool FaultEndpoint::draw_loss(ByteSpan message) {
  if (plan_.lose_ppm == 0 || !prng_.chance(plan_.lose_ppm, 1000000)) return false;
  if (kind_of(message) == MessageKind::kOther) return false;
  ++counts_.messages_lost;
  return true;
}

void FaultEndpoint::count_overtaken(const FaultCore& link, std::uint64_t number) {
  for (const auto& other : links_) {
    const bool waits = !other->destroyed() && other->first_waiting() < number;
    if (waits && other.get() != &link) ++counts_.overtaken;
  }
}

void FaultEndpoint::drop_links() {
  for (const auto& link : links_) {
    if (link->destroyed()) continue;
    ++counts_.dropped;
    link->drop(Code::kPeerLost);
  }
}

void FaultEndpoint::stall(bool on) { stalled_ = on; }

void FaultEndpoint::stall_to(const std::string& address, bool on) {
  if (on) {
    stalled_to_.insert(address);
  } else {
    stalled_to_.erase(address);
  }
}

Status FaultEndpoint::listen(AcceptHandler& handler) {
  accept_handler_ = &handler;
  return inner_->listen(*this);
}

Result<std::unique_ptr<Link>> FaultEndpoint::start_link(std::string_view address,
                                                        LinkHandler& handler, Duration deadline,
                                                        const secure::Ticket* ticket) {
  auto core =
      std::make_shared<FaultCore>(*this, &handler, std::string(address), clock_.now() + deadline);
  STDCHK_ASSIGN(auto inner, inner_->connect(address, *core, deadline, ticket));
  core->set_inner(std::move(inner));
  links_.push_back(core);
  return std::make_unique<FaultLink>(std::move(core));
}

void FaultEndpoint::on_accept(std::unique_ptr<Link> inner) {
  auto core = std::make_shared<FaultCore>(*this, nullptr, std::string(), Time::max());
  inner->set_handler(*core);
  core->set_inner(std::move(inner));
  links_.push_back(core);
  waiting_.push_back(std::make_unique<FaultLink>(std::move(core)));
}

bool FaultEndpoint::hand_over() {
  bool any = false;
  while (!stalled_ && !waiting_.empty()) {
    auto link = std::move(waiting_.front());
    waiting_.pop_front();
    accept_handler_->on_accept(std::move(link));
    any = true;
  }
  return any;
}

Result<std::unique_ptr<MemoryRegion>> FaultEndpoint::register_memory(MutableByteSpan memory) {
  if (plan_.no_memory) return fail(Code::kNoMemory, "fault.register");
  return inner_->register_memory(memory);
}

bool FaultEndpoint::poll() {
  // The inner endpoint is polled even while stalled, because operations under way would end anyway.
  bool any = inner_->poll();
  any |= hand_over();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const auto link = links_[i];
    any |= link->poll();
  }
  std::erase_if(links_, [](const auto& link) { return link->destroyed(); });
  return any;
}

bool FaultEndpoint::may_sleep() { return inner_->may_sleep() && sleep_max() > Duration::zero(); }

Duration FaultEndpoint::sleep_max() const {
  Duration longest = inner_->sleep_max();
  for (const auto& link : links_) {
    const Time at = link->wake_at();
    if (at != Time::max()) longest = std::min(longest, at - clock_.now());
  }
  return longest;
}

}  // namespace stdchk::transport::fault
