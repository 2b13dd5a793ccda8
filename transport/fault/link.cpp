#include "transport/fault/link.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::transport::fault {

namespace {

constexpr std::size_t kOutgoingMax = 256;
constexpr std::size_t kOperationsMax = 256;

}  // namespace

FaultCore::FaultCore(FaultEndpoint& endpoint, LinkHandler* handler, std::string to, Time connect_by)
    : endpoint_(endpoint),
      handler_(handler),
      to_(std::move(to)),
      connect_by_(connect_by),
      announced_(connect_by == Time::max()) {}

FaultCore::~FaultCore() = default;

bool FaultCore::connected() const {
  return announced_ && !closed_ && !closing_ && inner_ != nullptr &&
         (inner_->connected() || stalled());
}

Status FaultCore::send(ByteSpan message) {
  if (!connected()) return fail(Code::kPeerLost, "fault.send");
  if (message.size() > endpoint_.capabilities().message_bytes_max) {
    return fail(Code::kTooLarge, "fault.send");
  }
  const Plan& plan = endpoint_.plan();
  Counts& counts = endpoint_.counts_;
  if (muted_) {
    // An answer was counted when its request was lost.
    const MessageKind kind = endpoint_.kind_of(message);
    if (kind != MessageKind::kAnswer) endpoint_.count_lost(kind);
    return {};
  }
  if (outgoing_.size() >= kOutgoingMax) return fail(Code::kWouldBlock, "fault.send");
  if (endpoint_.draw(plan.drop_ppm, counts.dropped)) {
    endpoint_.count_lost(endpoint_.kind_of(message));
    drop(Code::kPeerLost);
    return {};
  }
  if (endpoint_.draw_loss(message)) return {};
  const Duration delay = endpoint_.draw_delay();
  const std::uint64_t number = endpoint_.next_message();
  const bool waits = holding() || !outgoing_.empty() || delay > Duration::zero();
  if (!waits) STDCHK_TRY(hand_over(number, message));
  const bool repeated = endpoint_.draw(plan.repeat_ppm, counts.repeated);
  for (int copies = (waits ? 1 : 0) + (repeated ? 1 : 0); copies > 0; --copies) {
    outgoing_.push_back(
        {endpoint_.clock().now() + delay, number, {message.begin(), message.end()}});
  }
  return {};
}

Status FaultCore::hand_over(std::uint64_t number, ByteSpan message) {
  STDCHK_TRY(inner_->send(message));
  endpoint_.count_overtaken(*this, number);
  return {};
}

Status FaultCore::start(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                        std::uint64_t offset, Operation& operation) {
  if (pieces.empty() || pieces.size() > kPiecesMax)
    return fail(Code::kInvalidArgument, "fault.rma");
  if (!connected()) return fail(Code::kPeerLost, "fault.rma");
  if (operations_.size() >= kOperationsMax) return fail(Code::kWouldBlock, "fault.rma");
  auto made = std::make_unique<Proxy>(*this);
  Proxy& proxy = *made;
  proxy.user = &operation;
  proxy.write = write;
  std::copy(pieces.begin(), pieces.end(), proxy.pieces.begin());
  proxy.piece_count = pieces.size();
  proxy.key = key;
  proxy.offset = offset;
  proxy.go_on_at = endpoint_.clock().now();
  proxy.end_by = proxy.go_on_at + limits::kRmaDeadline;
  operation.started();
  operations_.push_back(std::move(made));
  choose_faults(proxy);
  return {};
}

/// Repeats the write later with a copy of its bytes. No completion reports its outcome. Returns
/// false if the copy cannot be registered.
bool FaultCore::land_later(const Proxy& proxy) {
  auto made = std::make_unique<Proxy>(*this);
  for (std::size_t i = 0; i < proxy.piece_count; ++i) {
    const LocalPiece& piece = proxy.pieces[i];
    made->bytes.insert(made->bytes.end(), piece.data, piece.data + piece.length);
  }
  auto region = endpoint_.register_memory(made->bytes);
  if (!region) return false;
  made->region = std::move(*region);
  made->write = true;
  made->pieces[0] = {made->bytes.data(), made->bytes.size(), made->region.get()};
  made->piece_count = 1;
  made->key = proxy.key;
  made->offset = proxy.offset;
  const auto most = static_cast<std::uint64_t>(endpoint_.plan().late_max.count());
  made->go_on_at = endpoint_.clock().now() +
                   Duration(static_cast<Duration::rep>(endpoint_.draw_below(most + 1)));
  made->end_by = made->go_on_at + limits::kRmaDeadline;
  operations_.push_back(std::move(made));
  return true;
}

