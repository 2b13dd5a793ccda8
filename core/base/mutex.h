#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

/// Attributes of Clang's thread-safety analysis
/// (https://clang.llvm.org/docs/ThreadSafetyAnalysis.html). Clang with -Wthread-safety refuses code
/// that breaks them; GCC does not see them.
///
/// - STDCHK_GUARDED_BY(mutex): the member is read and written only while `mutex` is held.
/// - STDCHK_POINTER_GUARDED_BY(mutex): the same for the object that the member points to.
/// - STDCHK_REQUIRES(mutex): the caller holds `mutex`. A lambda takes it behind its parameters.
/// - STDCHK_EXCLUDES(mutex): the caller does not hold `mutex`, because the function takes it.
/// - STDCHK_NOT_ANALYSED: the analysis skips the function. A comment there says why.
#if defined(__clang__)
#define STDCHK_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define STDCHK_THREAD_ATTRIBUTE(attribute)
#endif
#define STDCHK_CAPABILITY(kind) STDCHK_THREAD_ATTRIBUTE(capability(kind))
#define STDCHK_SCOPED_CAPABILITY STDCHK_THREAD_ATTRIBUTE(scoped_lockable)
#define STDCHK_GUARDED_BY(mutex) STDCHK_THREAD_ATTRIBUTE(guarded_by(mutex))
#define STDCHK_POINTER_GUARDED_BY(mutex) STDCHK_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
#define STDCHK_REQUIRES(...) STDCHK_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define STDCHK_EXCLUDES(...) STDCHK_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define STDCHK_REQUIRES_SHARED(...) STDCHK_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define STDCHK_ACQUIRE_SHARED(...) STDCHK_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define STDCHK_ACQUIRE(...) STDCHK_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define STDCHK_RELEASE(...) STDCHK_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define STDCHK_TRY_ACQUIRE(...) STDCHK_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define STDCHK_ASSERT_HELD(...) STDCHK_THREAD_ATTRIBUTE(assert_capability(__VA_ARGS__))
#define STDCHK_NOT_ANALYSED STDCHK_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace stdchk {

/// A Mutex is a std::mutex that Clang's thread-safety analysis knows.
class STDCHK_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() STDCHK_ACQUIRE() { mutex_.lock(); }
  void unlock() STDCHK_RELEASE() { mutex_.unlock(); }
  bool try_lock() STDCHK_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// A MutexLock holds a Mutex until its end. unlock() and lock() release and take the mutex earlier.
///
/// Threads: the thread that made it.
class STDCHK_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) STDCHK_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() STDCHK_RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() STDCHK_ACQUIRE() { lock_.lock(); }
  void unlock() STDCHK_RELEASE() { lock_.unlock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

/// A SharedMutex is held by one writer or by several readers: a std::shared_mutex that Clang's
/// thread-safety analysis knows.
class STDCHK_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

 private:
  friend class ReaderLock;
  friend class WriterLock;
  std::shared_mutex mutex_;
};

/// A WriterLock holds a SharedMutex alone until its end.
class STDCHK_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) STDCHK_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~WriterLock() STDCHK_RELEASE() = default;
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  std::unique_lock<std::shared_mutex> lock_;
};

/// A ReaderLock holds a SharedMutex together with other readers until its end.
class STDCHK_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) STDCHK_ACQUIRE_SHARED(mutex) : lock_(mutex.mutex_) {}
  ~ReaderLock() STDCHK_RELEASE() = default;
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

/// A CondVar lets a thread that holds a MutexLock wait until another thread signals a change. A
/// wait without a predicate may end without a signal, so its caller checks the condition in a loop.
/// A predicate names by STDCHK_REQUIRES the mutex that it needs: wait() calls it with that mutex
/// held.
class CondVar {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  template <class Predicate>
  void wait(MutexLock& lock, Predicate predicate) {
    condition_.wait(lock.lock_, std::move(predicate));
  }
  template <class Rep, class Period>
  std::cv_status wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time) {
    return condition_.wait_for(lock.lock_, time);
  }
  /// Returns the value of the predicate at the end.
  template <class Rep, class Period, class Predicate>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time,
                Predicate predicate) {
    return condition_.wait_for(lock.lock_, time, std::move(predicate));
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(MutexLock& lock,
                            const std::chrono::time_point<Clock, Duration>& deadline) {
    return condition_.wait_until(lock.lock_, deadline);
  }
  /// Returns the value of the predicate at the end.
  template <class Clock, class Duration, class Predicate>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& deadline,
                  Predicate predicate) {
    return condition_.wait_until(lock.lock_, deadline, std::move(predicate));
  }

 private:
  std::condition_variable condition_;
};

}  // namespace stdchk
