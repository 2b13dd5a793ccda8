#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "client/read/version_map.h"
#include "client/write/overlay.h"

namespace stdchk::client {

/// A WrittenFile is the file as a session has changed it: the written ranges over the base version,
/// its holes there, and the size.
///
/// Threads: one at a time (the engine's lock).
class WrittenFile {
 public:
  WrittenFile(std::uint64_t size_bytes, bool is_new, bool truncates)
      // A file without a version has no content to cut off. Content that others commit from now on
      // stays.
      : size_(truncates && !is_new ? 0 : size_bytes),
        // A file without a version is dirty from the start: its first close creates it, as
        // open(O_CREAT) would, even without bytes.
        dirty_(truncates || is_new),
        cut_(truncates && !is_new ? 0 : kNoCut) {}

  Overlay& overlay() { return overlay_; }
  const Overlay& overlay() const { return overlay_; }
  std::uint64_t size() const { return size_; }
  bool dirty() const { return dirty_; }
  /// True when the size was set, not only grown by writes.
  bool set_size() const { return set_size_; }
  /// The content of the base version from this offset on is gone; kNoCut: nothing is.
  std::uint64_t cut() const { return cut_; }
  static constexpr std::uint64_t kNoCut = std::numeric_limits<std::uint64_t>::max();

  void begin_change() { dirty_ = true; }
  /// See Overlay::put for `removed`.
  template <class Removed>
  void put(std::uint64_t offset, std::uint64_t length, Piece piece, Removed removed) {
    overlay_.put(offset, length, std::move(piece), removed);
    size_ = std::max(size_, offset + length);
  }
  template <class Removed>
  void truncate(std::uint64_t size_bytes, Removed removed) {
    dirty_ = true;
    set_size_ = true;
    if (size_bytes < size_) {
      overlay_.erase(size_bytes, std::numeric_limits<std::uint64_t>::max(), removed);
      cut_ = std::min(cut_, size_bytes);
    }
    size_ = size_bytes;
  }
  /// The ranges where the base version has lost its bytes: by offset, the end. Ranges that touch are
  /// joined.
  using Holes = std::map<std::uint64_t, std::uint64_t>;
  const Holes& holes() const { return holes_; }
  /// Requires from < to. Removes the bytes [from, to): the overlay and the base lose them.
  template <class Removed>
  void punch(std::uint64_t from, std::uint64_t to, Removed removed) {
    dirty_ = true;
    overlay_.erase(from, to, removed);
    auto next = holes_.upper_bound(to);
    while (next != holes_.begin()) {
      const auto before = std::prev(next);
      if (before->second < from) break;
      from = std::min(from, before->first);
      to = std::max(to, before->second);
      next = holes_.erase(before);
    }
    holes_.emplace_hint(next, from, to);
  }
  struct HoleRun {
    bool is_hole = false;
    std::uint64_t length = 0;
  };
  /// Says whether the base version has lost its byte at `offset`, and for how many of the next
  /// `length` bytes this is so.
  HoleRun hole_at(std::uint64_t offset, std::uint64_t length) const {
    const auto next = holes_.upper_bound(offset);
    if (next != holes_.begin()) {
      const std::uint64_t end = std::prev(next)->second;
      if (end > offset) return {true, std::min(length, end - offset)};
    }
    if (next != holes_.end()) length = std::min(length, next->first - offset);
    return {false, length};
  }
  /// Moves the end of the file for an append.
  void extend(std::uint64_t bytes) { size_ += bytes; }
  /// The content is committed: it becomes the base.
  void committed(std::uint64_t size_bytes) {
    overlay_.clear();
    holes_.clear();
    size_ = size_bytes;
    cut_ = kNoCut;
    set_size_ = false;
    dirty_ = false;
    base_.reset();
  }
  /// Drops the references to chunks and to the base version.
  void clear() {
    overlay_.clear();
    holes_.clear();
    base_.reset();
  }
  /// The map of the base version; fetched if necessary.
  VersionMapPtr base(MapStore& maps, FileId file) STDCHK_REQUIRES(engine_lock) {
    if (base_ == nullptr) base_ = maps.open(file);
    return base_;
  }

 private:
  Overlay overlay_;
  Holes holes_;
  std::uint64_t size_;
  bool dirty_;
  bool set_size_ = false;
  std::uint64_t cut_;
  VersionMapPtr base_;
};

}  // namespace stdchk::client
