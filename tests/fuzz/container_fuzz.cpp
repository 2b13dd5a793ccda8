// Reads descriptions of containers, networks and checkpoints from the wire and from the pool, and
// plays a process at a job's control socket. Each accepted text is written and read again. An
// accepted request is a line of at most 4 KiB.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "container/description/description.h"
#include "container/job/control.h"
#include "core/base/assert.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/temporary_folder.h"

using namespace stdchk;
using namespace stdchk::container;

namespace {

template <class T>
void check_again(const Outcome<T>& read, Outcome<T> (*parse)(const std::string&)) {
  if (!read) {
    STDCHK_ASSERT(!read.error().text.empty());
    return;
  }
  const Outcome<T> again = parse(text_of(*read));
  STDCHK_ASSERT(again && *again == *read);
}

void read_text(const std::string& text) {
  check_again<BoxDescription>(parse_box(text), parse_box);
  check_again<NetworkDescription>(parse_network(text), parse_network);
  check_again<SetDescription>(parse_set(text), parse_set);
  const std::uint64_t set = set_of_name("app", text);
  if (set != 0) STDCHK_ASSERT(set_of_name("app", description_name("app", set)) == set);
}

/// A job's control socket; it answers each request with its length.
class World {
 public:
  World() : path_(fuzz::folder().path() + "/control") {
    auto made = Control::listen(path_, [this](const std::string& request, Control::Answer answer) {
      STDCHK_ASSERT(request.size() < 4096 && request.find('\n') == std::string::npos);
      ++requests_;
      answer(std::to_string(request.size()));
    });
    STDCHK_ASSERT(made);
    control_ = std::move(*made);
  }
  Descriptor visit() {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    STDCHK_ASSERT(
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    control_->poll();
    return socket;
  }
  void turn() { control_->poll(); }
  int requests() const { return requests_; }

 private:
  const std::string path_;
  std::unique_ptr<Control> control_;
  int requests_ = 0;
};

void visit(World& world, fuzz::Choices& choices) {
  const Descriptor socket = world.visit();
  const int before = world.requests();
  while (!choices.empty()) {
    const ByteSpan piece = choices.bytes(choices.byte() * (choices.flag() ? 1U : 20U));
    if (piece.empty()) continue;
    if (::send(socket.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
    world.turn();
  }
  world.turn();
  STDCHK_ASSERT(world.requests() - before <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;
  fuzz::Choices choices(ByteSpan(reinterpret_cast<const std::byte*>(data), size));
  if (choices.below(4) == 0) {
    visit(world, choices);
  } else {
    read_text(fuzz::text_of(choices.rest()));
  }
  return 0;
}
