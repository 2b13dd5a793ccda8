#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A benefactor may still serve a request this long after its deadline. It is longer than the
/// silence after which a link counts as lost.
inline constexpr Duration kTransit = std::chrono::seconds(15);

/// Returns true when the error says nothing of whether the request was executed.
bool is_outcome_unknown(const rpc::Answer& answer);
bool same_or_below(const std::string& path, const std::string& directory);
/// Returns the path in the drain directory of a version with that VersionData::aside.
std::string aside_path(FileId file, std::uint64_t number);
/// Returns true when a file with that path must not get its name before or during the change.
bool concerns(const msg::MirrorChange& change, FileId file, const std::string& path);

/// A NameMirror repeats changes of names in the drain directory, one after the other, in the order
/// of the state's mirror queue.
///
/// Threads: the reactor's.
/// Errors: a change that fails is tried again after 1 s. After 5 errors a change that moves no file
/// is given up, and logged.
class NameMirror {
 public:
  struct Hooks {
    std::function<bool(const msg::MirrorChange& change)> is_path_in_use;
    /// The drain directory has the file's earlier bytes under that number now.
    std::function<void(FileId file, std::uint64_t number)> on_set_aside;
    std::function<void()> on_wait_ended;  ///< all benefactors came before the wait was over
    std::function<void()> on_changed;     ///< a change is recorded
  };
  NameMirror(Pool& pool, Hooks hooks) : pool_(pool), hooks_(std::move(hooks)) {}

  void run();
  /// Changes no names before `until`, or before all benefactors have come: they may still execute
  /// requests of an earlier manager.
  void wait(Time until) { names_from_ = until; }
  /// Ends that wait when it is over. Returns true when names may change.
  bool try_end_wait();
  /// Returns true while the drain directory may have the file's earlier content under another name.
  bool blocks(const File& file) const;
  /// Returns true while the link of the file's folder must change first. The link must not name
  /// a set while an image of this set is replaced.
  bool waits_for_link(const File& file) const;

 private:
  bool skip(std::uint64_t sequence, const msg::MirrorChange& change);
  rpc::Peer* peer();
  void mirrored(std::uint64_t sequence, const rpc::Answer& answer);

  Pool& pool_;
  const Hooks hooks_;
  Time names_from_{};
  bool in_flight_ = false;
  std::uint32_t attempts_ = 0;
  Time next_{};
  BenefactorId at_;
  Time late_{};  ///< end of the time in which only benefactor `at_` is asked
};

}  // namespace stdchk::manager
