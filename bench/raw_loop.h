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
#include "core/limits.h"
#include "core/types.h"

namespace stdchk::bench {

struct RawShape {
  std::size_t targets = 4;
  std::size_t chunk_bytes = limits::kChunkBytesDefault;
  std::size_t window_bytes = limits::kWindowBytesDefault;
  std::size_t arena_bytes = 256 * limits::kMiB;  ///< of each target; written again and again
  std::string device_address;                    ///< for verbs: an IP address of the device
};

/// A RawLoop is a ceiling: the least program that moves chunks into the memory of other processes,
/// in turn, from a window of registered slots. It shares no code with transport/, keeps no books
/// and no promises.
///
/// Owns: the targets, as child processes; the window. Threads: one; to be made before there are
/// others. Errors: ends the program.
class RawLoop {
 public:
  /// "shm": process_vm_writev(2). "tcp" and "stream": send(2) on a TCP connection for each target,
  /// and one answer at the end. "verbs": ibv_post_send(3); a chunk is done when the target's device
  /// has acknowledged it.
  static std::unique_ptr<RawLoop> start(const std::string& kind, const RawShape& shape);
  virtual ~RawLoop();
  RawLoop(const RawLoop&) = delete;
  RawLoop& operator=(const RawLoop&) = delete;

  /// GB/s from the first of `total` bytes until all are delivered. Chunks are copied from `image`
  /// into their slots first; when it is empty, what lies in the slots is written. With `checksums`
  /// the CRC32C of each chunk is computed before it is written.
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
  std::uint32_t checksums_ = 0;  ///< of all chunks, so that computing them is not left out

 private:
  std::vector<pid_t> pids_;
};

/// "verbs"; in raw_verbs.cpp, or without libibverbs in raw_verbs_absent.cpp.
std::unique_ptr<RawLoop> start_verbs_loop(const RawShape& shape);

/// To and from a target, over its socket.
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
