#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/engine/session_table.h"
#include "client/net/shared.h"
#include "client/write/series_naming.h"
#include "client/write/session.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A SessionOpener opens sessions at the manager and puts them into the SessionTable.
///
/// Owns: what was learned about naming, by series.
/// Threads: any, with the engine's lock held.
/// Limits: learns of kSeriesMax series; when full, it forgets all.
class SessionOpener {
 public:
  static constexpr std::size_t kSeriesMax = 65536;

  /// A request to the manager, its answer, and an answer that comes after kManagerLost
  /// (ManagerClient::call). The callbacks run on the reactor's thread without the lock.
  using Call = std::function<void(msg::Request, std::function<void(rpc::Answer)>,
                                  std::function<void(rpc::Answer)>)>;
  struct Config {
    std::uint64_t naming_judged_bytes = SeriesNaming::kJudgedBytes;
    std::uint32_t copies = 0;  ///< number of a Redundancy; 0: the folder's or the pool's setting
    bool waits_for_copies = false;  ///< closes wait for all copies, whatever the folder says
  };
  /// An Opening is an open under way.
  struct Opening {
    std::optional<Status> status;
    CondVar answered;    ///< signalled when `status` has been set
    SessionPtr session;  ///< counts this opener already
    bool created = false;
    Attributes attributes;
    /// Sees the attributes on the link's thread with the lock held, in the order of the manager's
    /// notices. May be empty.
    std::function<void(const Attributes&)> on_answer;
  };

  SessionOpener(SessionHost& host, SessionTable& sessions, Call call, const Config& config)
      : host_(host), sessions_(sessions), call_(std::move(call)), config_(config) {}

  /// Opens a session. `naming` is the pool's setting. A caller that drops the result before
  /// `status` is set has given up; the session is then closed.
  std::shared_ptr<Opening> open(msg::OpenSession request, Naming naming,
                                std::function<void(const Attributes&)> on_answer)
      STDCHK_REQUIRES(engine_lock);

 private:
  std::shared_ptr<SeriesNaming> series_of(const msg::OpenSession& request, Naming naming)
      STDCHK_REQUIRES(engine_lock);
  void opened(Opening& opening, const msg::OpenSession& request,
              std::shared_ptr<SeriesNaming> naming, rpc::Answer answer)
      STDCHK_REQUIRES(engine_lock);
  void share(Opening& opening, bool truncate, SessionPtr session) STDCHK_REQUIRES(engine_lock);
  void opened_late(const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);
  void close_unused(SessionId session) STDCHK_REQUIRES(engine_lock);

  SessionHost& host_;
  SessionTable& sessions_;
  const Call call_;
  const Config config_;
  std::map<std::pair<FileId, std::string>, std::shared_ptr<SeriesNaming>> series_
      STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
