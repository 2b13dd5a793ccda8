#include "fuse/request.h"

#include <cerrno>

#include "core/base/log.h"
#include "fuse/bridge.h"

namespace stdchk::mount {

void reply(fuse_req_t request, const Status& status) {
  const int number = status ? 0 : to_errno(status.error());
  // The application sees only the errno, so the log gets the reason.
  if (number == EIO) log::error("An input/output error: {}", describe(status.error()));
  reply_error(request, number);
}

void reply_for(const NodeTable& nodes, const Node& node, fuse_req_t request, const Status& status) {
  const int number = status ? 0 : to_errno(status.error());
  if (number == EIO) {
    log::error("An input/output error of {}: {}", nodes.path_of(node), describe(status.error()));
  }
  reply_error(request, number);
}

void reply_error(fuse_req_t request, int number) {
  if (number != 0) {
    static_cast<Bridge*>(fuse_req_userdata(request))->counts().count_error(number);
  }
  fuse_reply_err(request, number);
}

void reply_sized(fuse_req_t request, std::string_view value, std::size_t size) {
  if (size == 0) {
    fuse_reply_xattr(request, value.size());
  } else if (value.size() > size) {
    reply_error(request, ERANGE);
  } else {
    fuse_reply_buf(request, value.data(), value.size());
  }
}

}  // namespace stdchk::mount
