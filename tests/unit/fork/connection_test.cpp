#include "fork/process/connection.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

/// The number that the next file of this process gets: it grows when a file stays open.
int next_file() {
  const int file = ::dup(0);
  ::close(file);
  return file;
}

/// Sends `bytes` bytes of the record with `files` copies of the file.
void send(int socket, const local::Record& record, std::size_t bytes, unsigned files, int file) {
  const std::array<int, 2> all{file, file};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(all))> room{};
  iovec part{const_cast<local::Record*>(&record), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = CMSG_SPACE(files * sizeof(int));
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(files * sizeof(int));
  std::memcpy(CMSG_DATA(head), all.data(), files * sizeof(int));
  REQUIRE(::sendmsg(socket, &message, 0) == static_cast<ssize_t>(bytes));
}

TEST_CASE("files beside the first one, and files of an empty record, do not stay open") {
  std::array<int, 2> sockets{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets.data()) == 0);
  const Descriptor process(sockets[0]);
  const Descriptor file(::eventfd(0, EFD_CLOEXEC));
  Connection daemon{Descriptor(sockets[1])};
  const int before = next_file();
  const local::Record record;
  for (const unsigned files : {1U, 2U}) {
    for (const std::size_t bytes : {local::size_of(record), std::size_t{7}, std::size_t{0}}) {
      INFO(files << " files, " << bytes << " bytes");
      send(process.get(), record, bytes, files, file.get());
      local::Record heard;
      {
        Process sender;
        Descriptor passed;
        const auto got = daemon.receive(heard, sender, passed);
        CHECK((got == Connection::Got::kRecord) == (bytes == local::size_of(record)));
      }
      CHECK(next_file() == before);
    }
  }
}

}  // namespace
}  // namespace stdchk::fork
