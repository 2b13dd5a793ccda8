#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "core/base/executor.h"
#include "core/base/mutex.h"

namespace stdchk::client {

/// A FileWork is one use of a file of the drain directory.
struct FileWork {
  std::uint32_t owner = 0;        ///< the pool's user who owns the file
  std::function<void()> read;     ///< may hang for ever; uses only objects that it owns
  std::function<void()> deliver;  ///< hands over the result of `read`; must not block
};

/// A FileExecutor does FileWork: read, then deliver.
class FileExecutor {
 public:
  virtual ~FileExecutor() = default;
  virtual void run(FileWork work) = 0;
};

/// An ExecutedFiles has any Executor do the work: for simulators and tests.
class ExecutedFiles final : public FileExecutor {
 public:
  explicit ExecutedFiles(Executor& executor) : executor_(executor) {}
  void run(FileWork work) override {
    executor_.run([work = std::move(work)] {
      work.read();
      work.deliver();
    });
  }

 private:
  Executor& executor_;
};

/// A FileThreads does the work on threads of its own, and keeps users apart. If files of one user
/// hang, other users do not wait.
///
/// Each user has kThreadsOfOne threads at most. Further work waits in the user's own queue.
/// While there are fewer than kThreadsForMore threads, a new thread is started for any user. While
/// there are fewer than kThreadsMax, a new thread is started only for a user without a thread.
///
/// Owns: its threads. A thread without work for kIdle ends. The destructor drops waiting work, and
///   waits kEndPatience for running work. A thread that hangs longer is abandoned: it ends with the
///   file system's answer, or with the process, and delivers nothing.
/// Threads: any.
class FileThreads final : public FileExecutor {
 public:
  static constexpr std::size_t kThreadsOfOne = 16;
  static constexpr std::size_t kThreadsForMore = 256;
  static constexpr std::size_t kThreadsMax = 1024;

  FileThreads();
  ~FileThreads() override;
  FileThreads(const FileThreads&) = delete;
  FileThreads& operator=(const FileThreads&) = delete;

  void run(FileWork work) override;
  std::size_t thread_count() const;

 private:
  struct Line {
    std::deque<FileWork> waiting;
    std::size_t running = 0;
  };
  struct State {
    Mutex mutex;
    CondVar changed;
    std::map<std::uint32_t, Line> lines STDCHK_GUARDED_BY(mutex);
    /// The user whose work began last; the next user's work begins next.
    std::uint32_t last_owner STDCHK_GUARDED_BY(mutex) = 0;
    std::size_t threads STDCHK_GUARDED_BY(mutex) = 0;
    std::size_t idle STDCHK_GUARDED_BY(mutex) = 0;
    std::size_t waiting STDCHK_GUARDED_BY(mutex) = 0;  ///< in all lines
    std::size_t reading STDCHK_GUARDED_BY(mutex) = 0;
    std::size_t delivering STDCHK_GUARDED_BY(mutex) = 0;
    bool closed STDCHK_GUARDED_BY(mutex) = false;
  };
  static void serve(const std::shared_ptr<State>& state);
  static bool take(State& state, FileWork& work) STDCHK_REQUIRES(state.mutex);

  const std::shared_ptr<State> state_;
};

}  // namespace stdchk::client
