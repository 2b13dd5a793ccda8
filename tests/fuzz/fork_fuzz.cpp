// Plays a process at stdchk-forkd's socket, and the daemon of another host at the end of a remote
// shell. The process sends any bytes, and records of any content with any number of open files. The
// other daemon sends frames of any length. No record or frame is longer than its limit, and no open
// file of the peer stays.

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/assert.h"
#include "fork/process/connection.h"
#include "fork/process/host_channel.h"
#include "fork/process/host_network.h"
#include "tests/fuzz/choices.h"

using namespace stdchk;
using namespace stdchk::fork;

namespace {

constexpr std::size_t kFilesMax = 3;

/// The number that the next file of this process gets: it grows when a file stays open.
int next_file() {
  const int file = ::dup(0);
  STDCHK_ASSERT(file >= 0);
  ::close(file);
  return file;
}

void send(int socket, ByteSpan bytes, unsigned files, int file) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesMax * sizeof(int))> room{};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (files > 0) {
    const std::vector<int> all(files, file);
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(files * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(files * sizeof(int));
    std::memcpy(CMSG_DATA(head), all.data(), files * sizeof(int));
  }
  static_cast<void>(::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

void play_process(fuzz::Choices& choices) {
  std::array<int, 2> sockets{};
  STDCHK_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) == 0);
  const Descriptor process(sockets[0]);
  const Descriptor file(::eventfd(0, EFD_CLOEXEC));
  Connection daemon{Descriptor(sockets[1])};
  const int before = next_file();
  while (!choices.empty()) {
    local::Record record;
    record.kind = static_cast<local::Kind>(choices.byte());
    record.value_bytes = choices.byte() * (choices.flag() ? 1U : 17U);
    if (choices.below(16) == 0) record.version = choices.byte();
    std::array<std::byte, sizeof(record) + 64> bytes{};
    std::memcpy(bytes.data(), &record, sizeof(record));
    const std::size_t length =
        choices.flag() ? local::size_of(record) : local::kHeadBytes + choices.byte() - 64;
    send(process.get(), ByteSpan(bytes).first(std::min(length, bytes.size())),
         choices.below(kFilesMax + 1), file.get());
    local::Record heard;
    Process sender;
    Descriptor passed;
    const auto got = daemon.receive(heard, sender, passed);
    if (got != Connection::Got::kRecord) continue;
    STDCHK_ASSERT(sender && sender->pid() == ::getpid());
    STDCHK_ASSERT(heard.value_bytes <= local::kValueBytesMax);
    STDCHK_ASSERT(local::size_of(heard) == length && heard.kind == record.kind);
  }
  STDCHK_ASSERT(next_file() == before);
}

void play_host(fuzz::Choices& choices) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  STDCHK_ASSERT(::pipe2(in.data(), O_CLOEXEC) == 0 && ::pipe2(out.data(), O_CLOEXEC) == 0);
  Descriptor other(in[1]);
  const Descriptor heard(out[0]);
  Watches watches;
  int ends = 0;
  std::size_t bytes_heard = 0;
  std::size_t bytes_sent = 0;
  HostChannel channel(watches, Descriptor(in[0]), Descriptor(out[1]),
                      {[&](HostWord, std::string_view frame) {
                         STDCHK_ASSERT(frame.size() <= HostChannel::kFrameBytesMax);
                         bytes_heard += frame.size() + 8;
                         PageRange range;
                         static_cast<void>(decode_network(frame));
                         std::string_view rest = frame;
                         STDCHK_ASSERT(take_value(rest, range) == (frame.size() >= sizeof(range)));
                       },
                       [&] { ++ends; }});
  while (!choices.empty()) {
    std::vector<std::byte> bytes;
    if (choices.flag()) {
      const std::uint32_t length = choices.below(200);
      const std::uint32_t word = choices.below(12);
      bytes.resize(sizeof(length) + sizeof(word) + length);
      std::memcpy(bytes.data(), &length, sizeof(length));
      std::memcpy(bytes.data() + sizeof(length), &word, sizeof(word));
    } else {
      const ByteSpan any = choices.bytes(choices.byte());
      bytes.assign(any.begin(), any.end());
    }
    if (bytes.empty()) continue;
    const ssize_t sent = ::write(other.get(), bytes.data(), bytes.size());
    if (sent > 0) bytes_sent += static_cast<std::size_t>(sent);
    watches.poll();
  }
  other = Descriptor();
  watches.poll();
  watches.poll();
  STDCHK_ASSERT(ends == 1);
  STDCHK_ASSERT(bytes_heard <= bytes_sent);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices(
      ByteSpan(reinterpret_cast<const std::byte*>(data), std::min<std::size_t>(size, 16384)));
  choices.flag() ? play_process(choices) : play_host(choices);
  return 0;
}
