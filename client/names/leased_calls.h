#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "client/names/directory_leases.h"

namespace stdchk::client {

/// An EmptyOpen is an empty file, open for writing, without a session. Guarded by the engine's
/// lock.
struct EmptyOpen {
  FileId file;
  bool is_stored = false;  ///< a batch, or the manager, has its name
  Attributes attributes;   ///< the last that were known
  /// The times that were set before the file got a session. Its user sends them behind the open.
  std::optional<msg::SetAttributes> times;
  /// Set when the file gets a session.
  std::shared_ptr<Engine::Opening> opening;
};
using EmptyOpenPtr = std::shared_ptr<EmptyOpen>;

/// A LeasedCalls answers calls about names in directories that this client holds, and asks for
/// directories whose names it changes often. Each function is a step of a call. After kWouldBlock, the
/// caller tries the step again with the same Turn when changed() was signalled.
///
/// Threads: any, with the engine's lock held. Nothing waits: LeasedNames does, and simulators try again.
/// Destroy it after the engine.
/// Errors: as the manager's. A call whose directory is neither held nor on its way returns nothing:
///   the caller asks the manager.
class LeasedCalls {
 public:
  /// A Turn is one call. A call that went to the manager, because nobody holds its directories, ends
  /// when the Turn is destroyed. Destroy it without the lock.
  class Turn {
   public:
    explicit Turn(LeasedCalls* calls) : calls_(calls) {}
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    /// The call has changed names.
    void set_changed() { changed_ = true; }

   private:
    friend class LeasedCalls;
    LeasedCalls* const calls_;
    std::vector<FileId> directories_;
    bool changed_ = false;
    /// The manager's answers about files whose sessions have ended. Unset: not yet.
    std::map<FileId, std::shared_ptr<std::optional<Status>>> asked_;
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
  /// The changes that were answered at a moment.
  struct SyncPoint {
    std::uint64_t batch = 0;
    std::uint64_t losses = 0;
  };

  explicit LeasedCalls(Engine& engine);

  Result<std::optional<Found>> lookup(Turn& turn, FileId parent, std::string_view name)
      STDCHK_REQUIRES(engine_lock);
  /// Returns what is known here of a file in a held directory, or of the directory.
  Result<std::optional<Attributes>> attributes(FileId file) STDCHK_REQUIRES(engine_lock);
  /// Returns the names of a held directory.
  Result<std::optional<std::vector<msg::DirectoryEntry>>> read_directory(Turn& turn,
                                                                         FileId directory)
      STDCHK_REQUIRES(engine_lock);
  Result<std::optional<Attributes>> set_attributes(const msg::SetAttributes& change)
      STDCHK_REQUIRES(engine_lock);
  /// Makes a directory or a symbolic link. Fills in the number and the time of `change`.
  Result<std::optional<Attributes>> make(Turn& turn, const msg::NameChange& change)
      STDCHK_REQUIRES(engine_lock);
  /// Removes a name.
  Result<std::optional<std::uint32_t>> remove(Turn& turn, FileId parent, std::string_view name,
                                              bool directory) STDCHK_REQUIRES(engine_lock);
  Result<std::optional<std::uint32_t>> rename(Turn& turn, const msg::Rename& change)
      STDCHK_REQUIRES(engine_lock);
  Result<std::optional<Created>> create(Turn& turn, FileId parent, std::string_view name,
                                        bool exclusive, Owner owner) STDCHK_REQUIRES(engine_lock);
  /// Returns the lease on the directory, for a change that only the manager can make, and the lease
  /// on the directory of `file`.
  Status leave(Turn& turn, FileId directory, FileId file = {}) STDCHK_REQUIRES(engine_lock);
  /// Returns all leases, with their changes.
  Status leave_all() STDCHK_REQUIRES(engine_lock);
  /// Sends all changes that were answered.
  SyncPoint begin_sync() STDCHK_REQUIRES(engine_lock);
  /// Says whether the changes before that point are durable.
  Status end_sync(const SyncPoint& point) STDCHK_REQUIRES(engine_lock);
  /// From now on only the manager, or a session, knows the file's attributes.
  void forget_attributes(FileId file) STDCHK_REQUIRES(engine_lock) {
    leases_.names().forget_attributes(file);
  }
  /// The manager has changed attributes of the file, or of the directory, for this client.
  void file_changed(FileId file) STDCHK_REQUIRES(engine_lock) { leases_.file_changed(file); }
  bool is_held(FileId directory) const STDCHK_REQUIRES(engine_lock) {
    return leases_.is_held(directory);
  }
  /// Counts the times that the manager has ended all leases.
  std::uint64_t losses() const STDCHK_REQUIRES(engine_lock) { return leases_.losses(); }
  CondVar& changed() { return leases_.changed(); }

  // ---- files that are open and empty
  /// Returns nullptr for any other file.
  EmptyOpenPtr empty_open(FileId file) const STDCHK_REQUIRES(engine_lock);
  /// Has an open, empty file get a session, before it loses this name. Returns nullptr when no such
  /// file has the name.
  Result<EmptyOpenPtr> begin_settling(FileId parent, std::string_view name)
      STDCHK_REQUIRES(engine_lock);
  /// Gives the file its name in the pool.
  Status store(EmptyOpen& open) STDCHK_REQUIRES(engine_lock);
  /// Opens a session of the file. Repeats an open that failed with a temporary error. Afterwards
  /// `opening` is set. Fails when the file is lost.
  Status start_session(EmptyOpen& open) STDCHK_REQUIRES(engine_lock);
  /// The open has ended. A file without a name in the pool is gone.
  void drop(const EmptyOpen& open) STDCHK_REQUIRES(engine_lock);

 private:
  /// The side that answers a call.
  enum class Way : std::uint8_t { kHere, kManager };
  using Directories = std::initializer_list<FileId>;

  Result<Way> choose(Turn& turn, Directories directories) STDCHK_REQUIRES(engine_lock);
  Result<Way> choose_for_change(Turn& turn, Directories directories) STDCHK_REQUIRES(engine_lock);
  Status to_manager(const std::vector<FileId>& directories) STDCHK_REQUIRES(engine_lock);
  Result<FileId> take_number() STDCHK_REQUIRES(engine_lock);
  Status check_new_name(FileId parent, std::string_view name) STDCHK_REQUIRES(engine_lock);
  Status settle(FileId file) STDCHK_REQUIRES(engine_lock);
  Status check_settled(FileId file) STDCHK_REQUIRES(engine_lock);
  HeldDirectories::Stage stage_of(FileId file) STDCHK_REQUIRES(engine_lock);
  Status verify(Turn& turn, FileId parent, std::string_view name) STDCHK_REQUIRES(engine_lock);
  Status remove_here(FileId parent, std::string_view name, bool directory)
      STDCHK_REQUIRES(engine_lock);
  Result<std::uint32_t> rename_here(const msg::Rename& change) STDCHK_REQUIRES(engine_lock);
  msg::NameChange change_of(msg::NameChangeKind kind, FileId parent, std::string_view name,
                            FileId file) STDCHK_REQUIRES(engine_lock);
  void add(msg::NameChange change) STDCHK_REQUIRES(engine_lock);
  void add_name(EmptyOpen& open) STDCHK_REQUIRES(engine_lock);
  void end_turn(const Turn& turn);
  bool drains() STDCHK_REQUIRES(engine_lock);

  Engine& engine_;
  DirectoryLeases leases_;
  std::map<FileId, EmptyOpenPtr> empties_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
