#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/policy/image_name.h"
#include "core/values/types.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// SetGenerations records which images of a set belong together: those written since the set's
/// generation began. They stem from a single start of the application. All numbers are positions in
/// the pool's order of commits.
///
/// A new generation of a set begins when an image of the present one is written again or lost.
/// Images committed before the rewriting session was opened are stale. Images that other sessions
/// write meanwhile belong to the new generation. The rewriting also begins a new generation for all
/// sets of the application. So does a rank that goes back to an earlier timestep. Sets that are
/// whole stay whole, but later commits complete no set that began earlier. The same holds when
/// BeginGeneration ends generations. A session opened before such an end completes no set.
///
/// An image that is appended to, or changed in part, stays in its generation.
///
/// A set that was found whole keeps that number of images as its own, even if later jobs have more
/// or fewer ranks. It does so until an image of its generation is lost, rewritten or added.
///
/// Threads: one. Limits: an entry for each set; each call is O(log n).
/// Not: it does not decide how many images make a set whole.
class SetGenerations {
 public:
  struct Write {
    std::uint64_t opened = 0;    ///< the newest commit when its session was opened
    std::uint64_t replaced = 0;  ///< commit that wrote the content it replaces; 0: none
    std::uint64_t later = 0;     ///< commit of a later timestep of the same rank; 0: none
    /// `opened` of another session that rewrites an image of the set; 0: none.
    std::uint64_t replacing = 0;
    std::uint64_t sequence = 0;  ///< number of this commit
  };
  /// Adds an image name. `content` is the commit that wrote its content, or 0 without content.
  void add(FileId folder, const ImageName& image, std::uint64_t content);
  void remove(FileId folder, const ImageName& image);
  void write(FileId folder, const ImageName& image, const Write& write);
  /// An image loses the content that commit `content` wrote, without a replacement. 0: it had none.
  void on_content_lost(FileId folder, const ImageName& image, std::uint64_t content,
                       std::uint64_t now);
  void begin(const BeginGeneration& command);
  void forget(FileId folder);
  /// Returns true when the application has a set of a later timestep, even one with lost images.
  bool has_later(FileId folder, const ImageName& image) const;
  /// Images written after this commit belong to the set's newest generation.
  std::uint64_t begun(FileId folder, const ImageName& image) const;
  /// The least value of begun() after the next commit into the set.
  std::uint64_t next_begun(FileId folder, const ImageName& image) const;
  /// The newest commit that wrote an image of the set; the image may be gone.
  std::uint64_t newest(FileId folder, const ImageName& image) const;
  /// The number of images with which the set was found whole; 0 if it was
  /// not, or has changed since.
  std::uint64_t whole(FileId folder, const ImageName& image) const;
  /// Returns true when a set in the folder was found whole and still is.
  /// O(applications of the folder).
  bool has_complete_set(FileId folder) const;
  /// Sessions opened before this commit belong to a generation that has ended.
  std::uint64_t ended(FileId folder, const ImageName& image) const;
  /// Emits the commands that restore this state once add() was called for the same images.
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
    std::uint64_t whole = 0;  ///< number of sets with a `whole`
    std::map<std::uint64_t, Set> sets;
  };
  const Set* find(FileId folder, const ImageName& image) const;
  static void set_whole(Series& series, Set& set, std::uint64_t images);

  std::map<std::pair<FileId, std::string>, Series> series_;
};

}  // namespace stdchk::manager
