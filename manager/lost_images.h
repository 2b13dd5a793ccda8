#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "core/types.h"

namespace stdchk::manager {

class Service;

/// LostImages has the log name every image that has lost bytes: those that are not drained, have no
/// copy that can be read, and cannot be made again. An image is named once, and again only after
/// it was whole in between.
///
/// Threads: the reactor's.
/// Limits: kNamedMax lines in one run, so that a large loss holds up nothing else; the others
///   follow.
class LostImages {
 public:
  static constexpr std::size_t kNamedMax = 20;

  explicit LostImages(Service& service) : service_(service) {}
  /// Chunks were lost, or are there again.
  void look() { due_ = true; }
  /// To be called when it is known of every chunk whether it is lost. O(slices that are not
  /// drained) after look().
  void run();

 private:
  using Key = std::pair<std::uint64_t, FileId>;  ///< as in State::undrained()

  void find();
  void name(const Key& key) const;

  Service& service_;
  bool due_ = false;
  std::set<Key> lost_;
  std::set<Key> unnamed_;  ///< of these
};

}  // namespace stdchk::manager
