#include "client/engine/session_opener.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/policy/image_name.h"

namespace stdchk::client {
namespace {

constexpr std::uint64_t kFirstImageGrant = 2 * limits::kGrantBytesDefault;

}  // namespace

std::shared_ptr<SessionOpener::Opening> SessionOpener::open(
    msg::OpenSession request, Naming naming, std::function<void(const Attributes&)> on_answer) {
  auto opening = std::make_shared<Opening>();
  opening->on_answer = std::move(on_answer);
  request.client = host_.client();
  request.copies = config_.copies;
  request.waits_for_copies = config_.waits_for_copies;
  auto series = series_of(request, naming);
  // Space asked for at once: much for an image, one chunk for another new file. Writers of existing
  // files get space when they need it, and so do writers of many files at once.
  const std::uint64_t chunk_extent = extent_bytes(host_.window().chunk_bytes());
  if (parse_image_name(request.name).has_value()) {
    request.want_bytes = std::clamp(host_.arena_bytes_total() / 16, chunk_extent, kFirstImageGrant);
  } else if ((!request.file || request.truncate) &&
             sessions_.size() < host_.window().slot_count() / 2) {
    request.want_bytes = chunk_extent;
  }
  call_(
      request,
      [this, wanted = std::weak_ptr(opening), request, series](rpc::Answer answer) {
        const Lock lock(host_.shared().mutex);
        if (const auto awaited = wanted.lock()) {
          opened(*awaited, request, series, std::move(answer));
          awaited->answered.notify_all();
        } else {
          opened_late(answer);
        }
        host_.shared().changed.notify_all();
      },
      [this](const rpc::Answer& answer) {
        const Lock lock(host_.shared().mutex);
        opened_late(answer);
      });
  return opening;
}

/// Returns what was learned about naming from the same series: the images A.Ni of a directory, its
/// other files together, or the file itself.
std::shared_ptr<SeriesNaming> SessionOpener::series_of(const msg::OpenSession& request,
                                                       Naming naming) {
  if (series_.size() >= kSeriesMax) series_.clear();
  std::pair<FileId, std::string> key{request.file ? request.file : request.parent, {}};
  if (const auto image = parse_image_name(request.name); image.has_value()) {
    key.second = image->application + ".N" + std::to_string(image->node);
  }
  auto& series = series_[key];
  if (series == nullptr) {
    // A folder's policy may name chunks although the pool's setting is off.
    const Naming mode = naming == Naming::kOff ? Naming::kAuto : naming;
    series = std::make_shared<SeriesNaming>(mode, config_.naming_judged_bytes);
  }
  return series;
}

/// Closes the session of an opener that has given up. Otherwise nobody would end it, and its empty
/// file would stay.
void SessionOpener::opened_late(const rpc::Answer& answer) {
  if (!answer.has_value()) return;
  if (const auto* reply = std::get_if<msg::OpenSession::Reply>(&*answer)) {
    close_unused(reply->session);
  }
}

void SessionOpener::close_unused(SessionId session) {
  call_(msg::CloseSession{session, false, 0, false}, [](rpc::Answer) {}, {});
}

void SessionOpener::opened(Opening& opening, const msg::OpenSession& request,
                           std::shared_ptr<SeriesNaming> naming, rpc::Answer answer) {
  if (!answer.has_value()) {
    opening.status = fail(answer.error().error);
    return;
  }
  auto* reply = std::get_if<msg::OpenSession::Reply>(&*answer);
  if (reply == nullptr) {
    opening.status = fail(Code::kMalformed, "client.open");
    return;
  }
  opening.created = reply->created;
  opening.attributes = reply->attributes;
  opening.status = Status{};
  if (opening.on_answer) opening.on_answer(opening.attributes);
  if (SessionPtr other = sessions_.find(reply->attributes.id);
      other != nullptr && !other->ending()) {
    close_unused(reply->session);
    return share(opening, request.truncate, std::move(other));
  }
  auto session = std::make_shared<Session>(host_, request, std::move(*reply), std::move(naming));
  ++session->figures().manager_calls;
  session->openers = 1;
  sessions_.add(session);
  opening.session = std::move(session);
}

/// Two threads have opened the file at the same time: both use the session of the first.
void SessionOpener::share(Opening& opening, bool truncate, SessionPtr session) {
  if (truncate) {
    if (const Status cut = session->truncate(0); !cut.has_value()) {
      opening.status = fail(cut.error());
      return;
    }
  }
  ++session->openers;
  opening.session = std::move(session);
}

}  // namespace stdchk::client
