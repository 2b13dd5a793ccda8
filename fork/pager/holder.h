#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/mutex.h"
#include "core/base/result.h"

/// The holder: a process that keeps the page server's descriptors and records when the page server
/// dies.
///
/// A userfaultfd ends with its last descriptor, and a memory file, too. So the parent of the server
/// keeps a copy of each. The holder has one thread. After a death by a signal, the holder starts
/// the server again. The new server inherits everything by fork(2).
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
/// Errors: when the parent is gone, nothing is kept and store() says so.
class HolderLink {
 public:
  explicit HolderLink(Descriptor socket) : socket_(std::move(socket)) {}
  /// Keeps copies of the files. Replaces an earlier entry of the same kind and id.
  Status store(KeptKind kind, std::uint64_t id, const std::string& record,
               std::initializer_list<int> files);
  void drop(KeptKind kind, std::uint64_t id);
  /// Becomes readable when the parent has ended.
  int socket() const { return socket_.get(); }

 private:
  Mutex mutex_;
  const Descriptor socket_;
};

/// Runs in the child. Returns the exit status of the program.
using ServeKept = std::function<int(HolderLink& link, std::vector<Kept> kept)>;

/// Starts `serve` in a child process, and again after each death by a signal. Gives up when three
/// children in a row died within 1 s of their start. Forwards SIGTERM and SIGINT. Requires a
/// process with one thread. Returns the exit status of the program.
int hold(std::vector<Kept> kept, const ServeKept& serve);

}  // namespace stdchk::pager
