#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "core/base/limits.h"
#include "core/values/types.h"

namespace stdchk::bench {

struct RawShape {
  std::size_t targets = 4;
  std::size_t chunk_bytes = limits::kChunkBytesDefault;
  std::size_t window_bytes = limits::kWindowBytesDefault;
  /// bytes of each target's arena, which is overwritten again and again
  std::size_t arena_bytes = 256 * limits::kMiB;
  std::string device_address;  ///< for verbs: an IP address of the device
};

/// A RawLoop is a ceiling: a minimal program that moves chunks from a window of registered slots
/// into the memory of other processes, in turn. It shares no code with transport/, and has no
/// bookkeeping and no guarantees.
///
/// Owns: the targets, as child processes; the window. Threads: one; create it before other threads
/// exist. Errors: ends the program.
class RawLoop {
 public:
  /// "shm": process_vm_writev(2). "tcp" and "stream": send(2) on a TCP connection for each target,
  /// and one answer at the end. "verbs": ibv_post_send(3); a chunk is done when the target's device
  /// has acknowledged it.
  static std::unique_ptr<RawLoop> start(const std::string& kind, const RawShape& shape);
  virtual ~RawLoop();
  RawLoop(const RawLoop&) = delete;
  RawLoop& operator=(const RawLoop&) = delete;

  /// GB/s from the first of `total` bytes until all are delivered. Copies chunks from `image` into
  /// their slots first; if `image` is empty, writes the slots as they are. With `checksums`,
  /// computes the CRC32C of each chunk before its write.
  double run(ByteSpan image, std::uint64_t total, bool checksums = false);
  const std::vector<pid_t>& targets() const { return pids_; }

 protected:
  explicit RawLoop(const RawShape& shape) : shape_(shape) {}
  /// Forks the targets. Each runs `target` with one end of a socket and its memory, then exits.
  std::vector<int> fork_targets(const std::function<void(int, MutableByteSpan)>& target);
  virtual void wait_for_slot(std::size_t slot) = 0;
  /// May return before the bytes are delivered; they stay in the slot until then.
  virtual void write(std::size_t slot, std::size_t target, std::uint64_t offset) = 0;
  virtual void wait_for_all() = 0;
  std::byte* slot_data(std::size_t slot) const {
    return window_.data() + slot * shape_.chunk_bytes;
  }

  const RawShape shape_;
  MutableByteSpan window_;
  /// sum over all chunks, so that the compiler keeps the computation
  std::uint32_t checksums_ = 0;

 private:
  std::vector<pid_t> pids_;
};

/// The loop for "verbs"; in raw_verbs.cpp, or without libibverbs in raw_verbs_absent.cpp.
std::unique_ptr<RawLoop> start_verbs_loop(const RawShape& shape);

/// Sends a value over the socket between parent and target; hear() receives it.
template <class T>
void tell(int socket, const T& value) {
  if (::write(socket, &value, sizeof(value)) != sizeof(value)) give_up("a target has ended");
}
template <class T>
T hear(int socket) {
  T value;
  if (::recv(socket, &value, sizeof(value), MSG_WAITALL) != sizeof(value)) {
    give_up("a target has ended");
  }
  return value;
}

}  // namespace stdchk::bench