void FaultCore::choose_faults(Proxy& proxy) {
  const Plan& plan = endpoint_.plan();
  Counts& counts = endpoint_.counts_;
  // A delay before the start makes bytes land late; a delay after it makes the completion late.
  const Duration delay = endpoint_.draw_delay();
  if (delay > Duration::zero() && endpoint_.draw_below(2) == 0) {
    proxy.go_on_at += delay;
  } else {
    proxy.delay_after = delay;
  }
  if (endpoint_.draw(plan.drop_ppm, counts.dropped)) return drop(Code::kPeerLost);
  if (endpoint_.draw(plan.fail_ppm, counts.failed)) {
    proxy.fails = true;
    proxy.piece_count = 0;
    return;
  }
  if (!proxy.write) return;
  if (endpoint_.draw(plan.late_ppm, counts.late) && land_later(proxy)) {
    proxy.fails = true;
    proxy.piece_count = 0;
    return;
  }
  LocalPiece& last = proxy.pieces[proxy.piece_count - 1];
  if (endpoint_.draw(plan.tear_ppm, counts.torn)) {
    proxy.fails = true;
    last.length = last.length > 1 ? endpoint_.draw_below(last.length) : 0;
    if (last.length == 0) --proxy.piece_count;
    return;
  }
  if (last.length > 0 && endpoint_.draw(plan.flip_ppm, counts.flipped)) {
    proxy.flipped = last.data + endpoint_.draw_below(last.length);
    proxy.flip_mask = static_cast<std::byte>(1U << endpoint_.draw_below(8));
  }
}

void FaultCore::start_inner(Proxy& proxy) {
  if (proxy.piece_count == 0) {
    proxy.stage = Stage::kDone;
    return;
  }
  const std::span<const LocalPiece> pieces(proxy.pieces.data(), proxy.piece_count);
  // The pieces belong to the transport until the completion. So the bit is flipped in place, and
  // flipped back afterwards.
  if (proxy.flipped != nullptr) *proxy.flipped ^= proxy.flip_mask;
  proxy.stage = Stage::kStarted;
  const Status status = proxy.write ? inner_->write(pieces, proxy.key, proxy.offset, proxy)
                                    : inner_->read(pieces, proxy.key, proxy.offset, proxy);
  if (status.has_value()) return;
  if (proxy.flipped != nullptr) *proxy.flipped ^= proxy.flip_mask;
  proxy.stage = Stage::kHeld;
  if (status.error().code == Code::kWouldBlock) return;  // the next poll() tries again
  proxy.stage = Stage::kDone;
  proxy.result = status;
}

void FaultCore::Proxy::complete(Status status) {
  if (flipped != nullptr) *flipped ^= flip_mask;
  stage = Stage::kDone;
  result = std::move(status);
  go_on_at = core.endpoint_.clock().now() + delay_after;
}

bool FaultCore::fence() {
  closing_ = true;
  close_code_ = Code::kFenced;
  return inner_->fence();
}

void FaultCore::destroy() {
  const auto keep_alive = shared_from_this();
  link_ = nullptr;
  handler_ = nullptr;
  closed_ = true;
  inner_.reset();
  finish_all(Code::kCancelled);
}

void FaultCore::drop(Code code) {
  if (closing_ || closed_) return;
  closing_ = true;
  close_code_ = code;
  for (const Outgoing& each : outgoing_) endpoint_.count_lost(endpoint_.kind_of(each.message));
  outgoing_.clear();
  // Closes the inner link for both sides. fence() may still be called again.
  (void)inner_->fence();
}

void FaultCore::finish_all(Code code) {
  while (!operations_.empty()) {
    const auto proxy = std::move(operations_.front());
    operations_.pop_front();
    // The inner link is closed, so it cannot complete this operation any more.
    STDCHK_ASSERT(!proxy->in_flight());
    if (proxy->user != nullptr) proxy->user->finish(fail(code, "fault.rma"));
  }
}

void FaultCore::on_connected(Link&) { take({.kind = Event::Kind::kConnected}); }

