#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "client/filesystem.h"
#include "core/result.h"
#include "core/types.h"

namespace stdchk::client {

struct Slot;

/// A WindowBuffer is a registered buffer of the window that a caller fills by itself, so that a
/// whole chunk needs no copy: `data` for one chunk, aligned to 64 bytes, and `headroom` (at least
/// 128 bytes) right in front of it for what comes before the data (the head of a FUSE request).
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
  /// For the library: the slot has another owner now.
  Slot* take();
  Slot* slot() const { return slot_; }

 private:
  MutableByteSpan headroom_;
  MutableByteSpan data_;
  Slot* slot_ = nullptr;
  std::weak_ptr<class WindowBufferOwner> owner_;
};

/// What gets the slots of WindowBuffers back.
class WindowBufferOwner {
 public:
  virtual ~WindowBufferOwner() = default;
  virtual void give_back(Slot& slot) = 0;
};

/// A buffer; kBusy when half of the window is borrowed or no slot is free: use memory of your own.
Result<WindowBuffer> borrow_buffer(Filesystem& filesystem);

/// Writes `bytes`, which lie in `buffer`'s data. Exactly one aligned chunk from the start of the
/// data is taken over without a copy, and `buffer` is empty then; anything else is copied and it
/// stays.
Status write_adopted(File& file, WindowBuffer& buffer, std::uint64_t offset, ByteSpan bytes);

}  // namespace stdchk::client
