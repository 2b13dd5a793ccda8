#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "core/values/types.h"

namespace stdchk::manager {

/// A DrainRank says why a file is drained before others. A smaller value comes first.
enum class DrainRank : std::uint8_t {
  kAsked,   ///< a client asks for this file
  kChosen,  ///< the manager has chosen the file, for example as an image of the newest whole set
  kOther,   ///< nobody: the file waits for its turn
};

/// A DrainQueue holds the files to be drained before all others. Files that clients ask for come
/// first, then files that the manager has chosen. Each rank is ordered by request.
///
/// Threads: the reactor's.
/// Not: the files of DrainRank::kOther.
class DrainQueue {
 public:
  /// A place in the order: the rank, then the number of the request.
  using Place = std::pair<DrainRank, std::uint64_t>;
  /// Returns a new place behind all places of the rank. A file that is being drained already gets
  /// such a place, too.
  Place next_place(DrainRank rank) { return {rank, next_++}; }
  /// Adds a file. A file that is in the queue keeps its place, unless the new rank is better.
  void add(FileId file, DrainRank rank);

  enum class Visit : std::uint8_t {
    kRemove,  ///< the file leaves the queue
    kKeep,    ///< the file keeps its place
    kStop,    ///< the file keeps its place, and the visit ends
  };
  /// Calls `visit` for each file in order. `visit` may add files.
  void visit(const std::function<Visit(FileId file, Place place)>& visit);

 private:
  std::map<Place, FileId> order_;
  std::map<FileId, Place> places_;
  std::uint64_t next_ = 0;
};

}  // namespace stdchk::manager
