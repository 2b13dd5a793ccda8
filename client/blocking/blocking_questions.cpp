#include "client/blocking/blocking_questions.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "core/base/back_off.h"
#include "core/base/limits.h"
#include "core/base/mutex.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

/// The longest sleep before the deadline is checked again: `clock_` need not be the system's clock.
constexpr Duration kWaitMax = 100ms;

}  // namespace

Time BlockingQuestions::deadline() const { return clock_.now() + limits::kOperationDeadline; }

Status BlockingQuestions::wait(Lock& lock, Time until, const std::function<Status()>& step,
                               CondVar* changed) {
  CondVar& signal = changed == nullptr ? engine_->shared().changed : *changed;
  for (;;) {
    Status status = step();
    if (status.has_value() || status.error().code != Code::kWouldBlock) return status;
    if (clock_.now() >= until) {
      if (!engine_->registration().manager_up) return fail(Code::kManagerLost, "client.manager");
      return fail(Code::kDeadline, "client.wait");
    }
    signal.wait_for(lock, kWaitMax);
  }
}

/// The manager executes the requests of a client in order, so the attributes are those after the
/// change. They come before the answer, which waits for the journal. So the kernel's next question
/// for the attributes of a changed directory needs no request of its own.
rpc::Answer BlockingQuestions::ask_and_refresh(msg::Request request,
                                               const std::vector<FileId>& directories,
                                               OnAnswer on_answer) {
  // Waits on a lock and a condition of its own: the engine's would wake every other waiting thread.
  struct Waiting {
    Mutex mutex;
    CondVar answered;
    std::optional<rpc::Answer> answer;
  };
  auto waiting = std::make_shared<Waiting>();
  const Time until = deadline();
  {
    const Lock lock(engine_->shared().mutex);
    engine_->call(std::move(request),
                  [waiting, on_answer = std::move(on_answer)](rpc::Answer answer) {
                    if (on_answer) on_answer(answer);
                    {
                      const MutexLock inner(waiting->mutex);
                      waiting->answer = std::move(answer);
                    }
                    waiting->answered.notify_one();
                  });
    for (const FileId directory : directories) {
      engine_->call(msg::GetAttributes{engine_->client(), directory},
                    put_attributes<msg::GetAttributes>());
    }
  }
  MutexLock lock(waiting->mutex);
  while (!waiting->answer.has_value()) {
    if (clock_.now() >= until) {
      return tl::unexpected(rpc::Failure{{Code::kManagerLost, 0, "client.call"}, {}, {}});
    }
    waiting->answered.wait_for(lock, kWaitMax);
  }
  return std::move(*waiting->answer);
}

void BlockingQuestions::lock(const msg::SetLock& request, LockDone done) {
  const Lock lock(engine_->shared().mutex);
  engine_->locks().lock(request, std::move(done));
}

void BlockingQuestions::cancel_lock(std::uint64_t ticket) {
  const Lock lock(engine_->shared().mutex);
  engine_->locks().cancel(ticket);
}

Result<msg::GetLock::Reply> BlockingQuestions::get_lock(msg::GetLock request) {
  return ask_for(std::move(request));
}

Result<msg::ListSets::Reply> BlockingQuestions::sets(FileId directory) {
  return ask_for(msg::ListSets{directory});
}

Result<msg::GetDebt::Reply> BlockingQuestions::debt(FileId file, Version version) {
  return ask_for(msg::GetDebt{file, version});
}

/// The manager counts granted space as used. This process may still fill the part of its grants that
/// no chunk has taken, so the reply counts that part as free. Already the opening of a file for
/// writing takes a grant: statfs(2) would otherwise show less space than the file can use.
Result<msg::StatPool::Reply> BlockingQuestions::stat_pool() {
  STDCHK_ASSIGN(msg::StatPool::Reply pool, ask_for(msg::StatPool{}));
  std::uint64_t unused_bytes = 0;
  {
    const Lock lock(engine_->shared().mutex);
    engine_->sessions().each([&](Session& session) STDCHK_REQUIRES(engine_lock) {
      unused_bytes += session.writer().unused_bytes();
    });
  }
  const std::uint64_t free_bytes = pool.free_bytes + pool.evictable_bytes;
  pool.free_bytes +=
      std::min(unused_bytes, pool.total_bytes - std::min(pool.total_bytes, free_bytes));
  return pool;
}

Result<std::pair<Attributes, ChunkMap>> BlockingQuestions::map(FileId file) {
  Lock lock(engine_->shared().mutex);
  VersionMapPtr map = engine_->maps().open(file);
  const Status loaded = wait(lock, deadline(), [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    if (map->error.has_value()) return fail(*map->error);
    if (map->complete) return {};
    engine_->maps().load_next(map);
    return fail(Code::kWouldBlock, "client.map");
  });
  STDCHK_TRY(loaded);
  return std::pair(map->attributes, map->map.unpacked());
}

Result<std::vector<msg::BenefactorInfo>> BlockingQuestions::benefactors() {
  STDCHK_ASSIGN(auto reply, ask_for(msg::ListBenefactors{}));
  return std::move(reply.benefactors);
}

Result<msg::DrainNow::Reply> BlockingQuestions::drain(FileId below) {
  return ask_for(msg::DrainNow{below});
}

Status BlockingQuestions::wait_redundant(FileId file, Version version) {
  std::uint64_t least = ~std::uint64_t{0};
  Time until = deadline();
  for (BackOff back_off(5ms, 200ms);;) {
    const auto debt = ask_for(msg::GetDebt{file, version});
    // A newer version has replaced this one, and its own close waits for its copies.
    if (!debt && debt.error().code == Code::kStale) return {};
    if (!debt) return fail(debt.error());
    if (debt->chunks == 0) return {};
    if (debt->impossible) return fail(Code::kNoSpace, "client.copies: too few benefactors");
    if (debt->bytes < least) until = deadline();
    least = std::min(least, debt->bytes);
    if (clock_.now() >= until) return fail(Code::kDeadline, "client.copies");
    std::this_thread::sleep_for(back_off.next());
  }
}

Result<std::vector<msg::ListAborted::Entry>> BlockingQuestions::aborted() {
  STDCHK_ASSIGN(auto reply, ask_for(msg::ListAborted{}));
  return std::move(reply.entries);
}

}  // namespace stdchk::client
