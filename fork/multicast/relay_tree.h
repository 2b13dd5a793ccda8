#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/units.h"

namespace stdchk::multicast {

/// A RelayTree says which receiver passes the image on to which, where multicast does not reach.
/// The sender keeps it. Pure.
///
/// - The sender serves kFanOut receivers by unicast. Each receiver that relays serves kFanOut
///   others. So N receivers get the image over about log2(N) links, and the sender's link carries
///   it kFanOut times.
/// - A receiver that multicast reaches relays, too.
/// - A receiver gets another relay for a silent one. The tree never has a circle.
/// - When no relay has room, the sender serves the receiver.
///
/// Threads: one. Times never go back.
/// Limits: kMembersMax members; the sender serves all others. A member that is silent for kSilence
///   is forgotten.
class RelayTree {
 public:
  static constexpr std::size_t kFanOut = 2;
  static constexpr std::size_t kMembersMax = 256;
  static constexpr Duration kSilence = std::chrono::seconds(2);

  struct Kind {
    bool by_unicast = false;  ///< multicast does not reach it
    bool relays = false;      ///< it can pass units on
  };

  /// Adds the member, or changes its place when its relay is `avoid`. Equal calls have equal
  /// results. Returns the id of the member's relay; 0: the sender.
  ReceiverId place(Time now, ReceiverId id, const Kind& kind, ReceiverId avoid);
  /// The member has said something. With `done` it has the whole image, and needs no relay.
  void heard(Time now, ReceiverId id, bool done);
  std::size_t members() const { return members_.size(); }
  /// False for a member that is unknown, or silent for kSilence: the next place() forgets it.
  bool hears(Time now, ReceiverId id) const;

 private:
  struct Member {
    Kind kind;
    Time heard{};
    bool done = false;
    bool is_placed = false;
    ReceiverId relay = 0;  ///< with is_placed
    std::set<ReceiverId> avoided;
  };

  ReceiverId choose(ReceiverId id, const Member& member) const;
  std::size_t children(ReceiverId relay) const;
  /// True when `id` is `above`, or gets the image from `above` over any number of relays.
  bool is_below(ReceiverId id, ReceiverId above) const;
  void forget_silent(Time now);

  std::map<ReceiverId, Member> members_;
  std::vector<ReceiverId> order_;  ///< of joining
};

}  // namespace stdchk::multicast
