#include "client/blocking/probe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/net/manager_client.h"
#include "client/net/memory.h"
#include "client/net/peers.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/policy/reserved_names.h"
#include "transport/choice/factory.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLarge = limits::kMiB;
constexpr std::size_t kSmall = 4 * limits::kKiB;
constexpr std::size_t kInFlight = 8;
constexpr std::uint64_t kSpace = kInFlight * kLarge;
constexpr Duration kLargeTime = 400ms;  ///< how long large writes are measured
constexpr Duration kSmallTime = 400ms;
constexpr std::size_t kSmallMost = 500;
constexpr Duration kGoodbye = 50ms;

class OneWrite final : public Transfer {
 public:
  std::optional<Status> ended = Status{};

 protected:
  void finished(Status status) override { ended = std::move(status); }
};

/// A Prober is a client that writes only to measure.
class Prober final : public ManagerListener {
 public:
  Prober(Clock& clock, transport::Endpoints endpoints, const Options& options)
      : clock_(clock), endpoints_(std::move(endpoints)) {
    reactor_ = std::make_unique<Reactor>(clock_);
    std::vector<transport::Endpoint*> data;
    for (const auto& endpoint : endpoints_.data) {
      reactor_->add(*endpoint);
      data.push_back(endpoint.get());
    }
    if (endpoints_.control_only != nullptr) reactor_->add(*endpoints_.control_only);
    ManagerClient::Config config;
    config.address = options.manager_address;
    config.registration.host_token = transport::host_token();
    char name[256] = {};
    ::gethostname(name, sizeof(name) - 1);
    config.registration.host_name = name;
    config.registration.pid = ::getpid();
    config.registration.role = options.role;
    manager_ = std::make_unique<ManagerClient>(*reactor_, *endpoints_.control, config, *this);
    peers_ =
        std::make_unique<Peers>(*reactor_, data, Peers::Config{config.registration.host_token});
    memory_ = Memory::create(kSpace, data);
  }

  ~Prober() override {
    peers_->close();
    manager_->stop();
    const Time until = clock_.now() + kGoodbye;
    while (clock_.now() < until) reactor_->run_once(10ms);
    peers_.reset();
    manager_.reset();
    if (memory_.has_value()) memory_->reset();
    for (const auto& endpoint : endpoints_.data) reactor_->remove(*endpoint);
    if (endpoints_.control_only != nullptr) reactor_->remove(*endpoints_.control_only);
    reactor_.reset();
  }

  Result<std::vector<Probed>> run() {
    if (!memory_.has_value()) return fail(memory_.error());
    manager_->start();
    wait([this] { return registered_.has_value(); }, limits::kCallDeadline);
    if (!registered_.has_value()) return fail(manager_->last_error());
    msg::OpenSession open;
    open.client = manager_->client();
    open.parent = kRootFile;
    open.name = std::string(kDoctorPrefix) + std::to_string(::getpid());
    open.exclusive = true;
    open.mode = 0600;
    STDCHK_ASSIGN(const auto session, ask(open));
    std::vector<Probed> all;
    for (const msg::BenefactorInfo& info : registered_->benefactors) {
      Probed one;
      one.benefactor = info;
      one.status = measure(session.session, one);
      describe_rails(one);
      all.push_back(std::move(one));
    }
    msg::CloseSession close;
    close.session = session.session;
    close.writes_in_flight = a_write_failed_;
    STDCHK_TRY(ask(close));
    return all;
  }

 private:
  void on_registered(const msg::RegisterClient::Reply& reply, bool) override {
    registered_ = reply;
    peers_->set_client(reply.client);
    peers_->update(reply.benefactors);
  }
  void on_invalidate(const msg::Invalidate&) override {}

  void wait(const std::function<bool()>& done, Duration most) {
    const Time until = clock_.now() + most;
    while (!done() && clock_.now() < until) reactor_->run_once(10ms);
  }

  template <class R>
  Result<typename R::Reply> ask(R request) {
    std::optional<rpc::Answer> answer;
    manager_->call(std::move(request), limits::kCallDeadline,
                   [&](rpc::Answer got) { answer = std::move(got); });
    // The call ends by its deadline at the latest.
    while (!answer.has_value()) reactor_->run_once(10ms);
    if (!answer->has_value()) return fail(answer->error().error);
    if (auto* reply = std::get_if<typename R::Reply>(&**answer)) return std::move(*reply);
    return fail(Code::kMalformed, "client.probe");
  }

  /// Gets space on one benefactor.
  Result<Grant> grant_on(SessionId session, BenefactorId benefactor) {
    msg::Place place;
    place.session = session;
    place.want_bytes = kSpace;
    place.unit_bytes = static_cast<std::uint32_t>(extent_bytes(kLarge));
    for (const msg::BenefactorInfo& other : registered_->benefactors) {
      if (other.id != benefactor) place.avoid.push_back(other.id);
    }
    STDCHK_ASSIGN(const auto reply, ask(place));
    for (const Grant& grant : reply.grants) {
      if (grant.benefactor == benefactor && grant.length >= kLarge) return grant;
    }
    return fail(Code::kNoSpace, "client.probe");
  }

