#include "fork/pager/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "fork/pager/faults.h"
#include "fork/pager/file_source.h"
#include "fork/pager/image_record.h"
#include "fork/pager/passing.h"

namespace stdchk::pager {
namespace {

constexpr std::size_t kPrefetchers = 3;
constexpr std::size_t kDoorThreads = 4;
constexpr std::uint64_t kEndOfWorkers = 0;
/// Time between two checks for ended children of fork(2) and for unused images.
constexpr int kCheckIntervalMs = 2000;
/// Eviction frees a sixteenth more than needed, so that not every fetch evicts.
constexpr std::uint64_t kSlackShare = 16;

bool arm(int poll, int operation, int fd, std::uint64_t id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return ::epoll_ctl(poll, operation, fd, &event) == 0;
}

constexpr std::uint32_t kOnce = EPOLLIN | EPOLLONESHOT;
constexpr std::uint32_t kSocketOnce = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;

}  // namespace

Server::Server(const ServerOptions& options, int listener, PoolConnection& pool, HolderLink& holder)
    : options_(options),
      listener_(listener),
      pool_(pool),
      holder_(holder),
      faults_(::epoll_create1(EPOLL_CLOEXEC)),
      sockets_(::epoll_create1(EPOLL_CLOEXEC)),
      ending_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  STDCHK_ASSERT(faults_ && sockets_ && ending_);
  STDCHK_ASSERT(arm(faults_.get(), EPOLL_CTL_ADD, ending_.get(), kEndOfWorkers, EPOLLIN));
  prefetcher_ = std::make_unique<Prefetcher>(kPrefetchers, [this] { make_room(); });
  door_ = std::make_unique<ThreadExecutor>("pager-door", kDoorThreads);
  for (std::uint32_t i = 0; i < options_.workers; ++i) {
    workers_.push_back(start_without_signals([this] { work(); }));
  }
}

Server::~Server() {
  door_.reset();
  [[maybe_unused]] const int written = ::eventfd_write(ending_.get(), 1);
  for (std::thread& each : workers_) each.join();
  prefetcher_.reset();
}

Image::Host Server::image_host() {
  return {
      [this](const Waiter& waiter) {
        if (const ClonePtr clone = registry_.clone(waiter.clone)) clone->wake(waiter.address);
      },
      [this](const Image& image, const Waiter& waiter, std::uint64_t block, const Error& error) {
        deny(image, waiter, block, error);
      },
      [this](Image& image, const BlockRange& range) {
        prefetcher_->add(image.weak_from_this(), range);
      },
      counts_,
  };
}

// --- Faults -------------------------------------------------------------------------------------

void Server::work() {
  Piece piece = make_piece();
  for (;;) {
    epoll_event ready{};
    if (::epoll_wait(faults_.get(), &ready, 1, -1) != 1) continue;
    if (ready.data.u64 == kEndOfWorkers) return;
    const ClonePtr clone = registry_.clone(ready.data.u64);
    if (clone == nullptr) continue;
    const auto event = clone->next_event();
    if (event && event->event == UFFD_EVENT_PAGEFAULT) {
      serve_fault(*clone, event->arg.pagefault.address & ~(kPageBytes - 1), piece);
      continue;
    }
    if (event) follow(*clone, *event);
    watch_again(*clone);
  }
}

void Server::watch_again(const Clone& clone) {
  arm(faults_.get(), EPOLL_CTL_MOD, clone.faults(), clone.id(), kOnce);
}

/// Another worker reads the next event as soon as the descriptor is watched again. That event can
/// move the mapping. So the page's place in the image is looked up before.
void Server::serve_fault(Clone& clone, std::uint64_t address, Piece& piece) {
  const auto offset = clone.offset_of(address);
  const std::uint64_t block = offset.value_or(0) / kBlockBytes;
  if (!offset || block >= (clone.image()->size_bytes() + kBlockBytes - 1) / kBlockBytes) {
    serve_lost_fault(clone, address);
    return;
  }
  watch_again(clone);
  const std::uint32_t ahead = clone.blocks_ahead(block);
  clone.image()->fault({clone.id(), address}, *offset, ahead, piece);
  make_room();
}

