#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stdchk::fork {

/// How a mount of the host looks in a clone's view of the file system.
enum class Showing : std::uint8_t {
  kOverlay,  ///< a local file system: the clone's changes stay its own
  kShared,   ///< a network or cluster file system, or a device tree: the same mount
  kProc,     ///< a /proc of the clone's own pid namespace
  kQueue,    ///< POSIX message queues of the clone's own ipc namespace
  kMemory,   ///< /dev/shm: empty
};

struct ViewMount {
  std::string path;
  Showing showing = Showing::kShared;
  bool operator==(const ViewMount&) const = default;
};

/// Decides from the text of /proc/self/mountinfo (proc(5)) how each mount is shown, in the order in
/// which to mount. Leaves out mounts below /proc, and below the daemon's own folder `state`. The
/// first mount is "/".
std::vector<ViewMount> plan_view(std::string_view mountinfo, std::string_view state);

/// The name of a mount's folder among the changes of a clone: one name for each path, without "/".
std::string folder_of(std::string_view path);

/// Escapes what separates paths in overlayfs's options: "\", ":" and ",".
std::string overlay_word(std::string_view path);

}  // namespace stdchk::fork
