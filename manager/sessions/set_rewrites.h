#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "core/policy/image_name.h"
#include "manager/clients/rewriters.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// A SetRewrites notices when an application writes images of a set again. It journals that the
/// set's earlier generation has ended, because images of two generations make no whole set.
///
/// Owns: the record of images that sessions are writing again. Threads: the reactor's.
class SetRewrites {
 public:
  using Set = std::pair<FileId, ImageName>;  ///< folder, and the parts of an image's name
  SetRewrites(Pool& pool, SetKeeper& sets) : pool_(pool), sets_(sets) {}

  /// Returns the folder and the parts of the name, committed or pending, when the file is an image.
  std::optional<Set> set_of(const File& file) const;
  /// Returns true when an fsync of the file may leave a part of a set's member. The file is an image,
  /// or lies in a directory that is a set, or gets such a name.
  bool is_member(const File& file) const;
  /// Called when a writer has closed the file without an error, and no other writes it. Notes that
  /// its version is no part. Returns true when this is journalled.
  bool closed(const SessionRecord& session);
  /// Registers the image as being written again, as long as the session is open.
  void begin(SessionRecord& session, const File& file);
  /// As begin(), for a session that is resumed. Begins a new generation if others have committed
  /// images of the set before this client came back: the manager did not know of the rewriting.
  void begin_late(SessionRecord& session, const File& file);
  /// The session has ended.
  void end(const SessionRecord& session);
  /// Ends the generation of the set: an image was given up half written, so this generation lacks
  /// it.
  void end_generation(const SessionRecord& session);
  /// Returns true when an image `name` would be added to a set that was found whole with fewer
  /// images than its folder asks for now. Such an addition counts as writing the set again.
  bool extends_complete_set(FileId folder, std::string_view name) const;
  /// Returns the newest commit that a committed image of the session replaces, or 0 when the image
  /// begins no new generation. `name` is the image's name after the commit.
  std::uint64_t replaced_by(const SessionRecord& session, const Set& set,
                            std::string_view name) const;

 private:
  void note_closed(const File& file, bool lost);
  /// Records, for the directory that is a set, a writer that ended without any commit of `file`. After
  /// a commit, `file` itself is marked as a part.
  void note_lost_writer(const SessionRecord& session, const File& file);

  Pool& pool_;
  SetKeeper& sets_;
  Rewriters rewriters_;
};

}  // namespace stdchk::manager
