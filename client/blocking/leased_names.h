#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/blocking/blocking_questions.h"
#include "client/names/directory_leases.h"

namespace stdchk::client {

/// An EmptyOpen is an empty file, open for writing, without a session. Guarded by the engine's
/// lock.
struct EmptyOpen {
  FileId file;
  bool is_stored = false;  ///< a batch, or the manager, has its name
  Attributes attributes;   ///< the last that were known
  /// Set when the file gets a session.
  std::shared_ptr<Engine::Opening> opening;
};
using EmptyOpenPtr = std::shared_ptr<EmptyOpen>;

/// A LeasedNames answers calls about names in directories that this client holds, and asks for
/// directories whose names it changes often. Calls wait while a lease is on its way.
///
/// Threads: any. Functions without an attribute take the engine's lock.
/// Errors: as the manager's. A call whose directory is neither held nor on its way returns nothing:
///   the caller asks the manager.
class LeasedNames {
 public:
  /// A Turn is a call that went to the manager because nobody holds its directories. It ends when
  /// the Turn is destroyed.
  class Turn {
   public:
    explicit Turn(LeasedNames* names) : names_(names) {}
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    /// The call has changed names.
    void set_changed() { changed_ = true; }

   private:
    friend class LeasedNames;
    LeasedNames* const names_;
    std::vector<FileId> directories_;
    bool changed_ = false;
  };
  /// The file with that name. Without a number, no such file exists.
  struct Found {
    FileId file;
    std::optional<Attributes> attributes;  ///< unset: ask the manager
  };
  /// The result of a create.
  struct Created {
    FileId existing;    ///< a file of that name
    EmptyOpenPtr made;  ///< a new file
    Attributes attributes;
  };

  explicit LeasedNames(BlockingQuestions& questions);

  Result<std::optional<Found>> lookup(Turn& turn, FileId parent, std::string_view name);
  /// Returns what is known here of a file in a held directory, or of the directory.
  Result<std::optional<Attributes>> attributes(FileId file);
  /// The same without a wait. Lock held.
  std::optional<Attributes> known(FileId file) STDCHK_REQUIRES(engine_lock);
  /// Returns the names of a held directory.
  Result<std::optional<std::vector<msg::DirectoryEntry>>> read_directory(Turn& turn,
                                                                         FileId directory);
  Result<std::optional<Attributes>> set_attributes(const msg::SetAttributes& change);
  /// Makes a directory or a symbolic link. Fills in the number and the time of `change`.
  Result<std::optional<Attributes>> make(Turn& turn, const msg::NameChange& change);
  /// Removes a name.
  Result<std::optional<std::uint32_t>> remove(Turn& turn, FileId parent, std::string_view name,
                                              bool directory);
  Result<std::optional<std::uint32_t>> rename(Turn& turn, const msg::Rename& change);
  Result<std::optional<Created>> create(Turn& turn, FileId parent, std::string_view name,
                                        bool exclusive, Owner owner);
  /// Returns the lease on the directory, for a change that only the manager can make, and the lease
  /// on the directory of `file`.
  Status leave(Turn& turn, FileId directory, FileId file = {});
  /// Returns all leases, with their changes.
  Status leave_all();
  /// Waits until the manager knows the file, which may be open and empty.
  Status settle(FileId file);
  /// Waits until all changes are durable that were answered.
  Status sync();
  /// From now on only the manager, or a session, knows the file's attributes.
  void forget_attributes(FileId file) STDCHK_REQUIRES(engine_lock);

  // ---- files that are open and empty
  /// Gives the file its name in the pool.
  Status store(EmptyOpen& open);
  /// Has the file get a session. Afterwards `opening` is set. Fails when the file is lost.
  Status start_session(EmptyOpen& open) STDCHK_REQUIRES(engine_lock);
  /// The open has ended. A file without a name in the pool is gone.
  void drop(EmptyOpen& open) STDCHK_REQUIRES(engine_lock);

 private:
  /// How a call is answered.
  enum class Way : std::uint8_t { kHere, kManager };
  using Directories = std::initializer_list<FileId>;

  Status wait(Lock& lock, const std::function<Status()>& step) STDCHK_REQUIRES(engine_lock);
  Status choose(Turn& turn, Directories directories, Way& way) STDCHK_REQUIRES(engine_lock);
  Status to_manager(const std::vector<FileId>& directories) STDCHK_REQUIRES(engine_lock);
  Status take_number(FileId& number) STDCHK_REQUIRES(engine_lock);
  Status check_new_name(FileId parent, std::string_view name) STDCHK_REQUIRES(engine_lock);
  Status begin_settling(FileId file) STDCHK_REQUIRES(engine_lock);
  Status settle_name(FileId parent, std::string_view name);
  Status check_settled(FileId file) STDCHK_REQUIRES(engine_lock);
  Status wait_for_session(Lock& lock, const EmptyOpenPtr& open) STDCHK_REQUIRES(engine_lock);
  HeldNames::Stage stage_of(FileId file) STDCHK_REQUIRES(engine_lock);
  Status verify(FileId parent, std::string_view name);
  Status remove_here(FileId parent, std::string_view name, bool directory)
      STDCHK_REQUIRES(engine_lock);
  Status rename_here(const msg::Rename& change, std::uint32_t& left) STDCHK_REQUIRES(engine_lock);
  msg::NameChange change_of(msg::NameChangeKind kind, FileId parent, std::string_view name,
                            FileId file) STDCHK_REQUIRES(engine_lock);
  void add(msg::NameChange change) STDCHK_REQUIRES(engine_lock);
  void end_turn(const Turn& turn);
  bool drains() STDCHK_REQUIRES(engine_lock);

  BlockingQuestions& questions_;
  Engine& engine_;
  DirectoryLeases leases_;
  std::map<FileId, EmptyOpenPtr> empties_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
