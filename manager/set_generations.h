#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/image_name.h"
#include "core/types.h"
#include "manager/command.h"

namespace stdchk::manager {

/// A SetGenerations knows which images of a set belong together: those that were written after the
/// set was begun. They are one generation of it, written by one start of the application. All
/// numbers are places in the order of the pool's commits.
///
/// A set is begun anew when an image of its generation is written again or goes. Whoever writes
/// while that one is written belongs to the same generation; whatever was committed before it was
/// opened does not. All sets of an application begin anew with that, and when one of its ranks goes
/// back to an earlier timestep: those that are whole stay so, but what is committed from then on
/// completes none that was begun before. The same holds when a generation is known to have ended,
/// of a set or of all; and who was opened before that completes nothing.
///
/// An image that is added to, or changed in part, stays what it was.
///
/// A set that was found whole keeps the number of images that it then had, until one of its
/// generation goes, is written again, or comes to it: however many the sets of later jobs have.
///
/// Threads: one. Limits: an entry for each set, each call is O(log n).
/// Not: it does not find out how many images make a set whole.
class SetGenerations {
 public:
  struct Write {
    std::uint64_t opened = 0;     ///< the newest commit when its session was opened
    std::uint64_t replaced = 0;   ///< when the content was written that it takes the place of
    std::uint64_t later = 0;      ///< when the same rank has written a later timestep
    std::uint64_t replacing = 0;  ///< others write images of the set again, and were opened then
    std::uint64_t sequence = 0;   ///< of this one
  };
  /// An image of that name is there, whose content was written then; 0: it has none yet.
  void add(FileId folder, const ImageName& image, std::uint64_t content);
  void remove(FileId folder, const ImageName& image);
  void write(FileId folder, const ImageName& image, const Write& write);
  /// The content that was written then goes, and nothing takes its place. 0: there was none.
  void lose(FileId folder, const ImageName& image, std::uint64_t content, std::uint64_t now);
  void begin(const BeginGeneration& command);
  void forget(FileId folder);
  /// Images of later timesteps of the application are there, or are missed.
  bool has_later(FileId folder, const ImageName& image) const;
  /// Images that were written later are of the newest generation.
  std::uint64_t begun(FileId folder, const ImageName& image) const;
  /// The same, as it is for what is committed next.
  std::uint64_t next_begun(FileId folder, const ImageName& image) const;
  /// When an image of the set was written last, one that has gone meanwhile perhaps.
  std::uint64_t newest(FileId folder, const ImageName& image) const;
  /// So many images made the set whole when it was found so; 0: it was not, or not as it is now.
  std::uint64_t whole(FileId folder, const ImageName& image) const;
  /// Some set of that folder was found whole and still is. O(applications of the folder).
  bool knows_whole(FileId folder) const;
  /// Who was opened before that commit belongs to a generation that has ended.
  std::uint64_t ended(FileId folder, const ImageName& image) const;
  /// The commands that make the same of the same names.
  void snapshot(const std::function<void(Command)>& emit) const;

 private:
  struct Set {
    std::uint64_t images = 0;
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    std::uint64_t newest = 0;
    std::uint64_t whole = 0;
  };
  struct Series {
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    std::uint64_t whole = 0;  ///< sets that are
    std::map<std::uint64_t, Set> sets;
  };
  const Set* find(FileId folder, const ImageName& image) const;
  static void set_whole(Series& series, Set& set, std::uint64_t images);

  std::map<std::pair<FileId, std::string>, Series> series_;
};

}  // namespace stdchk::manager
