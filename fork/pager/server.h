#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "fork/pager/cast_source.h"
#include "fork/pager/clone.h"
#include "fork/pager/holder.h"
#include "fork/pager/image.h"
#include "fork/pager/messages.h"
#include "fork/pager/pool_source.h"
#include "fork/pager/prefetcher.h"
#include "fork/pager/registry.h"

namespace stdchk::pager {

struct ServerOptions {
  std::uint32_t workers = 8;
  std::uint64_t memory_bytes = 0;
  std::uint32_t blocks_least = 4;   ///< fetched for a fault that does not continue a run
  std::uint32_t blocks_most = 256;  ///< fetched at once in a run
  CastPlace cast;
};

/// A Server lets the processes of one user on one host map images, and serves their faults.
///
/// Owns: the images, the clones, and all threads of the page server.
/// Threads: construct, adopt(), run() and destroy on one thread; the others: any.
/// Errors: a clone whose page cannot be fetched gets SIGBUS; others do not notice. A newcomer that
///   breaks the protocol is refused.
/// Limits: kClonesMax mappings, kImagesMax images, memory_bytes of fetched bytes, with up to a
///   piece more for each thread.
class Server {
 public:
  static constexpr std::size_t kClonesMax = 4096;
  static constexpr std::size_t kImagesMax = 256;

  /// `listener` accepts the clones. `pool` and `holder` must outlive the server.
  Server(const ServerOptions& options, int listener, PoolConnection& pool, HolderLink& holder);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Takes over the images and clones that an earlier server has left.
  void adopt(std::vector<Kept> kept);
  /// Serves until `signals` is readable. Clones that are left get SIGBUS at absent pages.
  void run(int signals);

  const ImageCounts& counts() const { return counts_; }
  const Registry& registry() const { return registry_; }
  std::uint64_t dropped_ahead() const { return prefetcher_->dropped(); }

 private:
  using ClonePtr = Registry::ClonePtr;
  using ImagePtr = Registry::ImagePtr;

  Image::Host image_host();
  void work();
  /// Lets a worker read the clone's next event.
  void watch_again(const Clone& clone);
  void serve_fault(Clone& clone, std::uint64_t address, Piece& piece);
  void serve_lost_fault(Clone& clone, std::uint64_t address);
  /// Follows mremap(2) and fork(2) of the clone.
  void follow(Clone& clone, const uffd_msg& event);
  void deny(const Image& image, const Waiter& waiter, std::uint64_t block, const Error& error);
  void make_room();
  std::uint64_t evict(bool mapped);

  void welcome(int socket);
  Status introduce(Descriptor socket, std::int32_t pid);
  Result<ImagePtr> hear_request(int socket, MapRequest& request, std::uint64_t& length);
  Status take_mapping(Descriptor socket, Descriptor faults, const CloneRecord& record,
                      const ImagePtr& image);
  Result<ImagePtr> image_for(const MapRequest& request, Descriptor file);
  Result<ImagePtr> add_image(std::shared_ptr<Source> source, int file);
  Status add_clone(const ClonePtr& clone, bool keeps);
  void answer(const ClonePtr& clone);
  void remove_clone(std::uint64_t id);
  void adopt_image(Kept& kept);
  void adopt_clone(Kept& kept);
  void drop_unused_images();
  void deny_all();

  const ServerOptions options_;
  const int listener_;
  PoolConnection& pool_;
  HolderLink& holder_;
  ImageCounts counts_;
  Registry registry_;
  const Descriptor faults_;   ///< epoll of all userfaultfds; data: the clone's id, 0: the end
  const Descriptor sockets_;  ///< epoll of all clones' sockets
  const Descriptor ending_;   ///< eventfd that ends the workers
  Mutex evicting_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::unique_ptr<ThreadExecutor> door_;
  std::vector<std::thread> workers_;
};

}  // namespace stdchk::pager
