#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "client/api/filesystem.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::client {

struct Slot;

/// A WindowBuffer is a registered buffer of the window that a caller fills itself, so that a whole
/// chunk needs no copy. `data` has room for one chunk and is aligned to 64 bytes. `headroom` (at
/// least 128 bytes) lies directly in front of it, for what precedes the data, such as the header of
/// a FUSE request.
///
/// Owns: the slot until it is adopted or given back. Must not outlive its Filesystem.
class WindowBuffer {
 public:
  WindowBuffer() = default;
  WindowBuffer(MutableByteSpan headroom, MutableByteSpan data, Slot* slot,
               std::weak_ptr<class WindowBufferOwner> owner)
      : headroom_(headroom), data_(data), slot_(slot), owner_(std::move(owner)) {}
  WindowBuffer(WindowBuffer&& other) noexcept { *this = std::move(other); }
  WindowBuffer& operator=(WindowBuffer&& other) noexcept;
  ~WindowBuffer() { give_back(); }

  explicit operator bool() const { return slot_ != nullptr; }
  MutableByteSpan headroom() const { return headroom_; }
  MutableByteSpan data() const { return data_; }
  void give_back();
  /// For the library: releases the slot to another owner.
  Slot* take();
  Slot* slot() const { return slot_; }

 private:
  MutableByteSpan headroom_;
  MutableByteSpan data_;
  Slot* slot_ = nullptr;
  std::weak_ptr<class WindowBufferOwner> owner_;
};

/// A WindowBufferOwner takes back the slots of WindowBuffers.
class WindowBufferOwner {
 public:
  virtual ~WindowBufferOwner() = default;
  virtual void give_back(Slot& slot) = 0;
};

/// Lends a buffer. kBusy when half of the window is lent or no slot is free: the caller then uses
/// memory of its own.
Result<WindowBuffer> borrow_buffer(Filesystem& filesystem);

/// Writes `bytes`, which lie in `buffer`'s data. If they are exactly one aligned chunk from the
/// start of the data, the library takes the slot without a copy and empties `buffer`. Otherwise the
/// bytes are copied, and the caller keeps `buffer`.
Status write_adopted(File& file, WindowBuffer& buffer, std::uint64_t offset, ByteSpan bytes);

}  // namespace stdchk::client
