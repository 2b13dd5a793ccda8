#include "benefactor/copies/stripe_builder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "benefactor/memory/chunk_check.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"

namespace stdchk::benefactor {
namespace {

using namespace std::chrono_literals;
constexpr Duration kQueueFullWait = 1ms;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kMemoryBytes = limits::kStripeDataMax * StripeBuilder::kPartBytes;
static_assert(StripeBuilder::kPartBytes % StripeCoder::kStep == 0);

tl::unexpected<rpc::Failure> refuse(Code code, std::string detail) {
  return tl::unexpected<rpc::Failure>(
      rpc::Failure{Error{code, 0, "benefactor.stripe"}, std::move(detail), Duration{}});
}

}  // namespace

struct StripeBuilder::Request {
  msg::BuildStripe wanted;
  Time deadline{};
  rpc::Responder respond;
  TimerId timer;
  std::uint64_t number = 0;
  StripeCoder coder;
  std::vector<Source*> sources;
  std::uint32_t bytes = 0;  ///< of each output
  std::uint32_t at = 0;     ///< offset of the present part
  std::uint32_t next = 0;   ///< the next input to be read
  std::size_t under_way = 0;
  bool reading = false;
  std::vector<std::unique_ptr<SourceRead>> reads;
  std::vector<std::uint32_t> failed;
  /// The worker uses the members below `abandoned` only under `mutex` and while `abandoned` is
  /// false. The reactor's thread uses them while no worker does.
  Mutex mutex;
  bool abandoned STDCHK_GUARDED_BY(mutex) = false;
  std::vector<std::byte*> have;
  std::vector<std::byte*> make;  ///< in the arena
  std::vector<std::uint32_t> input_crcs;
  std::vector<std::uint32_t> output_crcs;

  std::size_t part_bytes() const { return std::min<std::size_t>(kPartBytes, bytes - at); }
  /// Returns how many bytes of that input are in the present part.
  std::size_t real_bytes(std::uint32_t input) const {
    const std::uint32_t length = std::min(wanted.inputs[input].length, bytes);
    return length > at ? std::min<std::size_t>(length - at, kPartBytes) : 0;
  }
  void work();
};

StripeBuilder::StripeBuilder(Reactor& reactor, Config config)
    : reactor_(reactor),
      config_(std::move(config)),
      memory_(nullptr, &std::free),
      sources_(reactor, config_.access,
               [this](const Source& which, bool attached) { linked(which, attached); }),
      executor_(config_.executor, "stdchk-parity") {}

StripeBuilder::~StripeBuilder() { cancel(); }

void StripeBuilder::cancel() {
  lifetime_.renew();
  reactor_.cancel(retry_);
  waiting_.clear();
  if (current_) {
    reactor_.cancel(current_->timer);
    for (const auto& read : current_->reads) read->forget();
    const MutexLock lock(current_->mutex);
    current_->abandoned = true;
  }
  // Destroying a link ends its reads. That must happen before current_ is released.
  sources_.clear();
  current_.reset();
}

/// Allocates and registers memory for the first request: most pools have no parity.
Status StripeBuilder::make_memory() {
  if (memory_ != nullptr) return {};
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kMemoryBytes)));
  if (memory_ == nullptr) return fail(Code::kNoMemory, "benefactor.stripe");
  std::memset(memory_.get(), 0, kMemoryBytes);
  for (SourceAccess::Way& way : config_.access.ways) {
    auto region = way.endpoint->register_memory({memory_.get(), kMemoryBytes});
    if (!region) {
      memory_.reset();
      regions_.clear();
      return fail(region.error());
    }
    way.region = region->get();
    regions_.push_back(std::move(*region));
  }
  return {};
}

