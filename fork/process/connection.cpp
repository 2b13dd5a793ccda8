#include "fork/process/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fork/pager/passing.h"

namespace stdchk::fork {
namespace {

/// Takes the first file that came with a record, and closes the others. The alignment of the room
/// for one file leaves room for a second file.
Descriptor take_first(cmsghdr& head) {
  Descriptor first;
  const std::size_t count = (head.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(&head) + i * sizeof(int), sizeof(fd));
    Descriptor each(fd);
    if (i == 0) first = std::move(each);
  }
  return first;
}

}  // namespace

void set_value(local::Record& record, const std::string& text) {
  record.value_bytes = static_cast<std::uint32_t>(std::min(text.size(), local::kValueBytesMax));
  std::memcpy(record.value, text.data(), record.value_bytes);
}

Connection::Connection(Descriptor socket)
    : socket_(std::move(socket)), peer_(peer_of(socket_.get())) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) {
    uid_ = peer.uid;
  }
  ask_for_senders(socket_.get());
  // All results of the largest ticket fit, so that answering never waits for a slow caller.
  const int bytes_max = 8 << 20;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &bytes_max, sizeof(bytes_max));
}

Connection::Got Connection::receive(local::Record& record, Process& sender, Descriptor& passed) {
  // The sender's credentials, its pidfd, one file.
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(ucred)) + 2 * CMSG_SPACE(sizeof(int))] = {};
  iovec part{&record, sizeof(record)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // ECONNRESET is said once: the peer has closed without reading everything. Records that the peer
  // sent can still be received.
  if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) return Got::kNothing;
  sender = peer_;
  // An empty record may carry descriptors.
  for (cmsghdr* head = n >= 0 ? CMSG_FIRSTHDR(&message) : nullptr; head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) passed = take_first(*head);
  }
  if (n >= 0) {
    if (Process named = take_sender(message)) sender = std::move(named);
  }
  const bool is_cut = (message.msg_flags & MSG_TRUNC) != 0;
  return n > 0 && !is_cut && local::is_whole(record, static_cast<std::size_t>(n)) ? Got::kRecord
                                                                                  : Got::kEnd;
}

bool Connection::send(const local::Record& record, int passed) {
  const std::size_t bytes = local::size_of(record);
  const int error =
      passed < 0 ? pager::send_message(socket_.get(), &record, bytes, {}, MSG_DONTWAIT)
                 : pager::send_message(socket_.get(), &record, bytes, {passed}, MSG_DONTWAIT);
  return error == 0;
}

bool Connection::done(int error, const std::string& sentence) {
  local::Record record;
  record.kind = local::Kind::kDone;
  record.error = error;
  set_value(record, sentence);
  return send(record);
}

}  // namespace stdchk::fork
