#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "bench/measuring.h"
#include "core/values/ids.h"

namespace stdchk::bench {

/// A RawPeer is a process whose memory is read without stdchk: the floor of any library.
///
/// Owns: the process.
class RawPeer {
 public:
  /// Reads of `block` bytes of this process's `memory`, as it is now.
  RawPeer(std::uint64_t block, ByteSpan memory) : memory_(memory) {
    std::array<int, 2> ends{};
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      give_up_call("cannot listen on the loopback device");
    }
    ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(ends[0], reinterpret_cast<sockaddr*>(&address), length) != 0) {
      give_up_call("cannot connect over the loopback device");
    }
    ends[1] = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ::close(listener);
    const int on = 1;
    for (const int end : ends) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    process_ = ::fork();
    if (process_ == 0) serve(ends[1], block);
    ::close(ends[1]);
    socket_ = ends[0];
  }
  ~RawPeer() {
    ::kill(process_, SIGKILL);
    ::close(socket_);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  void copy(std::uint64_t offset, MutableByteSpan out) const {
    const iovec here{out.data(), out.size()};
    // The child is a copy of this process: its memory has the same addresses.
    const iovec there{const_cast<std::byte*>(memory_.data()) + offset, out.size()};
    if (::process_vm_readv(process_, &here, 1, &there, 1, 0) != std::ssize(out)) {
      give_up_call("cannot read another process");
    }
  }
  void ask(std::uint64_t offset, MutableByteSpan out) const {
    if (::write(socket_, &offset, sizeof(offset)) != sizeof(offset)) give_up_call("cannot ask");
    for (std::size_t done = 0; done < out.size();) {
      const ssize_t got = ::read(socket_, out.data() + done, out.size() - done);
      if (got <= 0) give_up_call("no answer");
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  [[noreturn]] void serve(int socket, std::uint64_t block) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::uint64_t offset = 0;
    while (::read(socket, &offset, sizeof(offset)) == sizeof(offset)) {
      if (::write(socket, memory_.data() + offset, block) < 0) break;
    }
    ::_exit(0);
  }

  const ByteSpan memory_;
  pid_t process_ = 0;
  int socket_ = -1;
};

}  // namespace stdchk::bench