void FaultCore::on_message(Link&, ByteSpan message) {
  take({.kind = Event::Kind::kMessage, .message = {message.begin(), message.end()}});
}

void FaultCore::on_closed(Link&, Error why) {
  if (closing_) why.code = close_code_;
  take({.kind = Event::Kind::kClosed, .why = why});
}

void FaultCore::take(Event event) {
  event.not_before = endpoint_.clock().now();
  // After a drop the handler hears only of the end.
  if (closing_ && event.kind != Event::Kind::kClosed) return;
  events_.push_back(std::move(event));
}

bool FaultCore::poll() {
  if (closed_ || handler_ == nullptr) return false;  // ended, or not handed over yet
  const auto keep_alive = shared_from_this();
  bool any = check_deadlines();
  if (holding()) return any;
  any |= run_messages();
  any |= run_operations();
  if (!closed_) any |= run_events();
  return any;
}

bool FaultCore::check_deadlines() {
  if (closing_) return false;
  const Time now = endpoint_.clock().now();
  const bool late = (!announced_ && now >= connect_by_) ||
                    std::any_of(operations_.begin(), operations_.end(),
                                [&](const auto& proxy) { return now >= proxy->end_by; });
  if (late) drop(Code::kDeadline);
  return late;
}

bool FaultCore::run_messages() {
  bool any = false;
  while (!outgoing_.empty() && !closing_ &&
         outgoing_.front().not_before <= endpoint_.clock().now()) {
    const Status sent = hand_over(outgoing_.front().number, outgoing_.front().message);
    if (!sent.has_value() && sent.error().code == Code::kWouldBlock) break;
    outgoing_.pop_front();
    any = true;
  }
  return any;
}

bool FaultCore::run_operations() {
  bool any = false;
  const Time now = endpoint_.clock().now();
  std::size_t left = operations_.size();  // not the operations that completions start
  for (auto at = operations_.begin(); left > 0; --left) {
    Proxy& proxy = **at;
    if (proxy.stage == Stage::kHeld && proxy.go_on_at <= now && !closing_) {
      start_inner(proxy);
      any |= proxy.stage != Stage::kHeld;
    }
    if (proxy.stage != Stage::kDone || proxy.go_on_at > now) {
      ++at;
      continue;
    }
    const auto done = std::move(*at);
    at = operations_.erase(at);
    any = true;
    if (done->user == nullptr) continue;
    const bool fails = done->fails && done->result.has_value();
    done->user->finish(fails ? Status(fail(Code::kPeerLost, "fault.rma")) : done->result);
    if (destroyed()) return true;
  }
  return any;
}

bool FaultCore::run_events() {
  bool any = false;
  while (!events_.empty() && !closed_ && !holding()) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    any = true;
    deliver(event);
  }
  return any;
}

void FaultCore::deliver(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kConnected:
      announced_ = true;
      return handler_->on_connected(*link_);
    case Event::Kind::kMessage:
      if (closing_) return;
      if (endpoint_.draw(endpoint_.plan().drop_after_ppm, endpoint_.counts_.dropped)) {
        return deliver_last(event.message);
      }
      return handler_->on_message(*link_, event.message);
    case Event::Kind::kClosed:
      closed_ = true;
      finish_all(event.why.code);
      if (!destroyed()) handler_->on_closed(*link_, event.why);
      return;
  }
}

/// Delivers a message, then loses the link. The handler's answers, now or later, are lost.
void FaultCore::deliver_last(ByteSpan message) {
  if (endpoint_.kind_of(message) == MessageKind::kRequest) {
    endpoint_.count_lost(MessageKind::kAnswer);
  }
  muted_ = true;
  handler_->on_message(*link_, message);
  if (!destroyed()) drop(Code::kPeerLost);
}

Time FaultCore::wake_at() const {
  if (closed_ || handler_ == nullptr) return Time::max();  // see poll()
  // A link that is ending has no deadlines.
  Time at = announced_ || closing_ ? Time::max() : connect_by_;
  for (const auto& proxy : operations_) {
    if (!closing_) at = std::min(at, proxy->end_by);
    if (!holding() && proxy->stage != Stage::kStarted) at = std::min(at, proxy->go_on_at);
  }
  if (!holding() && !outgoing_.empty()) at = std::min(at, outgoing_.front().not_before);
  if (!holding() && !events_.empty()) at = std::min(at, events_.front().not_before);
  return at;
}

}  // namespace stdchk::transport::fault
