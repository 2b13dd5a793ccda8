#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "core/base/assert.h"

namespace stdchk::client {

struct Slot;
struct OutChunk;

/// A Piece says where written bytes are: in a slot that is still filling, or in a chunk. The
/// chunk's bytes are in a slot or stored.
struct Piece {
  Slot* slot = nullptr;             ///< set: the bytes are in this slot, at `offset`
  std::shared_ptr<OutChunk> chunk;  ///< set: the bytes are in this chunk, at `offset`
  std::uint32_t offset = 0;

  Piece at(std::uint64_t skip) const {
    return Piece{slot, chunk, offset + static_cast<std::uint32_t>(skip)};
  }
  bool continued_by(const Piece& next, std::uint64_t length) const {
    return slot == next.slot && chunk == next.chunk && offset + length == next.offset;
  }
};

/// An Overlay holds the bytes that a session has written over its base version. It maps ranges of
/// the file, which do not overlap, to the places of their bytes. The last write of a byte wins.
///
/// Threads: one at a time (the engine's lock).
class Overlay {
 public:
  struct Entry {
    std::uint64_t length = 0;
    Piece piece;
  };
  using Entries = std::map<std::uint64_t, Entry>;  ///< keyed by file offset

  /// Puts a piece over [offset, offset + length). Calls `removed(piece, length)` for each piece, or
  /// part of a piece, that the new one replaces.
  template <class Removed>
  void put(std::uint64_t offset, std::uint64_t length, Piece piece, Removed removed) {
    if (length == 0) return;
    erase(offset, offset + length, removed);
    auto next = entries_.lower_bound(offset);
    if (next != entries_.begin()) {
      auto before = std::prev(next);
      Entry& entry = before->second;
      if (before->first + entry.length == offset && entry.piece.continued_by(piece, entry.length) &&
          entry.length + length <= kEntryMax) {
        entry.length += length;
        return;
      }
    }
    entries_.emplace_hint(next, offset, Entry{length, std::move(piece)});
  }

  /// Removes [from, to), and calls `removed` as put() does.
  template <class Removed>
  void erase(std::uint64_t from, std::uint64_t to, Removed removed) {
    auto entry = entries_.lower_bound(from);
    if (entry != entries_.begin()) {
      auto before = std::prev(entry);
      const std::uint64_t end = before->first + before->second.length;
      if (end > from) {
        const Piece piece = before->second.piece;
        const std::uint64_t start = before->first;
        before->second.length = from - start;
        if (end > to) {
          entries_.emplace(to, Entry{end - to, piece.at(to - start)});
          removed(piece.at(from - start), to - from);
          return;
        }
        removed(piece.at(from - start), end - from);
      }
    }
    while (entry != entries_.end() && entry->first < to) {
      const std::uint64_t end = entry->first + entry->second.length;
      const Piece piece = entry->second.piece;
      const std::uint64_t start = entry->first;
      entry = entries_.erase(entry);
      if (end > to) {
        entries_.emplace(to, Entry{end - to, piece.at(to - start)});
        removed(piece, to - start);
        return;
      }
      removed(piece, end - start);
    }
  }

  /// Says that all bytes of [from, to) in `slot` now belong to `chunk`. The byte at `from` has the
  /// offset `offset` in the chunk. Returns the number of these bytes.
  std::uint64_t refer(std::uint64_t from, std::uint64_t to, const Slot& slot,
                      const std::shared_ptr<OutChunk>& chunk, std::uint32_t offset) {
    std::uint64_t bytes = 0;
    split(from);
    split(to);
    auto entry = entries_.lower_bound(from);
    while (entry != entries_.end() && entry->first < to) {
      auto next = std::next(entry);
      if (entry->second.piece.slot == &slot) {
        bytes += entry->second.length;
        entry->second.piece =
            Piece{nullptr, chunk, offset + static_cast<std::uint32_t>(entry->first - from)};
        join_before(entry);
      }
      entry = next;
    }
    return bytes;
  }

  /// Calls `visit(offset, length, const Piece*)` for each run in [from, to), in order. The piece is
  /// nullptr where nothing was written. Stops when `visit` returns false.
  template <class Visit>
  void visit(std::uint64_t from, std::uint64_t to, Visit visit_run) const {
    auto entry = entries_.upper_bound(from);
    if (entry != entries_.begin()) --entry;
    while (from < to) {
      if (entry != entries_.end() && entry->first + entry->second.length <= from) {
        ++entry;
        continue;
      }
      if (entry == entries_.end() || entry->first >= to) {
        visit_run(from, to - from, static_cast<const Piece*>(nullptr));
        return;
      }
      if (entry->first > from) {
        if (!visit_run(from, entry->first - from, static_cast<const Piece*>(nullptr))) return;
        from = entry->first;
        continue;
      }
      const Piece piece = entry->second.piece.at(from - entry->first);
      const std::uint64_t end = std::min(to, entry->first + entry->second.length);
      if (!visit_run(from, end - from, &piece)) return;
      from = end;
      ++entry;
    }
  }

  const Entries& entries() const { return entries_; }
  Entries& entries() { return entries_; }
  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }
  /// The end of the last written range; 0: nothing is written.
  std::uint64_t end() const {
    if (entries_.empty()) return 0;
    const auto& last = *std::prev(entries_.end());
    return last.first + last.second.length;
  }

 private:
  /// Splits the entry around `offset`, so that no entry lies on both sides of it.
  void split(std::uint64_t offset) {
    auto entry = entries_.lower_bound(offset);
    if (entry == entries_.begin()) return;
    --entry;
    const std::uint64_t head = offset - entry->first;
    if (entry->second.length <= head) return;
    entries_.emplace(offset, Entry{entry->second.length - head, entry->second.piece.at(head)});
    entry->second.length = head;
  }
  /// Joins the entry with the previous entry, if their bytes are adjacent in one chunk.
  void join_before(Entries::iterator entry) {
    if (entry == entries_.begin()) return;
    const auto before = std::prev(entry);
    Entry& first = before->second;
    if (before->first + first.length != entry->first ||
        !first.piece.continued_by(entry->second.piece, first.length)) {
      return;
    }
    first.length += entry->second.length;
    entries_.erase(entry);
  }

  static constexpr std::uint64_t kEntryMax = 0xFFFFFFFF;
  Entries entries_;
};

}  // namespace stdchk::client
