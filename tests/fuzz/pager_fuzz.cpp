// Plays a dishonest process at a page server's socket: any bytes in place of a message, messages of
// other lengths, ranges outside the image. Its files are no images, or no userfaultfds. The server
// must serve the next honest process. Also reads recorded orders and records of images.

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "fork/pager/holder.h"
#include "fork/pager/image_record.h"
#include "fork/pager/listener.h"
#include "fork/pager/passing.h"
#include "fork/pager/server.h"
#include "fork/pager/touch_order.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/temporary_folder.h"

using namespace stdchk;
using namespace stdchk::pager;

namespace {

constexpr std::size_t kPage = 4096;

/// A page server without a pool, for images that come as files.
class World {
 public:
  World()
      : path_(folder_.path() + "/socket"),
        listener_(std::move(*listen_at(path_))),
        ending_(::eventfd(0, EFD_CLOEXEC)),
        pool_({}, clock_),
        holder_(Descriptor()) {
    server_ = std::make_unique<Server>(
        ServerOptions{.workers = 2, .memory_bytes = std::uint64_t{16} << 20}, listener_.get(),
        pool_, holder_);
    serves_ = std::thread([this] { server_->run(ending_.get()); });
  }
  ~World() {
    static_cast<void>(::eventfd_write(ending_.get(), 1));
    serves_.join();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Descriptor visit() const {
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    STDCHK_ASSERT(
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    constexpr timeval kPatience{5, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    return socket;
  }

 private:
  fuzz::TemporaryFolder folder_;
  const std::string path_;
  SystemClock clock_;
  const Descriptor listener_;
  const Descriptor ending_;
  PoolConnection pool_;
  HolderLink holder_;
  std::unique_ptr<Server> server_;
  std::thread serves_;
};

Descriptor file_of(unsigned kind, std::uint64_t length) {
  if (kind == 0) return Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (kind == 1) return Descriptor(::open("/", O_PATH | O_CLOEXEC));
  if (kind == 2) return Descriptor(::eventfd(0, EFD_CLOEXEC));
  Descriptor file(::memfd_create("image", MFD_CLOEXEC));
  // Larger than the longest image, too; the file has holes only.
  (void)!::ftruncate(file.get(), static_cast<off_t>(length >> (kind == 3 ? 48 : 20)));
  return file;
}

/// Checks that the next honest process gets its image.
void check_serves(const World& world, const Descriptor& image) {
  const Descriptor socket = world.visit();
  MapRequest request;
  request.from_file = 1;
  put_text(request.image, "honest");
  STDCHK_ASSERT(send_message(socket.get(), &request, sizeof(request), {image.get()}) == 0);
  MapReply reply;
  int memory = -1;
  const int error = receive(socket.get(), reply, &memory);
  const Descriptor given(memory);
  // The images of others may have filled the table; unused ones leave it after 2 s.
  if (reply.error == to_errno({Code::kBusy, 0, ""})) return;
  STDCHK_ASSERT(error == 0 && reply.error == 0 && reply.length == 3 * kPage);
}

void talk(const World& world, fuzz::Choices& choices) {
  const Descriptor socket = world.visit();
  for (int i = 0; i < 4 && !choices.empty(); ++i) {
    std::array<std::byte, sizeof(MapRequest) + 64> message{};
    std::size_t length = 0;
    const unsigned kind = choices.below(4);
    if (kind == 0) {
      MapRequest request;
      if (choices.below(8) == 0) request.protocol = 7;
      request.from_file = choices.below(3);
      request.offset = choices.flag() ? choices.number() : choices.byte() * kPage;
      request.length = choices.flag() ? choices.number() : choices.byte();
      if (choices.below(8) == 0) std::memset(request.image, 'x', sizeof(request.image));
      length = sizeof(request);
      std::memcpy(message.data(), &request, length);
    } else if (kind == 1) {
      Registered told{choices.number() & ~std::uint64_t{choices.flag() ? kPage - 1 : 0},
                      choices.byte() * kPage, 0, 0};
      length = sizeof(told);
      std::memcpy(message.data(), &told, length);
    } else {
      const ByteSpan bytes = choices.bytes(choices.byte());
      std::memcpy(message.data(), bytes.data(), bytes.size());
      length = kind == 2 ? bytes.size() : bytes.size() + sizeof(MapRequest) - 192;
    }
    const Descriptor one = file_of(choices.below(5), choices.number());
    const Descriptor two = file_of(choices.below(3), 0);
    const unsigned files = choices.below(3);
    const int sent =
        files == 0   ? send_message(socket.get(), message.data(), length)
        : files == 1 ? send_message(socket.get(), message.data(), length, {one.get()})
                     : send_message(socket.get(), message.data(), length, {one.get(), two.get()});
    if (sent != 0) return;
    MapReply reply;
    if (length == sizeof(MapRequest) && i == 0) {
      Received got = receive_message(socket.get(), &reply, sizeof(reply));
      got.close_all();
      if (got.error != 0) return;
    }
  }
}

void read_records(fuzz::Choices& choices) {
  const std::uint64_t blocks = choices.number() % (kImageBytesMax / kBlockBytes);
  const bool is_order = choices.flag();
  const std::string text = (is_order ? "stdchk.order.1\n" : "") + fuzz::text_of(choices.rest());
  if (const auto record = SourceRecord::decode(text)) STDCHK_ASSERT(!record->encode().empty());
  const auto order = TouchOrder::decode(text, blocks);
  if (!order) return;
  for (const BlockRange& range : order->following(0, 64)) {
    STDCHK_ASSERT(range.first < blocks && range.count <= blocks - range.first);
  }
  STDCHK_ASSERT(TouchOrder::decode(order->encode(), blocks));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Descriptor image = [] {
    log::start("pager-fuzz", log::Level::kError);
    Descriptor file(::memfd_create("honest", MFD_CLOEXEC));
    STDCHK_ASSERT(::ftruncate(file.get(), 3 * kPage) == 0);
    return file;
  }();
  static const World world;
  fuzz::Choices choices(ByteSpan(reinterpret_cast<const std::byte*>(data), size));
  if (choices.flag()) {
    read_records(choices);
    return 0;
  }
  talk(world, choices);
  check_serves(world, image);
  return 0;
}
