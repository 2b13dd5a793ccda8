#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "container/box/control_group.h"
#include "container/box/lazy_memory.h"
#include "container/box/network.h"
#include "container/criu/criu.h"
#include "container/description/description.h"
#include "core/base/mutex.h"

namespace stdchk::container {

/// BoxSettings hold what the containers of a node share: programs, folder, tag.
struct BoxSettings {
  std::string folder;  ///< holds a folder for each container
  std::string init;    ///< the program stdchk-box-init
  std::string tag;     ///< unique on this host; in the names of devices
  Criu criu{"criu"};
};

/// A Box is one container: process, mount, network, ipc and uts namespaces on an overlay.
///
/// | state   | processes       | network | files                                  | next |
/// |---------|-----------------|---------|----------------------------------------|--------------------|
/// | absent  | none            | none    | none                                   | start, load |
/// | running | run             | open    | overlay mounted                        | stop, remove |
/// | stopped | stand still     | open    | as running                             | lock, open,
/// resume | | locked  | stand still     | dropped | as running; an image after save        | open,
/// remove       | | loaded  | stand still     | dropped | as running                             |
/// open, remove       |
///
/// Owns: its folder, mounts, network namespace and processes, until remove(). Without remove(), the
///   end of the node's own namespaces ends all of it.
/// Threads: one at a time; every function may block until its deadline.
class Box {
 public:
  Box(const BoxSettings& settings, std::uint32_t number);

  Outcome<void> start(const BoxDescription& description, const JobNetwork& network);
  Outcome<void> stop(Duration deadline) const;
  /// Waits until no socket has bytes under way. At the deadline it returns without an error,
  /// because TCP sends lost bytes again.
  Outcome<void> settle(Duration deadline) const;
  Outcome<void> lock() const;
  /// Saves processes and files into the folder of the image. Returns its bytes.
  Outcome<std::uint64_t> save(Duration deadline);
  /// Also tells the switches where the container is now.
  Outcome<void> open() const;
  void resume() const;
  /// Writes the saved image to a file in the pool, and forgets it. Returns the file's bytes.
  /// May run beside everything but the functions that change the image; cancel_store() ends it.
  Outcome<std::uint64_t> store(const std::string& path, Duration deadline);
  void cancel_store() { cancelled_ = true; }
  void discard();
  /// Makes the container from a file in the pool; its processes are stopped, and its network is
  /// locked. When the network's description says `lazy`, its memory is loaded while it runs.
  Outcome<std::uint64_t> load(const BoxDescription& description, const JobNetwork& network,
                              const std::string& path, Duration deadline);
  void remove();

  /// The exit status of process 1 when it has ended.
  std::optional<std::uint32_t> exit_status();
  bool exists() const { return init_ > 0; }

  // Files that process 1 shares (container/init/modes.h).
  Outcome<void> give_command(std::uint64_t number, const std::string& words) const;
  Outcome<void> answer(const std::string& word, std::uint64_t number) const;
  std::uint64_t newest_request() const;
  /// Numbers and statuses of commands that have ended.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> ended_commands() const;
  /// "NAME HOST COMMAND" of each command that an agent has left and nobody has taken.
  std::vector<std::string> asks() const;
  Outcome<void> take_ask(const std::string& name) const;
  Outcome<void> end_ask(const std::string& name, std::uint64_t status) const;
  /// At most 64 KiB of the output of command 0. `errors`: standard error instead.
  std::string output(bool errors, std::uint64_t from) const;

 private:
  std::string in_box(const std::string& path) const { return root_ + path; }
  Outcome<void> make_folders() const;
  Outcome<void> write_settings(const BoxDescription& description) const;
  Outcome<void> mount(const BoxDescription& description) const;
  Outcome<void> unpack(const std::string& path, bool lazy, Duration deadline);

  const BoxSettings& settings_;
  const std::uint32_t number_;
  const std::string folder_, upper_, root_;
  const std::string image_;  ///< a folder of CRIU's images, made by save() and load()
  const std::string lazy_;   ///< the same, while memory is loaded on demand
  const BoxNetwork network_;
  ControlGroup group_;
  std::unique_ptr<LazyMemory> memory_;  ///< null: nothing is loaded on demand
  std::atomic<bool> cancelled_ = false;
  Mutex image_mutex_;  ///< held while the image is stored or changed
  pid_t init_ = 0;
};

}  // namespace stdchk::container