/// Serves a fault at an address that shows nothing of the image. The kernel gives faults before
/// events, whatever their order: the mapping may just have been moved there. The faults before that
/// event are read, and wait for it.
void Server::serve_lost_fault(Clone& clone, std::uint64_t address) {
  std::vector<std::uint64_t> faults{address};
  bool has_changed = false;
  while (!has_changed) {
    const auto event = clone.next_event();
    if (!event) break;
    if (event->event == UFFD_EVENT_PAGEFAULT) {
      faults.push_back(event->arg.pagefault.address & ~(kPageBytes - 1));
      continue;
    }
    follow(clone, *event);
    has_changed = true;
  }
  for (const std::uint64_t each : faults) {
    if (has_changed || clone.offset_of(each)) {
      clone.wake(each);  // the thread faults again, and its page has a place
    } else if (clone.deny(each) == Clone::Denial::kDenied) {
      log::error("Process {} waits for a page that belongs to no image; it gets SIGBUS.",
                 clone.pid());
    }
  }
  watch_again(clone);
}

void Server::follow(Clone& clone, const uffd_msg& event) {
  switch (event.event) {
    case UFFD_EVENT_REMAP:
      clone.moved(event.arg.remap.from, event.arg.remap.to, event.arg.remap.len);
      static_cast<void>(add_clone(registry_.clone(clone.id()), true));
      return;
    case UFFD_EVENT_FORK: {
      CloneRecord record = clone.record();
      record.id = registry_.new_id();
      const auto child = std::make_shared<Clone>(
          record, clone.image(), Descriptor(static_cast<int>(event.arg.fork.ufd)), Descriptor(),
          options_.blocks_least, options_.blocks_most);
      const Status added = add_clone(child, true);
      if (!added) {
        log::error("A child of process {} is not served: {}", clone.pid(), describe(added.error()));
        child->deny_range({0, clone.image()->size_bytes() / kBlockBytes + 1});
      }
      return;
    }
    default:
      return;
  }
}

void Server::deny(const Image& image, const Waiter& waiter, std::uint64_t block,
                  const Error& error) {
  const ClonePtr clone = registry_.clone(waiter.clone);
  if (clone == nullptr) return;
  const auto offset = clone->offset_of(waiter.address);
  if (!offset || *offset / kBlockBytes != block) {
    // The mapping was moved meanwhile: this address shows something else.
    clone->wake(waiter.address);
    return;
  }
  const Clone::Denial denial = clone->deny(waiter.address);
  if (denial == Clone::Denial::kWoken) return;
  log::warning("Image {}, page at {}: {} Process {} {}.", image.source().name(), *offset,
               describe(error), clone->pid(),
               denial == Clone::Denial::kDenied
                   ? "gets SIGBUS"
                   : "waits until it is killed: this kernel cannot tell it");
}

// --- Memory -------------------------------------------------------------------------------------

void Server::make_room() {
  if (counts_.bytes_present.load(std::memory_order_relaxed) <= options_.memory_bytes) return;
  if (!evicting_.try_lock()) return;
  const std::uint64_t target = options_.memory_bytes - options_.memory_bytes / kSlackShare;
  // Unmapped images lose their memory first. Then the oldest ranges of mapped images go.
  for (const bool mapped : {false, true}) {
    while (counts_.bytes_present > target) {
      if (evict(mapped) == 0) break;
    }
  }
  evicting_.unlock();
}

/// Evicts the oldest range of each mapped image, or of each unmapped image. Returns the number of
/// bytes.
std::uint64_t Server::evict(bool mapped) {
  std::uint64_t bytes = 0;
  for (const ImagePtr& image : registry_.images()) {
    if (registry_.is_mapped(*image) == mapped) bytes += image->evict_oldest();
  }
  return bytes;
}

// --- The door -----------------------------------------------------------------------------------

