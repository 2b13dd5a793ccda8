#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/reactor.h"
#include "fork/process/host_channel.h"
#include "fork/process/host_network.h"
#include "fork/process/page_server.h"
#include "fork/process/parent_image.h"
#include "fork/process/server.h"

namespace stdchk::fork {

/// A TicketHost is the part of a ticket on a host that is not the parent's: `stdchk-forkd
/// --serve-ticket`. It restores the parent's small image once, in a sandbox, and lets that process
/// make the clones, each in a sandbox inside.
///
/// Owns: the sandbox and the page server. Threads: the reactor's. It stops the reactor when the
/// channel ends.
class TicketHost {
 public:
  struct Parts {
    Server::Parts server;
    std::string criu;
    std::string folder;  ///< of the daemon's socket: clones see it, and CRIU reads the image there
  };
  TicketHost(Reactor& reactor, Watches& watches, Server& server, Parts parts);
  ~TicketHost();
  TicketHost(const TicketHost&) = delete;
  TicketHost& operator=(const TicketHost&) = delete;

  /// Reads frames from `in` and writes to `out`.
  void serve(Descriptor in, Descriptor out);

 private:
  void on_frame(HostWord word, std::string_view frame);
  void prepare(const HostTicket& ticket, HostNetwork network);
  std::shared_ptr<FamilyNetwork> make_network() const;
  void on_outer_ready();
  void take_file(std::string_view frame);
  void restore(std::string_view frame);
  void restored(int status);
  void on_change();
  void on_channel_end();
  void open_image(std::string_view frame);
  void image_opened(const Outcome<void>& opened);
  void lost(const std::string& why);

  Reactor& reactor_;
  Watches& watches_;
  Server& server_;
  const Parts parts_;
  std::unique_ptr<HostChannel> channel_;
  HostTicket ticket_;
  HostNetwork network_;
  std::unique_ptr<Sandbox> outer_;
  TicketRun* run_ = nullptr;
  std::unique_ptr<PageServer> pages_;
  std::unique_ptr<ImageReader> image_;
  std::string image_path_;
  bool is_image_open_ = false;
  bool is_alone_ = false;  ///< the channel has ended, and the clones go on
  std::vector<CloneState> reported_;
  std::optional<ProcessHandle> restore_;  ///< nsenter(1), which becomes CRIU
};

}  // namespace stdchk::fork
