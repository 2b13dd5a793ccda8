#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "container/box/loop_device.h"
#include "container/criu/criu.h"
#include "core/base/descriptor.h"

namespace stdchk::container {

/// A LazyMemory gives the processes of a restored container their memory while they run. CRIU reads
/// it from the container's image in the pool: a page when a process touches the page, and the other
/// pages meanwhile.
///
/// Owns: the files of CRIU in its folder, loop devices on the image, and a thread that waits for
///   CRIU's program. All but the folder ends when the memory is loaded.
/// Threads: start(), guard() and the destructor: one at a time; is_loading(): any.
/// Errors: when the memory cannot be loaded, the container's process 1 is killed. A thread that
///   touches an absent page waits for that end (FaultCopies). After such an error, the coordinator
///   restarts the job from its set.
class LazyMemory {
 public:
  /// Prepares the folder for Criu::restore(): all of the image but its memory. `archive` is the
  /// container's image in the pool.
  static Outcome<std::unique_ptr<LazyMemory>> start(const Criu& criu, const std::string& folder,
                                                    const std::string& archive, Duration deadline);
  /// The container must have ended, or its memory must be loaded.
  ~LazyMemory();
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;

  /// Names the container's process 1, a child of this process, which is killed after an error.
  /// Errors: the memory has failed before this call.
  Outcome<void> guard(pid_t init);
  bool is_loading() const { return is_loading_; }

 private:
  LazyMemory(const Criu& criu, std::string folder) : criu_(criu), folder_(std::move(folder)) {}
  Outcome<void> link_memory(const std::string& archive);
  void serve(Duration deadline);
  void kill_container() const;
  Outcome<void> wait_for_socket(Duration deadline) const;

  const Criu& criu_;
  const std::string folder_;
  std::vector<LoopDevice> devices_;
  std::atomic<bool> is_loading_ = true;
  std::atomic<bool> has_failed_ = false;
  std::atomic<bool> cancelled_ = false;
  std::atomic<int> init_ = -1;  ///< a pidfd of process 1
  std::thread server_;
};

}  // namespace stdchk::container
