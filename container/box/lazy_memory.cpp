#include "container/box/lazy_memory.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <utility>

#include "container/box/fault_copies.h"
#include "container/layers/archive.h"
#include "core/base/log.h"

namespace stdchk::container {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(2);
constexpr int kKillMs = 10'000;

}  // namespace

Outcome<std::unique_ptr<LazyMemory>> LazyMemory::start(const Criu& criu, const std::string& folder,
                                                       const std::string& archive,
                                                       Duration deadline) {
  if (auto done = unpack_without_memory(archive, folder, deadline); !done) {
    return problem(std::move(done.error()));
  }
  std::unique_ptr<LazyMemory> made(new LazyMemory(criu, folder));
  if (auto done = made->link_memory(archive); !done) return problem(std::move(done.error()));
  made->server_ = std::thread([memory = made.get(), deadline] { memory->serve(deadline); });
  if (auto done = made->wait_for_socket(deadline); !done) return problem(std::move(done.error()));
  return made;
}

LazyMemory::~LazyMemory() {
  cancelled_ = true;
  if (server_.joinable()) server_.join();
  if (init_ >= 0) ::close(init_);
}

/// In place of the files with memory, the folder gets devices with their bytes. CRIU opens them
/// where the container's root is the root directory, so links to /dev would not lead there.
Outcome<void> LazyMemory::link_memory(const std::string& archive) {
  const auto files = memory_in(archive);
  if (!files) return problem(files.error());
  for (const ArchivedFile& file : *files) {
    auto device = LoopDevice::make(archive, file.offset, file.bytes);
    if (!device) return problem(std::move(device.error()));
    if (auto made = device->make_node(folder_ + "/" + file.name); !made) return made;
    devices_.push_back(std::move(*device));
  }
  return {};
}

void LazyMemory::serve(Duration deadline) {
  const auto began = std::chrono::steady_clock::now();
  std::optional<FaultCopies> copies;  // kept until the container has ended
  const auto done = criu_.serve_memory(folder_, deadline, cancelled_, [&copies](pid_t program) {
    if (!copies) copies.emplace(program);
    copies->update();
  });
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  if (done) log::info("memory was loaded on demand within {} ms", took.count());
  if (!done && !cancelled_) {
    has_failed_ = true;
    if (init_ >= 0) kill_container();
    log::error("{}", done.error().text);
  }
  devices_.clear();
  is_loading_ = false;
}

/// Ends the container while the copies of its userfaultfds are open: its threads read no zeros.
void LazyMemory::kill_container() const {
  ::syscall(SYS_pidfd_send_signal, init_.load(), SIGKILL, nullptr, 0);
  // Process 1 ends after all others of its namespace.
  pollfd ended{init_.load(), POLLIN, 0};
  ::poll(&ended, 1, kKillMs);
}

Outcome<void> LazyMemory::wait_for_socket(Duration deadline) const {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (::access(Criu::memory_socket(folder_).c_str(), F_OK) != 0) {
    if (!is_loading_) return problem("CRIU's program for memory on demand has ended");
    if (std::chrono::steady_clock::now() >= end) return problem("no memory on demand in time");
    std::this_thread::sleep_for(kTurn);
  }
  return {};
}

Outcome<void> LazyMemory::guard(pid_t init) {
  init_ = static_cast<int>(::syscall(SYS_pidfd_open, init, 0));
  if (init_ < 0) return problem(errno_text("process 1 of the container"));
  if (has_failed_) return problem("CRIU's program for memory on demand has failed");
  return {};
}

}  // namespace stdchk::container
