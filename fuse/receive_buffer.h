#pragma once

#include <cstddef>

#include "client/filesystem.h"
#include "client/window_buffers.h"
#include "core/result.h"

namespace stdchk::mount {

/// A ReceiveBuffer is where one thread receives requests: when it can be had, a slot of the
/// client's window, with the head of a write request in the slot's headroom, so that a whole chunk
/// which an application writes in one call is in its place and need not be copied; otherwise memory
/// of its own.
///
/// Owns: its memory; a borrowed slot until write() hands it over. Threads: the one that made it.
/// Limits: a slot is only of use where a chunk is as long as the longest write request.
class ReceiveBuffer {
 public:
  /// `window_of` lends slots; nullptr: none are used.
  explicit ReceiveBuffer(client::Filesystem* window_of);
  ~ReceiveBuffer();
  ReceiveBuffer(const ReceiveBuffer&) = delete;
  ReceiveBuffer& operator=(const ReceiveBuffer&) = delete;

  /// Where the next request goes, capacity() bytes.
  void* prepare();
  std::size_t capacity() const { return capacity_; }
  /// Writes bytes of the request just received; takes a slot along when they fill it.
  Status write(client::File& file, std::uint64_t offset, ByteSpan bytes);

  /// The one that this thread made; nullptr: none.
  static ReceiveBuffer* of_this_thread();

 private:
  client::Filesystem* window_of_;
  client::WindowBuffer slot_;
  std::byte* own_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace stdchk::mount
