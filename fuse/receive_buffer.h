#pragma once

#include <cstddef>

#include "client/api/filesystem.h"
#include "client/blocking/window_buffers.h"
#include "core/base/result.h"

namespace stdchk::mount {

/// A ReceiveBuffer is the memory into which one thread receives requests. If possible this is a
/// slot of the client's window, with the header of a write request in the slot's headroom. A whole
/// chunk that an application writes in one call is then in its place, without a copy. Otherwise it
/// is memory of its own.
///
/// Owns: its memory; a borrowed slot until write() hands it over.
/// Threads: the one that made it.
/// Limits: uses slots only if a chunk is as long as the longest write request.
class ReceiveBuffer {
 public:
  /// `window_of` lends slots; nullptr: slots are not used.
  explicit ReceiveBuffer(client::Filesystem* window_of);
  ~ReceiveBuffer();
  ReceiveBuffer(const ReceiveBuffer&) = delete;
  ReceiveBuffer& operator=(const ReceiveBuffer&) = delete;

  /// Returns memory of capacity() bytes for the next request.
  void* prepare();
  std::size_t capacity() const { return capacity_; }
  /// Writes bytes of the request just received. Hands the slot over when the bytes fill it.
  Status write(client::File& file, std::uint64_t offset, ByteSpan bytes);

  /// Returns the buffer that this thread made, or nullptr.
  static ReceiveBuffer* of_this_thread();

 private:
  client::Filesystem* window_of_;
  client::WindowBuffer slot_;
  std::byte* own_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace stdchk::mount
