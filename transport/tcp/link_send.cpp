#include <sys/epoll.h>

#include "core/base/limits.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/link.h"

namespace stdchk::transport::tcp {
namespace {

/// A link sends so many bytes before other links have their turn.
constexpr std::size_t kSendBytesPerTurn = 2 * limits::kMiB;

}  // namespace

bool TcpLink::pump() {
  if (state_ == State::kConnecting || state_ == State::kProving || state_ == State::kClosed) {
    return false;
  }
  for (std::size_t bytes = 0;;) {
    while (tls_->has_room() && queue_.has_frames()) {
      const ByteSpan record = queue_.next_record();
      bytes += record.size();
      if (!tls_->write(record)) return fail_link("tcp.send");
    }
    const TlsSession::Io io = tls_->flush();
    if (io == TlsSession::Io::kLost) return fail_link("tcp.send");
    watch_room(io == TlsSession::Io::kBlocked);
    if (!pump_clear(bytes)) return false;
    if (io == TlsSession::Io::kBlocked || !queue_.has_frames()) return false;
    if (bytes >= kSendBytesPerTurn) return true;
  }
}

/// Sends announced content in clear, and adds its `bytes`. False: the link has ended.
bool TcpLink::pump_clear(std::size_t& bytes) {
  while (clear_.has_to_send()) {
    const TlsSession::Io io = clear_.send();
    if (io == TlsSession::Io::kLost) return fail_link("tcp.content");
    if (io == TlsSession::Io::kBlocked) return true;
    const ClearContent::Frame& frame = clear_.next_to_send();
    const bool ends_write = frame.ends && frame.header.type == FrameType::kWrite;
    transfers_.part_sent(ends_write ? frame.header.id : 0);
    bytes += frame.header.length;
    clear_.end_send();
  }
  return true;
}

void TcpLink::watch_room(bool wanted) {
  if (waits_for_room_ == wanted) return;
  waits_for_room_ = wanted;
  endpoint_.watch(*this, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

}  // namespace stdchk::transport::tcp
