#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "core/runtime/reactor.h"
#include "fork/process/clone_table.h"
#include "fork/process/host_channel.h"
#include "fork/process/host_network.h"
#include "fork/process/parent_image.h"
#include "fork/process/population.h"
#include "fork/process/process_handle.h"
#include "fork/process/watches.h"
#include "fork/ticket/allocator.h"
#include "fork/ticket/image_parts.h"

namespace stdchk::fork {

/// How this daemon reaches the other hosts of a ticket.
struct RemoteParts {
  std::string remote_shell;  ///< words; "HOST COMMAND" is added
  std::string program;       ///< stdchk-forkd on the other hosts
  std::string criu;          ///< CRIU's program on this host
  ImageParts image;          ///< where the parent's memory goes after the clones run
};

/// A RemoteClones runs a ticket's clones on other hosts. It starts a daemon on each by the remote
/// shell, and sends a small image of the parent, made by CRIU. It serves pages of the frozen copy.
///
/// Owns: the remote shells; when they end, everything on the other hosts ends. Threads: the
/// reactor's.
class RemoteClones {
 public:
  struct Calls {
    /// Called once. Empty: all hosts are ready. Otherwise the reason.
    std::function<void(const std::string&)> on_prepared;
    std::function<void(std::uint32_t id)> on_running;
    std::function<void(std::uint32_t id, End, std::int32_t status, const std::string& value)>
        on_ended;
    /// The parent's image is committed, and all hosts have opened it: the frozen copy is not
    /// needed.
    std::function<void()> on_image;
  };
  RemoteClones(Reactor& reactor, Watches& watches, RemoteParts parts, std::string folder,
               Calls calls);
  ~RemoteClones();
  RemoteClones(const RemoteClones&) = delete;
  RemoteClones& operator=(const RemoteClones&) = delete;

  /// `ticket`: count and first_id are set for each host from `placements`. Each placement has its
  /// network.
  void prepare(HostTicket ticket, const std::vector<Placement>& placements,
               const std::vector<HostNetwork>& networks);
  bool is_prepared() const { return missing_ == 0; }
  /// Dumps `copy`, which stands still with the empty `ranges`, and sends the image. `frozen` has
  /// the pages. Ranges without pages there are not fetched.
  void distribute(const std::array<std::uint64_t, 2>& token, Process copy, Process frozen,
                  std::string_view ranges);
  void kill(std::uint32_t id);
  /// Writes the parent's memory into the pool, once. All clones run.
  void keep_image();
  bool has_image() const { return has_image_; }

 private:
  struct Host {
    std::string name;
    std::uint32_t first_id = 0;
    std::uint32_t count = 0;
    pid_t shell = -1;
    std::unique_ptr<HostChannel> channel;
    bool is_prepared = false;
    bool is_lost = false;
    bool has_image = false;
  };
  Outcome<void> start(Host& host);
  void on_frame(Host& host, HostWord word, std::string_view frame);
  void on_lost(Host& host, const std::string& why);
  void give_pages(Host& host, const PageRange& range);
  void dumped(int status);
  void send_image(const Outcome<void>& written);
  void image_opened(Host& host, std::string_view problem);
  void fail_all(const std::string& why);

  Reactor& reactor_;
  Watches& watches_;
  const RemoteParts parts_;
  const std::string folder_;
  const Calls calls_;
  std::vector<std::unique_ptr<Host>> hosts_;
  HostTicket ticket_;
  std::size_t missing_ = 0;
  std::optional<ProcessHandle> dump_;
  Process copy_;
  Process frozen_;
  Population population_;
  std::unique_ptr<ImageWriter> writer_;
  std::string image_path_;
  bool has_image_ = false;
};

}  // namespace stdchk::fork
