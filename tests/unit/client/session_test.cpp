// A session whose manager and transport are played by the test.
#include "client/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/limits.h"
#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kChunk = 65536;
constexpr BenefactorId kBenefactor{1};
constexpr FileId kFile{7};

struct Host final : SessionHost {
  Host() : window_(std::move(*Window::create(memory_->bytes(), kChunk))) {}
  Shared& shared() override { return shared_; }
  Window& window() override { return window_; }
  const Memory& window_memory() override { return *memory_; }
  Clock& clock() override { return clock_; }
  bool content_cuts() const override { return false; }
  std::uint64_t arena_bytes_total() const override { return limits::kMiB; }
  bool answers(BenefactorId) const override { return true; }
  MapStore& maps() override { return maps_; }
  ClientId client() const override { return ClientId{3}; }
  msg::WriterTotals& totals() override { return totals_; }
  void kick(Session&) override {}
  void kick_after(Session&, Duration) override {}
  void committed(const msg::Commit::Reply&) override {}
  void ended(Session&) override {}
  void promise_broken(const Session&) override {}

 private:
  Shared shared_;
  std::unique_ptr<Memory> memory_ =
      std::move(*Memory::create(Window::memory_bytes(4 * kChunk, kChunk), {}));
  Window window_;
  ManualClock clock_;
  MapStore maps_{shared_, [] { return ClientId{3}; }, [](const auto&, const auto&) {}, [] {}};
  msg::WriterTotals totals_;
};

/// A session of a new file whose bytes are stored, and whose commit is on its way when another
/// manager comes.
struct Interrupted {
  Interrupted() {
    msg::OpenSession request;
    request.parent = kRootFile;
    request.name = "a.N0.T1";
    msg::OpenSession::Reply opened;
    opened.session = SessionId{5};
    opened.attributes.id = kFile;
    opened.grants = {Grant{GrantId{9}, kBenefactor, 0, limits::kMiB}};
    session = std::make_shared<Session>(host, request, opened,
                                        std::make_shared<SeriesNaming>(Naming::kOff));
    {
      const Lock lock(host.shared().mutex);
      std::size_t length = 1000;
      const auto slot = session->begin_write(0, length);
      REQUIRE(slot);
      std::memset((*slot)->data, 1, length);
      REQUIRE(session->end_write(**slot, 0, length) == nullptr);
      const auto begun = session->start_commit(true);
      REQUIRE(begun);
      commit = *begun;
    }
    store();
    sent = plan();
    REQUIRE(sent.size() == 1);
    REQUIRE(std::holds_alternative<msg::Commit>(sent[0].request));
    const Lock lock(host.shared().mutex);
    session->manager_changed();
  }
  ~Interrupted() {
    const Lock lock(host.shared().mutex);
    session->let_go();
  }
  /// What is hashed, then written, as hash threads and the transport do it.
  void store() {
    const Lock lock(host.shared().mutex);
    Work work;
    session->plan(work);
    for (const auto& group : work.hash) {
      for (const OutChunkPtr& chunk : group) session->hashed(chunk);
    }
    Work next;
    session->plan(next);
    REQUIRE(next.write.size() == 1);
    next.write[0]->self.reset();
    session->written(*next.write[0], {});
  }
  std::vector<Work::Call> plan() {
    const Lock lock(host.shared().mutex);
    Work work;
    session->plan(work);
    return std::move(work.calls);
  }
  /// The commit's call ends with the link that it was sent on, and the session asks to go on.
  Work::Call resume() {
    sent[0].done(tl::unexpected(rpc::Failure{{Code::kFenced, 0, "test"}, {}, {}}));
    auto calls = plan();
    REQUIRE(calls.size() == 1);
    const auto* request = std::get_if<msg::ResumeSession>(&calls[0].request);
    REQUIRE(request != nullptr);
    CHECK(request->stored.size() == 1);
    return std::move(calls[0]);
  }
  void lose_benefactor() {
    const Lock lock(host.shared().mutex);
    session->benefactor_gone(kBenefactor);
  }

  Host host;
  std::shared_ptr<Session> session;
  CompletionPtr commit;
  std::vector<Work::Call> sent;
};

msg::ResumeSession::Reply resumed(bool committed) {
  msg::ResumeSession::Reply reply;
  reply.committed = committed;
  reply.attributes.id = kFile;
  reply.attributes.version = committed ? 1 : 0;
  return reply;
}

}  // namespace

TEST_CASE("a commit that was done before a restart is done, whatever has become of a benefactor") {
  Interrupted pool;
  pool.lose_benefactor();
  CHECK_FALSE(pool.commit->done());
  pool.resume().done(msg::Reply{resumed(true)});
  REQUIRE(pool.commit->done());
  CHECK(pool.commit->status->has_value());
  CHECK(pool.session->attributes().version == 1);
}

TEST_CASE("a commit is not said to have failed when nobody knows") {
  Interrupted pool;
  pool.lose_benefactor();
  pool.resume().done(tl::unexpected(rpc::Failure{{Code::kDataLost, 0, "test"}, {}, {}}));
  (void)pool.plan();
  REQUIRE(pool.commit->done());
  CHECK(pool.commit->status->error().code == Code::kFenced);
}

TEST_CASE("what was stored and not committed is lost with its benefactor") {
  Interrupted pool;
  pool.resume().done(msg::Reply{resumed(false)});
  CHECK_FALSE(pool.commit->done());
  pool.lose_benefactor();
  (void)pool.plan();
  REQUIRE(pool.commit->done());
  CHECK(pool.commit->status->error().code == Code::kDataLost);
}

}  // namespace stdchk::client
