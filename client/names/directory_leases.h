#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "client/engine/engine.h"
#include "client/engine/lease_holder.h"
#include "client/names/held_directories.h"
#include "client/names/name_batches.h"
#include "core/base/clock.h"
#include "core/base/limits.h"

namespace stdchk::client {

/// A DirectoryLeases asks for leases on directories whose names this client changes often. It
/// returns leases when others want the directories. docs/decisions/0075 has the table of states.
///
/// Threads: any, with the engine's lock held. Nothing waits: after kWouldBlock, wait for changed().
/// Destroy it after the engine, whose last calls end here.
/// Errors: when the manager has ended the leases, the next open or fsync of each file whose change
///   may be lost fails once. An fsync of the directory reports the loss once, too.
/// Limits: kHeldMax directories with kNamesMax names; further directories are not asked for.
class DirectoryLeases final : public LeaseHolder {
 public:
  static constexpr std::size_t kHeldMax = limits::kListItemsMax;  ///< one notice recalls all
  static constexpr std::size_t kNamesMax = 200'000;
  static constexpr std::size_t kChangesToAsk = 8;
  static constexpr Duration kChangesWithin = std::chrono::seconds(1);

  /// Opens sessions for the open, empty files of a directory, before its lease ends: the manager
  /// does not know these files. Returns false while the manager has not answered.
  using Settle = std::function<bool(FileId directory)>;

  explicit DirectoryLeases(Engine& engine);
  ~DirectoryLeases() override;
  DirectoryLeases(const DirectoryLeases&) = delete;
  DirectoryLeases& operator=(const DirectoryLeases&) = delete;

  void set_settle(Settle settle) STDCHK_REQUIRES(engine_lock) { settle_ = std::move(settle); }

  /// Says whether a call about the names of a directory may begin. kWouldBlock: it must wait. On
  /// success, is_held() says whether the names here answer the call.
  Status may_begin(FileId directory) const STDCHK_REQUIRES(engine_lock);
  /// Begins a call that goes to the manager. end() must follow.
  void begin(FileId directory) STDCHK_REQUIRES(engine_lock);
  /// Ends that call. `changed`: it has changed a name.
  void end(FileId directory, bool changed) STDCHK_REQUIRES(engine_lock);
  /// Says whether a call may be answered with the file's names and attributes here. kWouldBlock: not
  /// now.
  Status may_answer_about(FileId file) const STDCHK_REQUIRES(engine_lock);
  bool is_held(FileId directory) const STDCHK_REQUIRES(engine_lock) {
    return names_.directory(directory) != nullptr && !returning_.contains(directory);
  }
  /// Begins to return these leases, with their changes. Others are ignored.
  void give_back(const std::vector<FileId>& directories) STDCHK_REQUIRES(engine_lock);
  bool has_room_for_directory() const STDCHK_REQUIRES(engine_lock) {
    return names_.directory_count() < kHeldMax;
  }
  bool has_room_for_name() const STDCHK_REQUIRES(engine_lock) {
    return names_.file_count() < kNamesMax;
  }
  /// Counts the times that the manager has ended all leases.
  std::uint64_t losses() const STDCHK_REQUIRES(engine_lock) { return losses_; }

  HeldDirectories& names() STDCHK_REQUIRES(engine_lock) { return names_; }
  NameBatches& batches() STDCHK_REQUIRES(engine_lock) { return batches_; }
  CondVar& changed() { return changed_; }

  // LeaseHolder
  void send_changes() override STDCHK_REQUIRES(engine_lock) { batches_.send(); }
  bool may_go() const override { return batches_.may_go(); }
  void recalled(const std::vector<FileId>& directories) override STDCHK_REQUIRES(engine_lock);
  void file_changed(FileId file) override STDCHK_REQUIRES(engine_lock);
  void registered(bool same, bool same_epoch) override STDCHK_REQUIRES(engine_lock);
  void tick() override STDCHK_REQUIRES(engine_lock);

 private:
  /// A directory that is not held.
  struct Plain {
    std::size_t under_way = 0;  ///< calls about its names
    std::deque<Time> changes;   ///< the newest
    bool asking = false;        ///< the manager was asked for a lease, or for names
    Time asks_after{};
    Duration back_off{};
  };
  /// A granted lease whose names have not all arrived.
  struct Listing {
    HeldDirectories::Directory directory;
    std::vector<msg::DirectoryEntry> entries;
    /// Files whose attributes have changed since. The entries may have the old attributes.
    std::set<FileId> changed;
  };
  /// Nothing can be lost with the link.
  bool is_idle() const STDCHK_REQUIRES(engine_lock) {
    return names_.empty() && returning_.empty() && listings_.empty() && batches_.empty();
  }
  Status not_now() const STDCHK_REQUIRES(engine_lock);
  Status may_answer() const STDCHK_REQUIRES(engine_lock);
  bool wants(FileId directory, const Plain& plain) const STDCHK_REQUIRES(engine_lock);
  void ask(FileId directory) STDCHK_REQUIRES(engine_lock);
  void asked(FileId directory, const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);
  void refused(FileId directory) STDCHK_REQUIRES(engine_lock);
  void list(FileId directory, std::shared_ptr<Listing> listing) STDCHK_REQUIRES(engine_lock);
  void listed(FileId directory, std::shared_ptr<Listing> listing, const rpc::Answer& answer)
      STDCHK_REQUIRES(engine_lock);
  void hold(FileId directory, Listing& listing) STDCHK_REQUIRES(engine_lock);
  void return_now() STDCHK_REQUIRES(engine_lock);
  void return_unknown(FileId directory, std::uint64_t holder) STDCHK_REQUIRES(engine_lock);
  void returned(const std::vector<FileId>& directories, std::uint64_t holder,
                const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);
  void lost(const NameBatches::Changes& changes) STDCHK_REQUIRES(engine_lock);
  void call(msg::Request request, void (DirectoryLeases::*done)(FileId, const rpc::Answer&),
            FileId directory) STDCHK_REQUIRES(engine_lock);

  Engine& engine_;
  CondVar changed_;
  HeldDirectories names_ STDCHK_GUARDED_BY(engine_lock);
  NameBatches batches_;
  Settle settle_ STDCHK_GUARDED_BY(engine_lock);
  std::unordered_map<FileId, Plain> plain_ STDCHK_GUARDED_BY(engine_lock);
  std::map<FileId, std::shared_ptr<Listing>> listings_ STDCHK_GUARDED_BY(engine_lock);
  /// Leases that are on their way back. The table names_ keeps their names until the manager
  /// answers.
  std::set<FileId> returning_ STDCHK_GUARDED_BY(engine_lock);
  /// Leases that must be returned when no batch's outcome is unknown.
  std::vector<FileId> to_return_ STDCHK_GUARDED_BY(engine_lock);
  /// Requests keep this count. An answer of an earlier count is ignored.
  std::uint64_t losses_ STDCHK_GUARDED_BY(engine_lock) = 0;
  /// Number of the batch whose answer proves the leases after a lost link; 0: none.
  std::uint64_t unproven_ STDCHK_GUARDED_BY(engine_lock) = 0;
  std::uint32_t silent_ticks_ STDCHK_GUARDED_BY(engine_lock) = 0;  ///< without a link
};

}  // namespace stdchk::client
