#include "manager/drain/drained_fingerprints.h"

#include <sys/stat.h>

#include <chrono>
#include <deque>
#include <utility>

#include "core/base/file_time.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "core/files/drain_directory.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;

std::vector<FileFingerprint> fingerprints_of(const DrainDirectory& directory,
                                             const std::vector<std::string>& paths) {
  std::vector<FileFingerprint> fingerprints(paths.size());
  const auto root = directory.open();
  if (!root) return fingerprints;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto there = root->status(paths[i]);
    if (there && S_ISREG(there->st_mode)) fingerprints[i] = {there->st_ino, to_ns(there->st_ctim)};
  }
  return fingerprints;
}

}  // namespace

struct DrainedFingerprints::Shared {
  struct Look {
    std::uint64_t number = 0;
    std::vector<std::string> paths;
  };
  explicit Shared(std::string path) : directory(std::move(path)) {}

  const DrainDirectory directory;  ///< of the thread alone
  Mutex mutex;
  CondVar changed;
  DrainedFingerprints* owner STDCHK_GUARDED_BY(mutex) = nullptr;  ///< null: the thread ends
  bool ended STDCHK_GUARDED_BY(mutex) = false;
  std::deque<Look> looks STDCHK_GUARDED_BY(mutex);
};

DrainedFingerprints::DrainedFingerprints(Reactor& reactor, std::string directory)
    : reactor_(reactor), shared_(std::make_shared<Shared>(std::move(directory))) {
  {
    const MutexLock lock(shared_->mutex);
    shared_->owner = this;
  }
  thread_ = start_without_signals([shared = shared_] { run(shared); });
}

DrainedFingerprints::~DrainedFingerprints() {
  for (const auto& [number, waiting] : waiting_) reactor_.cancel(waiting.timer);
  bool ended = false;
  {
    MutexLock lock(shared_->mutex);
    shared_->owner = nullptr;
    shared_->changed.notify_all();
    ended = shared_->changed.wait_for(
        lock, 1s, [this]() STDCHK_REQUIRES(shared_->mutex) { return shared_->ended; });
  }
  ended ? thread_.join() : thread_.detach();
}

void DrainedFingerprints::read(std::vector<std::string> paths, Duration limit, Done done) {
  const std::uint64_t number = ++looks_made_;
  const TimerId timer =
      reactor_.schedule_after(limit, [this, number] { finish(number, std::nullopt); });
  waiting_.emplace(number, Waiting{std::move(done), timer});
  const MutexLock lock(shared_->mutex);
  shared_->looks.push_back({number, std::move(paths)});
  shared_->changed.notify_all();
}

void DrainedFingerprints::finish(std::uint64_t number,
                                 const std::optional<std::vector<FileFingerprint>>& fingerprints) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  reactor_.cancel(waiting.timer);
  // Without a waiting caller, a look not yet begun is dropped: storage is spared.
  if (!fingerprints) {
    const MutexLock lock(shared_->mutex);
    std::erase_if(shared_->looks, [&](const auto& look) { return look.number == number; });
  }
  waiting.done(fingerprints);
}

void DrainedFingerprints::run(const std::shared_ptr<Shared>& shared) {
  for (;;) {
    Shared::Look look;
    {
      MutexLock lock(shared->mutex);
      shared->changed.wait(lock, [&]() STDCHK_REQUIRES(shared->mutex) {
        return shared->owner == nullptr || !shared->looks.empty();
      });
      if (shared->owner == nullptr) break;
      look = std::move(shared->looks.front());
      shared->looks.pop_front();
    }
    auto fingerprints = fingerprints_of(shared->directory, look.paths);
    const MutexLock lock(shared->mutex);
    if (shared->owner == nullptr) break;
    // When the reactor has no room, the look's timer answers.
    (void)shared->owner->reactor_.post(
        [shared, number = look.number, fingerprints = std::move(fingerprints)] {
          DrainedFingerprints* owner = nullptr;
          {
            const MutexLock again(shared->mutex);
            owner = shared->owner;
          }
          // The owner ends on this thread only.
          if (owner != nullptr) owner->finish(number, fingerprints);
        });
  }
  const MutexLock lock(shared->mutex);
  shared->ended = true;
  shared->changed.notify_all();
}

}  // namespace stdchk::manager
