#include "fork/process/host_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace stdchk::fork {
namespace {

constexpr int kSlowMilliseconds = 30'000;

struct Head {
  std::uint32_t bytes = 0;
  HostWord word = HostWord::kPrepare;
};

bool write_when_writable(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    pollfd writable{fd, POLLOUT, 0};
    if (errno != EAGAIN || ::poll(&writable, 1, kSlowMilliseconds) != 1) return false;
  }
  return true;
}

}  // namespace

HostChannel::HostChannel(Watches& watches, Descriptor in, Descriptor out, Calls calls)
    : watches_(watches), in_(std::move(in)), out_(std::move(out)), calls_(std::move(calls)) {
  for (const int fd : {in_.get(), out_.get()})
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  watches_.add(in_.get(), [this] { on_readable(); });
}

HostChannel::~HostChannel() { watches_.remove(in_.get()); }

bool HostChannel::send(HostWord word, std::string_view head, std::string_view body) {
  const Head frame{static_cast<std::uint32_t>(head.size() + body.size()), word};
  std::string all(reinterpret_cast<const char*>(&frame), sizeof(frame));
  all.append(head).append(body);
  return write_when_writable(out_.get(), all);
}

void HostChannel::end() {
  watches_.remove(in_.get());
  calls_.on_end();
}

void HostChannel::on_readable() {
  char bytes[64 * 1024];
  const ssize_t n = ::read(in_.get(), bytes, sizeof(bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return end();
  buffer_.append(bytes, static_cast<std::size_t>(n));
  std::string_view left = buffer_;
  std::vector<std::pair<HostWord, std::string>> frames;
  for (;;) {
    std::string_view rest = left;
    Head head;
    if (!take_value(rest, head)) break;
    if (head.bytes > kFrameBytesMax) return end();
    if (rest.size() < head.bytes) break;
    frames.emplace_back(head.word, rest.substr(0, head.bytes));
    left = rest.substr(head.bytes);
  }
  buffer_.erase(0, buffer_.size() - left.size());
  for (const auto& [word, frame] : frames) calls_.on_frame(word, frame);
}

}  // namespace stdchk::fork
