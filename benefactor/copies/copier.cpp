#include "benefactor/copies/copier.h"

#include <algorithm>
#include <array>
#include <utility>

#include "benefactor/memory/chunk_check.h"
#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::benefactor {
namespace {

using namespace std::chrono_literals;
constexpr Duration kQueueFullWait = 1ms;

tl::unexpected<rpc::Failure> refuse(Code code, std::string detail) {
  return tl::unexpected<rpc::Failure>(
      rpc::Failure{Error{code, 0, "benefactor.copy"}, std::move(detail), Duration{}});
}

ExpectedChunk expected_at(std::uint64_t offset, const msg::CopyExtents::Copy& copy) {
  return {offset, copy.length, copy.crc, copy.name};
}

/// Returns true when the copy in the arena is the expected chunk, by its name if it has one.
bool has_expected_content(ByteSpan arena, const msg::CopyExtents::Copy& copy) {
  const ExpectedChunk expected = expected_at(copy.to_offset, copy);
  const auto extent = find_extent(arena, expected);
  return extent && check_chunk(*extent, expected);
}

}  // namespace

struct Copier::Request {
  msg::CopyExtents wanted;
  Time deadline{};
  rpc::Responder respond;
  TimerId timer;
  Source* source = nullptr;
  std::uint32_t next = 0;
  std::vector<std::unique_ptr<SourceRead>> reads;
  std::size_t under_way = 0;
  bool reading = false;
  std::vector<bool> came;
};

Copier::Copier(Reactor& reactor, Config config)
    : reactor_(reactor),
      config_(std::move(config)),
      sources_(reactor, config_.access,
               [this](const Source& which, bool attached) { linked(which, attached); }),
      executor_(config_.executor, "stdchk-copy") {}

Copier::~Copier() { cancel(); }

void Copier::cancel() {
  lifetime_.renew();
  reactor_.cancel(retry_);
  for (const auto& request : waiting_) reactor_.cancel(request->timer);
  waiting_.clear();
  if (current_) {
    reactor_.cancel(current_->timer);
    for (const auto& read : current_->reads) read->forget();
  }
  // Destroying a link ends its reads. That must happen before current_ is destroyed.
  sources_.clear();
  current_.reset();
  checking_.clear();
}

void Copier::copy(msg::CopyExtents wanted, Time deadline, rpc::Responder respond) {
  if (waiting_.size() >= kWaitingMax) {
    return respond(refuse(Code::kBusy, "Too many copies wait already."));
  }
  auto request = std::make_unique<Request>();
  request->came.resize(wanted.copies.size());
  request->wanted = std::move(wanted);
  request->deadline = deadline;
  request->respond = std::move(respond);
  waiting_.push_back(std::move(request));
  start_next();
}

void Copier::start_next() {
  while (!current_ && !waiting_.empty()) {
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    Request& request = *current_;
    if (request.wanted.copies.empty()) {
      // An empty request is answered when all earlier requests have ended their reads.
      request.respond(msg::Reply(msg::CopyExtents::Reply{}));
      current_.reset();
      continue;
    }
    request.timer = reactor_.schedule_at(request.deadline, [this] { end_overdue(); });
    request.source = &sources_.of(request.wanted.client, request.wanted.source);
    if (request.source->ready()) {
      linked(*request.source, true);
    } else {
      request.source->attach();
    }
  }
}

/// Drops the link, and with it every read of the late request.
void Copier::end_overdue() {
  log::warning("copies from benefactor {} were not made in time", current_->wanted.source.id.value);
  for (const auto& read : current_->reads) read->forget();
  sources_.erase(current_->wanted.source.id);
  current_->respond(refuse(Code::kDeadline, "The source did not answer in time."));
  current_.reset();
  start_next();
}

void Copier::linked(const Source& source, bool attached) {
  if (!current_ || current_->source != &source || current_->reading) return;
  current_->reading = true;
  if (!attached) {
    log::warning("benefactor {} cannot be reached to copy from it",
                 current_->wanted.source.id.value);
    current_->next = static_cast<std::uint32_t>(current_->wanted.copies.size());
  }
  read_more();
}

void Copier::read_more() {
  if (!current_ || !current_->reading) return;
  Request& request = *current_;
  const auto& copies = request.wanted.copies;
  while (request.next < copies.size() && request.under_way < kReadsMax) {
    const auto& copy = copies[request.next];
    const auto there = find_extent(config_.arena, expected_at(copy.to_offset, copy));
    if (!there || !request.source->ready()) {
      ++request.next;
      continue;
    }
    const MutableByteSpan to = config_.arena.subspan(copy.to_offset, there->size());
    auto read = std::make_unique<SourceRead>(*this, request.next);
    const Status started = request.source->read(copy.from_offset, to, *read);
    if (!started && started.error().code == Code::kWouldBlock) {
      if (request.under_way > 0) return;
      reactor_.cancel(retry_);
      retry_ = reactor_.schedule_after(kQueueFullWait, [this] { read_more(); });
      return;
    }
    ++request.next;
    if (!started) continue;
    ++request.under_way;
    request.reads.push_back(std::move(read));
  }
  if (request.under_way > 0) return;
  check();
  start_next();
}

void Copier::read_done(std::uint32_t index, const Status& status) {
  Request& request = *current_;
  request.came[index] = status.has_value();
  --request.under_way;
  read_more();
}

/// Hands the check to a worker, because it hashes; checks only copies whose reads succeeded.
void Copier::check() {
  reactor_.cancel(current_->timer);
  const std::uint64_t number = ++checks_made_;
  checking_.emplace(number, std::move(current_->respond));
  executor_.run([this, number, copies = std::move(current_->wanted.copies),
                 came = std::move(current_->came), alive = lifetime_.watch()] {
    msg::CopyExtents::Reply reply;
    for (std::uint32_t i = 0; i < copies.size(); ++i) {
      if (!came[i]) {
        reply.failed.push_back(i);
      } else if (!has_expected_content(config_.arena, copies[i])) {
        reply.corrupt.push_back(i);
      } else {
        config_.counts->copied_bytes.fetch_add(copies[i].length, std::memory_order_relaxed);
      }
    }
    config_.counts->copies_failed.fetch_add(reply.failed.size() + reply.corrupt.size(),
                                            std::memory_order_relaxed);
    // A full queue empties within milliseconds; otherwise the caller's deadline ends the request.
    (void)reactor_.post([this, number, alive, reply = std::move(reply)]() mutable {
      if (!alive.expired()) checked(number, std::move(reply));
    });
  });
  current_.reset();
}

void Copier::checked(std::uint64_t number, msg::CopyExtents::Reply reply) {
  auto responder = checking_.extract(number);
  if (!responder.empty()) responder.mapped()(msg::Reply(std::move(reply)));
}

}  // namespace stdchk::benefactor