/// Checks the whole request before it changes anything.
Status StripeBuilder::prepare(Request& request) {
  const msg::BuildStripe& wanted = request.wanted;
  constexpr const char* kWhere = "benefactor.stripe";
  std::vector<std::uint8_t> have;
  std::vector<std::uint8_t> make;
  for (const auto& input : wanted.inputs) {
    if (input.number >= limits::kStripeMembersMax || input.source >= wanted.sources.size() ||
        input.length == 0 || input.length > limits::kChunkBytesMax) {
      return fail(Code::kInvalidArgument, kWhere);
    }
    have.push_back(static_cast<std::uint8_t>(input.number));
  }
  request.bytes = wanted.outputs.front().length;
  for (const auto& output : wanted.outputs) {
    STDCHK_TRY(find_extent(config_.arena, {output.to_offset, output.length, 0, {}}));
    if (output.number >= limits::kStripeMembersMax || output.length != request.bytes) {
      return fail(Code::kInvalidArgument, kWhere);
    }
    make.push_back(static_cast<std::uint8_t>(output.number));
    request.make.push_back(config_.arena.data() + output.to_offset + limits::kExtentHeaderBytes);
  }
  STDCHK_ASSIGN(request.coder,
                StripeCoder::create(wanted.data, wanted.parity, std::move(have), std::move(make)));
  STDCHK_TRY(make_memory());
  for (std::size_t i = 0; i < wanted.inputs.size(); ++i) {
    request.have.push_back(memory_.get() + i * kPartBytes);
  }
  request.input_crcs.resize(wanted.inputs.size());
  request.output_crcs.resize(wanted.outputs.size());
  return {};
}

void StripeBuilder::build(msg::BuildStripe wanted, Time deadline, rpc::Responder respond) {
  if (waiting_.size() >= kWaitingMax) {
    return respond(refuse(Code::kBusy, "Too many stripes wait already."));
  }
  auto request = std::make_shared<Request>();
  request->wanted = std::move(wanted);
  request->deadline = deadline;
  request->respond = std::move(respond);
  request->number = ++numbers_made_;
  waiting_.push_back(std::move(request));
  start_next();
}

void StripeBuilder::start_next() {
  while (!current_ && !waiting_.empty()) {
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    if (current_->wanted.outputs.empty()) {
      // An empty request is answered when all earlier requests have ended.
      answer(msg::Reply(msg::BuildStripe::Reply{}));
      continue;
    }
    if (const Status ready = prepare(*current_); !ready) {
      answer(refuse(ready.error().code, "The stripe is not a valid one."));
      continue;
    }
    current_->timer = reactor_.schedule_at(current_->deadline, [this] { end_overdue(); });
    link();
  }
}

/// Attaches to the sources that are not attached; begins to read when all are.
void StripeBuilder::link() {
  const auto request = current_;
  const msg::BuildStripe& wanted = request->wanted;
  for (const msg::BenefactorInfo& info : wanted.sources) {
    request->sources.push_back(&sources_.of(wanted.client, info));
  }
  for (Source* const source : request->sources) {
    if (!source->ready()) source->attach();
    if (current_ != request) return;
  }
  start_reading();
}

void StripeBuilder::linked(const Source& source, bool attached) {
  if (!current_ || current_->reading) return;
  const auto& sources = current_->sources;
  const auto found = std::find(sources.begin(), sources.end(), &source);
  if (found == sources.end()) return;
  if (attached) return start_reading();
  const auto index = static_cast<std::uint32_t>(found - sources.begin());
  log::warning("benefactor {} cannot be reached to read a stripe",
               current_->wanted.sources[index].id.value);
  msg::BuildStripe::Reply reply;
  for (std::uint32_t i = 0; i < current_->wanted.inputs.size(); ++i) {
    if (current_->wanted.inputs[i].source == index) reply.failed.push_back(i);
  }
  answer(msg::Reply(std::move(reply)));
  start_next();
}

/// Begins to read when the last source is ready.
void StripeBuilder::start_reading() {
  Request& request = *current_;
  const auto ready = [](const Source* source) { return source->ready(); };
  if (request.reading || !std::all_of(request.sources.begin(), request.sources.end(), ready))
    return;
  request.reading = true;
  begin_part();
}

void StripeBuilder::begin_part() {
  current_->next = 0;
  current_->reads.clear();
  read_more();
}

void StripeBuilder::read_more() {
  if (!current_ || !current_->reading) return;
  Request& request = *current_;
  while (request.next < request.wanted.inputs.size() && request.failed.empty()) {
    const auto& input = request.wanted.inputs[request.next];
    const std::size_t bytes = request.real_bytes(request.next);
    if (bytes == 0) {
      ++request.next;
      continue;
    }
    Source& source = *request.sources[input.source];
    auto read = std::make_unique<SourceRead>(*this, request.next);
    const MutableByteSpan to(request.have[request.next], bytes);
    const std::uint64_t from = input.offset + limits::kExtentHeaderBytes + request.at;
    const Status started =
        source.ready() ? source.read(from, to, *read) : fail(Code::kPeerLost, "benefactor.stripe");
    if (!started && started.error().code == Code::kWouldBlock) {
      if (request.under_way > 0) return;
      reactor_.cancel(retry_);
      retry_ = reactor_.schedule_after(kQueueFullWait, [this] { read_more(); });
      return;
    }
    ++request.next;
    if (!started) {
      request.failed.push_back(read->index());
      break;
    }
    ++request.under_way;
    request.reads.push_back(std::move(read));
  }
  if (request.under_way > 0) return;
  if (request.failed.empty()) return compute();
  answer(msg::Reply(msg::BuildStripe::Reply{request.failed, {}, {}}));
  start_next();
}

