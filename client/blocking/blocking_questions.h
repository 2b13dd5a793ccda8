#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/api/filesystem.h"
#include "client/engine/engine.h"
#include "core/base/clock.h"

namespace stdchk::client {

/// A BlockingQuestions is the part of a Filesystem that asks the manager and waits for answers:
/// about the pool, versions and locks. It caches the attributes of directories that a request
/// changes, and nothing else.
///
/// Owns: the engine, which the derived class makes and destroys.
/// Threads: any.
class BlockingQuestions : public Filesystem {
 public:
  Result<msg::ListSets::Reply> sets(FileId directory) override;
  Result<msg::StatPool::Reply> stat_pool() override;
  Result<msg::GetDebt::Reply> debt(FileId file, Version version) override;
  Result<std::pair<Attributes, ChunkMap>> map(FileId file) override;
  Result<std::vector<msg::BenefactorInfo>> benefactors() override;
  Result<msg::DrainNow::Reply> drain(FileId below) override;
  Result<std::vector<msg::ListAborted::Entry>> aborted() override;
  void lock(const msg::SetLock& request, LockDone done) override;
  void cancel_lock(std::uint64_t ticket) override;
  Result<msg::GetLock::Reply> get_lock(msg::GetLock request) override;
  Result<msg::Reply> ask(msg::Request request) override {
    auto answer = answer_to(std::move(request));
    if (!answer.has_value()) return fail(answer.error().error);
    return std::move(*answer);
  }
  /// Waits until `version` of the file has all its copies. The deadline starts anew whenever copies
  /// are made. Must be called without the lock.
  Status wait_redundant(FileId file, Version version) STDCHK_EXCLUDES(engine_lock);

  Engine& engine() const { return *engine_; }
  /// Calls `step` with the lock held until it returns anything but kWouldBlock, or until the
  /// deadline. Calls it again when `changed` is signalled; nullptr stands for Shared::changed.
  Status wait(Lock& lock, Time deadline, const std::function<Status()>& step,
              CondVar* changed = nullptr) STDCHK_REQUIRES(engine_lock);
  Time deadline() const;

 protected:
  explicit BlockingQuestions(Clock& clock) : clock_(clock) {}

  Clock& clock() const { return clock_; }
  void set_engine(std::unique_ptr<Engine> engine) { engine_ = std::move(engine); }
  /// Asks as ask(), and returns the manager's explanation of a failure, too.
  rpc::Answer answer_to(msg::Request request) {
    return ask_and_refresh(std::move(request), {}, {});
  }
  /// Sees an answer before the caller gets it: on the link's thread, so in the order of the manager's
  /// notices. A cache that it fills holds nothing older than an earlier notice. Must not wait. May run
  /// after the caller has given up.
  using OnAnswer = std::function<void(const rpc::Answer&)>;
  /// Returns the reply to a request of type R, or nullptr for an error and for any other reply.
  template <class R>
  static const typename R::Reply* reply_to(const rpc::Answer& answer) {
    return answer.has_value() ? std::get_if<typename R::Reply>(&*answer) : nullptr;
  }
  /// Returns an OnAnswer that puts the attributes of a reply to R into the cache. Before, and also on
  /// an error, it drops the cached attributes of `stale`. Answers that the manager gave earlier, and
  /// that come later, do not replace the new attributes.
  template <class R>
  OnAnswer put_attributes(FileId stale = {}) {
    return [this, stale](const rpc::Answer& answer) {
      const auto* reply = reply_to<R>(answer);
      const Lock lock(engine().shared().mutex);
      if (stale) engine().metadata().forget_file(stale);
      if (reply != nullptr && reply->attributes.id) engine().metadata().put(reply->attributes);
    };
  }
  /// Asks as this client, and returns the reply that belongs to the type of the request. Also asks
  /// for the attributes of `directories`, which the request changes. The ManagerClient fills in the
  /// number of this client.
  template <class R>
  Result<typename R::Reply> ask_for(R request, const std::vector<FileId>& directories = {},
                                    OnAnswer on_answer = {}) {
    static_assert(msg::may_ask_again(R::kKind) || R::kKind == msg::RequestKind::kChangesNames);
    auto answer = ask_and_refresh(std::move(request), directories, std::move(on_answer));
    if (!answer.has_value()) return fail(answer.error().error);
    auto* reply = std::get_if<typename R::Reply>(&*answer);
    if (reply == nullptr) return fail(Code::kMalformed, R::kName);
    return std::move(*reply);
  }

 private:
  rpc::Answer ask_and_refresh(msg::Request request, const std::vector<FileId>& directories,
                              OnAnswer on_answer);

  Clock& clock_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace stdchk::client
