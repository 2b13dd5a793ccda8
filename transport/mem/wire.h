#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "transport/transport.h"

/// State that the endpoints of one mem fabric share. FabricState::mutex guards all of it.
namespace stdchk::transport::mem {

struct Port;

inline constexpr std::size_t kMessagesQueuedMax = 256;    ///< in one direction of a wire
inline constexpr std::size_t kOperationsQueuedMax = 256;  ///< on one link
inline constexpr std::size_t kBacklogMax = 1024;          ///< connections that wait to be accepted

enum class WireState { kConnecting, kConnected, kRefused, kClosed };

/// A Wire is one connection. Side 0 opens it, side 1 accepts it.
struct Wire {
  struct Side {
    std::shared_ptr<Port> port;
    std::deque<std::vector<std::byte>> inbox;
    bool fenced = false;         ///< the other side's operations must not touch this side's memory
    bool grants_access = false;  ///< the other side may access memory that the port withholds
  };
  std::array<Side, 2> sides;
  WireState state = WireState::kConnecting;
};

/// A Port is the part of an endpoint that other endpoints reach. It outlives the endpoint while
/// wires refer to it.
struct Port {
  explicit Port(std::string port_name);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  /// Has the owner's poll() called.
  void signal();
  /// Forgets earlier signals. The owner calls it before it handles the signalled events.
  void clear_signal();

  const std::string name;
  int event_fd = -1;
  bool signalled = false;
  bool listening = false;
  bool withholds_access = false;
  std::deque<std::shared_ptr<Wire>> backlog;
  std::map<std::uint64_t, MutableByteSpan> regions;  ///< keyed by the region's key
};

struct FabricState {
  Mutex mutex;
  std::map<std::string, std::weak_ptr<Port>, std::less<>> ports STDCHK_GUARDED_BY(mutex);
  std::uint64_t keys_made STDCHK_GUARDED_BY(mutex) = 0;
};

}  // namespace stdchk::transport::mem