  Status measure(SessionId session, Probed& one) {
    const msg::BenefactorInfo& info = one.benefactor;
    if (info.state != msg::BenefactorState::kAlive) return fail(Code::kPeerLost, "client.probe");
    if (info.free_bytes < 4 * kSpace) return fail(Code::kNoSpace, "client.probe");
    STDCHK_ASSIGN(const Grant grant, grant_on(session, info.id));
    OneWrite first;  // brings the link up
    begin(first, grant, 0, kSmall);
    STDCHK_TRY(end(first));
    wait([&] { return is_settled(info.id); }, limits::kConnectDeadline);
    STDCHK_TRY(measure_rate(grant, one));
    return measure_latency(grant, one);
  }

  /// True when no rail is connecting. A rail that connects late would miss the first writes.
  bool is_settled(BenefactorId benefactor) const {
    return std::ranges::none_of(*peers_->rails(benefactor), [](const auto& rail) {
      return rail->state() == Rail::State::kConnecting;
    });
  }

  void begin(OneWrite& write, const Grant& grant, std::size_t slot, std::size_t bytes) {
    const std::size_t at = slot * kLarge % (grant.length / kLarge * kLarge);
    write.is_write = true;
    write.grant = grant;
    write.at = Extent{grant.benefactor, grant.offset + at};
    write.memory = memory_->get();
    write.pieces = {(*memory_)->bytes().subspan(slot * kLarge, bytes), {}};
    write.ended.reset();
    peers_->submit(write);
  }
  /// A transfer ends by its deadline at the latest.
  Status end(OneWrite& write) {
    while (!write.ended.has_value()) reactor_->run_once(10ms);
    if (!write.ended->has_value()) a_write_failed_ = true;
    return *write.ended;
  }

  Status measure_rate(const Grant& grant, Probed& one) {
    std::array<OneWrite, kInFlight> writes;
    std::uint64_t bytes = 0;
    Status status;
    const Time began = clock_.now();
    while (status.has_value() && clock_.now() - began < kLargeTime) {
      for (std::size_t slot = 0; slot < writes.size(); ++slot) {
        if (!writes[slot].ended.has_value()) continue;
        if (!writes[slot].ended->has_value()) status = *writes[slot].ended;
        begin(writes[slot], grant, slot, kLarge);
        bytes += kLarge;
      }
      reactor_->run_once(10ms);
    }
    for (OneWrite& write : writes) {
      const Status last = end(write);
      if (!last.has_value()) status = last;
    }
    STDCHK_TRY(status);
    const double seconds = std::chrono::duration<double>(clock_.now() - began).count();
    one.bytes_per_s = static_cast<double>(bytes) / seconds;
    return {};
  }

  Status measure_latency(const Grant& grant, Probed& one) {
    std::vector<Duration> took;
    const Time began = clock_.now();
    while (took.size() < kSmallMost && clock_.now() - began < kSmallTime) {
      OneWrite write;
      const Time started = clock_.now();
      begin(write, grant, 0, kSmall);
      STDCHK_TRY(end(write));
      took.push_back(clock_.now() - started);
    }
    std::ranges::sort(took);
    one.latency_median = took[took.size() / 2];
    one.latency_p99 = took[took.size() * 99 / 100];
    return {};
  }

  void describe_rails(Probed& one) {
    const auto* rails = peers_->rails(one.benefactor.id);
    if (rails == nullptr) return;
    for (const auto& rail : *rails) {
      ProbedRail found{rail->address(), std::string(rail->transport())};
      found.used = rail->state() == Rail::State::kReady;
      found.why_not = rail->last_error();
      if (rail->state() == Rail::State::kIdle) found.why_not = Error{Code::kWouldBlock, 0, ""};
      one.rails.push_back(std::move(found));
    }
  }

  Clock& clock_;
  transport::Endpoints endpoints_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<ManagerClient> manager_;
  std::unique_ptr<Peers> peers_;
  Result<std::unique_ptr<Memory>> memory_ = std::unique_ptr<Memory>();
  std::optional<msg::RegisterClient::Reply> registered_;
  bool a_write_failed_ = false;
};

}  // namespace

Result<std::vector<Probed>> probe(const Options& options) {
  SystemClock clock;
  STDCHK_ASSIGN(auto endpoints,
                transport::open_endpoints(
                    options.transport, options.manager_address,
                    {.clock = &clock, .identity = options.keyring, .pinned_bytes = kSpace}));
  return Prober(clock, std::move(endpoints), options).run();
}

}  // namespace stdchk::client
