#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/result.h"

/// What outlives the process that serves pages: descriptors, and a record of what they are.
///
/// A userfaultfd ends with its last descriptor, and a memory file, too. So the parent of the server
/// keeps a copy of each. It does nothing else, has one thread, and starts the server again when a
/// signal has ended it. The new server inherits everything by fork(2).
namespace stdchk::pager {

enum class KeptKind : std::uint32_t { kListener = 1, kImage = 2, kClone = 3 };

/// A Kept is a record with its descriptors.
struct Kept {
  KeptKind kind = KeptKind::kListener;
  std::uint64_t id = 0;
  std::string record;  ///< at most kRecordBytesMax
  std::vector<Descriptor> files;
};

inline constexpr std::size_t kRecordBytesMax = 8192;

/// A HolderLink is the server's way to its parent.
///
/// Threads: any.
/// Errors: when the parent is gone, nothing is kept and keep() says so.
class HolderLink {
 public:
  explicit HolderLink(Descriptor socket) : socket_(std::move(socket)) {}
  /// Keeps copies of the files, or replaces what has that kind and id.
  Status keep(KeptKind kind, std::uint64_t id, const std::string& record,
              std::initializer_list<int> files);
  void drop(KeptKind kind, std::uint64_t id);
  /// Becomes readable when the parent has ended.
  int socket() const { return socket_.get(); }

 private:
  std::mutex mutex_;
  const Descriptor socket_;
};

/// Runs in the child. Returns the exit status of the program.
using ServeKept = std::function<int(HolderLink& link, std::vector<Kept> kept)>;

/// Starts `serve` in a child process, and again after each death by a signal, unless three children
/// in a row died within 1 s of their start. Forwards SIGTERM and SIGINT. Must be called before the
/// process has other threads. Returns the exit status of the program.
int hold(std::vector<Kept> kept, const ServeKept& serve);

}  // namespace stdchk::pager
