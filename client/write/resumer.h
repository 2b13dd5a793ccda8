#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/write/chunk_writer.h"
#include "client/write/committer.h"
#include "client/write/session_core.h"
#include "client/write/space_keeper.h"
#include "client/write/written_file.h"

namespace stdchk::client {

/// A Resumer reports the session to a manager of another epoch, so that the session can go on. It
/// reports stored chunks. For a file without a version it also reports name and attributes, because
/// only clients know them.
///
/// | step    | leaves when                                                      |
/// |---------|------------------------------------------------------------------|
/// | none    | begin() -> waits                                                 |
/// | waits   | no write and no call is under way any more -> sending            |
/// | sending | the manager has answered the last part -> none; the session fails|
///
/// Threads: any, with the engine's lock held; plan() on the reactor's thread.
class Resumer {
 public:
  struct Parts {
    SessionCore& core;
    WrittenFile& written;
    Committer& committer;
    ChunkWriter& writer;
    SpaceKeeper& space;
  };
  /// `opened_after`: the pool's newest commit at the open.
  Resumer(const Parts& parts, const msg::OpenSession& request, std::uint64_t opened_after);

  /// Returns false when the session cannot go on with another manager.
  bool possible() const STDCHK_REQUIRES(engine_lock) { return can_resume_; }
  /// Begins, because a new manager has come.
  void begin() STDCHK_REQUIRES(engine_lock);
  /// True until the present manager has accepted the session.
  bool under_way() const STDCHK_REQUIRES(engine_lock) { return step_ != Step::kNone; }
  /// True while a session without an error is under way.
  bool is_unknown() const STDCHK_REQUIRES(engine_lock) {
    return under_way() && !parts_.core.error.has_value();
  }
  /// Sends the next part when no call and no write is under way. Calls to the old manager end with
  /// kFenced; writes end with their links.
  void plan(Work& work) STDCHK_REQUIRES(engine_lock);

  // ---- a file without a version
  bool is_pending() const STDCHK_REQUIRES(engine_lock) {
    return parts_.core.attributes.version == 0;
  }
  /// The directory that has the file's name; no directory for a file that has no name. Only for a
  /// file without a version.
  FileId parent() const STDCHK_REQUIRES(engine_lock) { return parent_; }
  const std::string& name() const STDCHK_REQUIRES(engine_lock) { return name_; }
  /// Records a change that the manager has executed. Without a `parent`, the file has no name.
  void renamed(FileId parent, std::string_view name) STDCHK_REQUIRES(engine_lock);
  void changed(const msg::SetAttributes& change) STDCHK_REQUIRES(engine_lock);
  void changed(const msg::SetXattr& change) STDCHK_REQUIRES(engine_lock);
  /// Forbids a file without a version to resume, because the outcome of a change is unknown.
  void forbid_resume() STDCHK_REQUIRES(engine_lock) { can_resume_ = can_resume_ && !is_pending(); }

 private:
  enum class Step : std::uint8_t { kNone, kWaits, kSending };
  void build() STDCHK_REQUIRES(engine_lock);
  void on_answer(std::uint64_t generation, const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);

  const Parts parts_;
  const std::uint64_t opened_after_;
  const std::uint32_t copies_;  ///< Redundancy that the client asked for; 0: none
  const bool client_waits_;     ///< the client asked that closes wait for all copies
  FileId parent_;  ///< directory named in the open; of a file without a version, the present one
  std::string name_;
  Step step_ = Step::kNone;
  bool can_resume_ = true;
  bool renamed_ = false;                       ///< its name changed while it had no version
  bool changed_ = false;                       ///< its attributes changed while it had no version
  std::map<std::string, std::string> xattrs_;  ///< set while it had no version
  std::vector<msg::ResumeSession> messages_;
  std::size_t next_ = 0;
};

}  // namespace stdchk::client
