#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "manager/command.h"

namespace stdchk::manager {

class Service;
struct File;

/// An Evictor gives up memory of drained versions when space is short, oldest first (rule M5): of
/// those that no session or reader uses, and whose files a benefactor has just seen in the drain
/// directory.
///
/// Threads: the reactor's.
/// Errors: none. What could not be looked up is kept, and looked up again later.
class Evictor {
 public:
  explicit Evictor(Service& service) : service_(service) {}
  /// True when something was given up, or files are looked up, so that something may be soon.
  bool evict(std::uint64_t want_bytes);
  /// After evict(): there is something, but for now its files cannot be looked up, or their names
  /// are being changed.
  bool is_held_up() const { return held_up_; }

 private:
  struct Choice {
    std::vector<Evict> commands;
    std::uint64_t bytes = 0;
    std::uint64_t newest = 0;  ///< sequence of the last version of those
  };
  using Filter = std::function<bool(const File&)>;
  template <class Visit>
  void for_each_candidate(const Filter& counts, Visit visit) const;
  Choice choose(std::uint64_t bytes, std::uint64_t newest, const Filter& counts) const;
  bool is_seen(const File& file) const;
  std::vector<FileId> unseen(const Choice& choice) const;
  void look_ahead(std::uint64_t want_bytes);

  struct Seen {
    Version version = 0;
    Time until{};
  };

  Service& service_;
  std::unordered_map<FileId, std::uint32_t> pins_without_bytes_;  ///< while it chooses
  std::map<FileId, Seen> seen_;  ///< in the drain directory, a moment ago
  bool held_up_ = false;
  bool looking_ = false;
  std::uint64_t wanted_bytes_ = 0;  ///< while it looks
  Time look_next_{};
};

}  // namespace stdchk::manager