void StripeBuilder::read_done(std::uint32_t index, const Status& status) {
  Request& request = *current_;
  if (!status.has_value()) request.failed.push_back(index);
  --request.under_way;
  read_more();
}

/// Computes one part of every block. Runs on a worker.
void StripeBuilder::Request::work() {
  const std::size_t part = part_bytes();
  const std::size_t steps = StripeCoder::whole_steps(part);
  for (std::uint32_t i = 0; i < have.size(); ++i) {
    const std::size_t real = real_bytes(i);
    std::memset(have[i] + real, 0, steps - real);
    input_crcs[i] = crc32c(input_crcs[i], ByteSpan(have[i], real));
  }
  std::vector<std::byte*> to;
  for (std::byte* const block : make) to.push_back(block + at);
  coder.run(have, to, steps);
  for (std::size_t i = 0; i < make.size(); ++i) {
    output_crcs[i] = crc32c(output_crcs[i], ByteSpan(to[i], part));
  }
  at += static_cast<std::uint32_t>(part);
  if (at < bytes) return;
  for (std::size_t i = 0; i < make.size(); ++i) {
    const auto& output = wanted.outputs[i];
    encode_extent_header({output.name, output.length, output_crcs[i], FileId{}, 0},
                         make[i] - limits::kExtentHeaderBytes);
  }
}

void StripeBuilder::compute() {
  executor_.run([this, request = current_, alive = lifetime_.watch()] {
    {
      const MutexLock lock(request->mutex);
      if (request->abandoned) return;
      request->work();
    }
    // A full queue empties within milliseconds; otherwise the request's deadline ends it.
    (void)reactor_.post([this, alive, number = request->number] {
      if (!alive.expired()) computed(number);
    });
  });
}

void StripeBuilder::computed(std::uint64_t number) {
  if (!current_ || current_->number != number) return;
  Request& request = *current_;
  if (request.at < request.bytes) return begin_part();
  msg::BuildStripe::Reply reply;
  for (std::uint32_t i = 0; i < request.wanted.inputs.size(); ++i) {
    const auto& input = request.wanted.inputs[i];
    // An input longer than the outputs was not read whole; the outputs' own
    // checksums are compared instead.
    if (input.length <= request.bytes && input.crc != request.input_crcs[i]) {
      reply.corrupt.push_back(i);
    }
  }
  if (reply.corrupt.empty()) reply.crcs = request.output_crcs;
  answer(msg::Reply(std::move(reply)));
  start_next();
}

void StripeBuilder::count(const Request& request, const rpc::Answer& answer) const {
  const auto* const reply = answer ? std::get_if<msg::BuildStripe::Reply>(&*answer) : nullptr;
  if (reply == nullptr || !reply->failed.empty() || !reply->corrupt.empty()) {
    config_.counts->builds_failed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  for (const auto& output : request.wanted.outputs) {
    config_.counts->built_bytes.fetch_add(output.length, std::memory_order_relaxed);
  }
}

/// Ends the current request; the caller starts the next one.
void StripeBuilder::answer(rpc::Answer answer) {
  const auto ended = std::exchange(current_, nullptr);
  count(*ended, answer);
  reactor_.cancel(ended->timer);
  ended->respond(std::move(answer));
}

/// Drops the links to the sources, and with them every read of the late request.
void StripeBuilder::end_overdue() {
  log::warning("a stripe was not made in time");
  for (const auto& read : current_->reads) read->forget();
  {
    const MutexLock lock(current_->mutex);
    current_->abandoned = true;
  }
  for (const auto& info : current_->wanted.sources) sources_.erase(info.id);
  answer(refuse(Code::kDeadline, "The sources did not answer in time."));
  start_next();
}

}  // namespace stdchk::benefactor