void Server::welcome(int socket) {
  door_->run([this, newcomer = std::make_shared<Descriptor>(socket)] {
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (::getsockopt(newcomer->get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
        (peer.uid != ::geteuid() && peer.uid != 0)) {
      log::warning("Process {} of user {} was refused: this page server serves user {} only.",
                   peer.pid, peer.uid, ::geteuid());
      return;
    }
    constexpr timeval kPatience{10, 0};
    ::setsockopt(newcomer->get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    ::setsockopt(newcomer->get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
    const Status done = introduce(std::move(*newcomer), peer.pid);
    // A client that sends nothing is a newer server. It checks whether this server runs.
    if (!done && done.error().os_errno != ENODATA) {
      log::info("Process {} has no mapping: {}", peer.pid, describe(done.error()));
    }
  });
}

/// Answers a request with the image's memory file, or with an error text. `length`
/// is the number of bytes of the image in the wanted range.
Result<Server::ImagePtr> Server::hear_request(int socket, MapRequest& request,
                                              std::uint64_t& length) {
  Received got = receive_message(socket, &request, sizeof(request));
  Descriptor file(got.take(0));
  got.close_all();
  if (got.error != 0) return fail(Code::kSystem, "pager.request", got.error);
  if (got.length != sizeof(request)) return fail(Code::kMalformed, "pager.request");
  auto image = image_for(request, std::move(file));
  const std::uint64_t size = image ? (*image)->size_bytes() : 0;
  if (image && (request.offset % kPageBytes != 0 || request.offset >= size)) {
    image = fail(Code::kInvalidArgument, "pager.request: the range is not within the image");
  }
  MapReply reply;
  if (!image) {
    reply.error = to_errno(image.error());
    put_text(reply.reason, describe(image.error()).c_str());
    static_cast<void>(send_message(socket, &reply, sizeof(reply)));
    return image;
  }
  length = size - request.offset;
  if (request.length != 0) length = std::min(length, request.length);
  reply.length = length;
  const int error = send_message(socket, &reply, sizeof(reply), {(*image)->readable()});
  if (error != 0) return fail(Code::kPeerLost, "pager.reply", error);
  return image;
}

Status Server::introduce(Descriptor socket, std::int32_t pid) {
  MapRequest request;
  std::uint64_t length = 0;
  STDCHK_ASSIGN(const ImagePtr image, hear_request(socket.get(), request, length));
  Registered registered;
  int faults_fd = -1;
  const int error = receive(socket.get(), registered, &faults_fd);
  Descriptor faults(faults_fd);
  if (error != 0) return fail(Code::kPeerLost, "pager.registered", error);
  const std::uint64_t pages = (length + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (registered.address % kPageBytes != 0 || registered.length != pages ||
      registered.address + pages < pages || !is_userfault(faults.get())) {
    Served refused;
    refused.error = EPROTO;
    static_cast<void>(send_message(socket.get(), &refused, sizeof(refused)));
    return fail(Code::kMalformed, "pager.registered");
  }
  CloneRecord record;
  record.id = registry_.new_id();
  record.image = image->id();
  record.pid = pid;
  record.offset = request.offset;
  record.length = registered.length;
  record.regions.count = 1;
  record.regions.all[0] = {registered.address, registered.length, request.offset};
  return take_mapping(std::move(socket), std::move(faults), record, image);
}

Status Server::take_mapping(Descriptor socket, Descriptor faults, const CloneRecord& record,
                            const ImagePtr& image) {
  const auto clone = std::make_shared<Clone>(record, image, std::move(faults), std::move(socket),
                                             options_.blocks_least, options_.blocks_most);
  const Status added = add_clone(clone, true);
  Served served;
  served.error = added ? 0 : to_errno(added.error());
  const int error = send_message(clone->socket(), &served, sizeof(served));
  if (added && error == 0 &&
      arm(sockets_.get(), EPOLL_CTL_ADD, clone->socket(), clone->id(), kSocketOnce)) {
    return {};
  }
  remove_clone(clone->id());
  return added ? fail(Code::kPeerLost, "pager.served", error) : added;
}

Result<Server::ImagePtr> Server::image_for(const MapRequest& request, Descriptor file) {
  if (request.protocol != kProtocol) {
    return fail(Code::kMalformed, "pager.request of another version");
  }
  if (std::find(std::begin(request.image), std::end(request.image), '\0') ==
      std::end(request.image)) {
    return fail(Code::kNameTooLong, "pager.request");
  }
  if (request.from_file != 0) {
    if (!file) return fail(Code::kInvalidArgument, "pager.request without its file");
    const int fd = file.get();
    STDCHK_ASSIGN(std::shared_ptr<Source> source,
                  FileSource::create(std::move(file), request.image));
    return add_image(std::move(source), fd);
  }
  if (CastSource::is_name(request.image)) {
    // The name is the image's key: no second meeting with the sender.
    if (ImagePtr present = registry_.image(std::string(request.image))) return present;
    STDCHK_ASSIGN(std::shared_ptr<Source> source, CastSource::open(options_.cast, request.image));
    return add_image(std::move(source), -1);
  }
  STDCHK_ASSIGN(std::shared_ptr<Source> source, PoolSource::open(pool_, request.image));
  return add_image(std::move(source), -1);
}

Result<Server::ImagePtr> Server::add_image(std::shared_ptr<Source> source, int file) {
  const std::string key = key_of(*source);
  if (ImagePtr present = registry_.image(key)) return present;
  if (registry_.image_count() >= kImagesMax) return fail(Code::kBusy, "pager.images");
  STDCHK_ASSIGN(ImagePtr made, Image::create(registry_.new_id(), source, image_host()));
  made->use_order(source->recorded_order());
  ImagePtr added = registry_.add_image(key, made);
  if (added != made) return added;
  const std::string record = record_of(*source).encode();
  const Status kept =
      file >= 0 ? holder_.store(KeptKind::kImage, made->id(), record, {made->memory(), file})
                : holder_.store(KeptKind::kImage, made->id(), record, {made->memory()});
  if (!kept)
    log::warning("Image {} ends with this server: {}", source->name(), describe(kept.error()));
  log::info("Image {} of {} bytes is served.", source->name(), source->size_bytes());
  return made;
}

/// Adds a clone, or keeps a changed record of it.
Status Server::add_clone(const ClonePtr& clone, bool keeps) {
  if (clone == nullptr) return {};
  const bool known = registry_.clone(clone->id()) != nullptr;
  if (!known && registry_.clone_count() >= kClonesMax) return fail(Code::kBusy, "pager.clones");
  if (keeps) {
    const CloneRecord record = clone->record();
    const std::string text(reinterpret_cast<const char*>(&record), sizeof(record));
    const Status kept =
        clone->socket() >= 0
            ? holder_.store(KeptKind::kClone, clone->id(), text, {clone->faults(), clone->socket()})
            : holder_.store(KeptKind::kClone, clone->id(), text, {clone->faults()});
    if (!kept) {
      log::warning("A mapping of process {} ends with this server: {}", clone->pid(),
                   describe(kept.error()));
    }
  }
  if (known) return {};
  ::fcntl(clone->faults(), F_SETFL, O_NONBLOCK);
  registry_.add_clone(clone);
  if (arm(faults_.get(), EPOLL_CTL_ADD, clone->faults(), clone->id(), kOnce)) return {};
  const Status failed = fail_errno("pager.clone");
  remove_clone(clone->id());
  return failed;
}

void Server::answer(const ClonePtr& clone) {
  FetchRequest request;
  Received got = receive_message(clone->socket(), &request, sizeof(request), MSG_DONTWAIT);
  got.close_all();
  if (got.error == EAGAIN) {
    arm(sockets_.get(), EPOLL_CTL_MOD, clone->socket(), clone->id(), kSocketOnce);
    return;
  }
  if (got.error != 0 || got.length != sizeof(request)) return remove_clone(clone->id());
  FetchReply reply;
  reply.offset = request.offset;
  const auto blocks = clone->blocks_of(request.offset, request.length);
  if (!blocks || blocks->count * kBlockBytes > kFetchBytesMax + 2 * kBlockBytes) {
    reply.error = EINVAL;
  } else {
    Piece piece = make_piece();
    const Status done = clone->image()->fetch(*blocks, piece);
    make_room();
    if (!done) {
      reply.error = EIO;
      log::warning("Image {}, {} bytes from {} on, asked for by process {}: {}",
                   clone->image()->source().name(), request.length, request.offset, clone->pid(),
                   describe(done.error()));
    }
  }
  if (send_message(clone->socket(), &reply, sizeof(reply)) != 0) {
    return remove_clone(clone->id());
  }
  arm(sockets_.get(), EPOLL_CTL_MOD, clone->socket(), clone->id(), kSocketOnce);
}

void Server::remove_clone(std::uint64_t id) {
  const ClonePtr clone = registry_.take_clone(id);
  if (clone == nullptr) return;
  ::epoll_ctl(faults_.get(), EPOLL_CTL_DEL, clone->faults(), nullptr);
  if (clone->socket() >= 0) {
    ::epoll_ctl(sockets_.get(), EPOLL_CTL_DEL, clone->socket(), nullptr);
  }
  holder_.drop(KeptKind::kClone, id);
  const ImagePtr& image = clone->image();
  image->forget(id);
  if (registry_.is_mapped(*image)) return;
  const std::string order = image->new_order();
  if (!order.empty()) image->source().record_order(order);
}

// --- A server that was started again ------------------------------------------------------------

void Server::adopt(std::vector<Kept> kept) {
  for (const KeptKind kind : {KeptKind::kImage, KeptKind::kClone}) {
    for (Kept& each : kept) {
      if (each.kind != kind) continue;
      registry_.used_id(each.id);
      if (kind == KeptKind::kImage) {
        adopt_image(each);
      } else {
        adopt_clone(each);
      }
    }
  }
  if (registry_.clone_count() > 0) {
    log::info("{} mappings of {} images of the server before are served again.",
              registry_.clone_count(), registry_.image_count());
  }
}

void Server::adopt_image(Kept& kept) {
  const auto record = SourceRecord::decode(kept.record);
  if (!record || kept.files.empty()) return;
  Descriptor memory = std::move(kept.files[0]);
  Descriptor file = kept.files.size() > 1 ? std::move(kept.files[1]) : Descriptor();
  auto source = source_of(*record, std::move(file), pool_, options_.cast);
  if (!source) {
    log::error("Image {} is not served again: {}", record->name, describe(source.error()));
    return;
  }
  const std::string key = key_of(**source);
  auto image = Image::adopt(kept.id, std::move(*source), std::move(memory), image_host());
  if (!image) {
    log::error("Image {} is not served again: {}", record->name, describe(image.error()));
    return;
  }
  registry_.add_image(key, *image);
}

void Server::adopt_clone(Kept& kept) {
  CloneRecord record;
  if (kept.record.size() != sizeof(record) || kept.files.empty()) return;
  std::memcpy(&record, kept.record.data(), sizeof(record));
  const ImagePtr image = registry_.image(record.image);
  Descriptor socket = kept.files.size() > 1 ? std::move(kept.files[1]) : Descriptor();
  if (image == nullptr) {
    log::error("A mapping of process {} is not served again.", record.pid);
    return;
  }
  const auto clone =
      std::make_shared<Clone>(record, image, std::move(kept.files[0]), std::move(socket),
                              options_.blocks_least, options_.blocks_most);
  if (!add_clone(clone, false)) return;
  if (clone->socket() >= 0) {
    arm(sockets_.get(), EPOLL_CTL_ADD, clone->socket(), clone->id(), kSocketOnce);
  }
  // The earlier server had read some faults. The kernel reports them again when their threads wake.
  clone->wake_all();
}

// --- The loop -----------------------------------------------------------------------------------

void Server::run(int signals) {
  bool held = true;
  auto checked_at = std::chrono::steady_clock::now();
  for (;;) {
    std::array<pollfd, 4> ready{{{signals, POLLIN, 0},
                                 {sockets_.get(), POLLIN, 0},
                                 {held ? listener_ : -1, POLLIN, 0},
                                 {held ? holder_.socket() : -1, POLLIN, 0}}};
    const int count = ::poll(ready.data(), ready.size(), kCheckIntervalMs);
    if (count < 0) continue;
    if (std::chrono::steady_clock::now() - checked_at >=
        std::chrono::milliseconds(kCheckIntervalMs)) {
      checked_at = std::chrono::steady_clock::now();
      drop_unused_images();
    }
    if (ready[0].revents != 0) break;
    if (ready[1].revents != 0) {
      epoll_event event{};
      if (::epoll_wait(sockets_.get(), &event, 1, 0) == 1) {
        if (const ClonePtr clone = registry_.clone(event.data.u64)) {
          door_->run([this, clone] { answer(clone); });
        }
      }
    }
    if (ready[2].revents != 0) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket >= 0) welcome(socket);
    }
    if (ready[3].revents != 0) {
      log::error(
          "The holder of this page server is gone. The server accepts no more clones, and ends "
          "with its last clone.");
      held = false;
      ::shutdown(listener_, SHUT_RDWR);
    }
    if (!held && registry_.clone_count() == 0) break;
  }
  deny_all();
}

void Server::drop_unused_images() {
  for (const ClonePtr& clone : registry_.clones()) {
    if (clone->socket() < 0 && !clone->is_alive()) remove_clone(clone->id());
  }
  for (const ImagePtr& image : registry_.take_unused()) holder_.drop(KeptKind::kImage, image->id());
}

void Server::deny_all() {
  const auto clones = registry_.clones();
  if (clones.empty()) return;
  log::warning("The page server ends; {} mappings get SIGBUS at pages that were not fetched.",
               clones.size());
  for (const ClonePtr& clone : clones) {
    clone->image()->visit_absent([&](const BlockRange& range) { clone->deny_range(range); });
  }
}

}  // namespace stdchk::pager
