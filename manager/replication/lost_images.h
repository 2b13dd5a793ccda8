#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "core/values/types.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// LostImages logs every image that has lost bytes: bytes that are not drained, have no readable
/// copy, and cannot be reconstructed. An image is logged once; if it becomes whole and loses bytes
/// again, it is logged again.
///
/// Threads: the reactor's.
/// Limits: run() writes at most kNamedMax lines, so that a large loss holds up nothing else. The
/// next runs write the rest.
class LostImages {
 public:
  static constexpr std::size_t kNamedMax = 20;

  /// `lost_bytes` returns how many bytes of a version are lost.
  LostImages(const Pool& pool, std::function<std::uint64_t(const VersionData&)> lost_bytes)
      : pool_(pool), lost_bytes_(std::move(lost_bytes)) {}
  /// Requests a search: chunks were lost or found again.
  void examine_soon() { due_ = true; }
  /// Call it only while the loss or presence of every chunk is known. After examine_soon() its cost
  /// is O(slices that are not drained).
  void run();

 private:
  using Key = std::pair<std::uint64_t, FileId>;  ///< as in State::undrained()

  void find();
  void name(const Key& key) const;

  const Pool& pool_;
  const std::function<std::uint64_t(const VersionData&)> lost_bytes_;
  bool due_ = false;
  std::set<Key> lost_;
  std::set<Key> unnamed_;  ///< lost images not logged yet
};

}  // namespace stdchk::manager
