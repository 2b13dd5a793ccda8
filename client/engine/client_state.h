#pragma once

#include <cstdint>
#include <memory>

#include "client/engine/benefactor_list.h"
#include "client/engine/metadata_cache.h"
#include "client/net/memory.h"
#include "client/net/shared.h"
#include "client/read/reader.h"
#include "client/write/window.h"
#include "core/base/clock.h"
#include "core/messages/messages.h"

namespace stdchk::client {

/// A ClientState holds the state that the parts of an engine share, apart from sessions and maps.
///
/// Owns: the buffers. Threads: any, with the engine's lock held.
struct ClientState {
  /// A Registration is the manager's answer to this client, and the state of the link to it.
  struct Registration {
    CompletionPtr ready = std::make_shared<Completion>();
    msg::PoolConfig pool;  ///< with this client's own settings
    bool manager_up = false;
    /// When the newest heartbeat, or registration, was sent that the manager has answered.
    Time heard_since{};
    ClientId client;
    Epoch epoch;
  };
  /// Buffers are the registered memory and its users.
  struct Buffers {
    std::unique_ptr<Memory> window_memory;
    std::unique_ptr<Window> window STDCHK_POINTER_GUARDED_BY(engine_lock);
    std::unique_ptr<Reader> reader;
  };
  struct Counts {
    msg::WriterTotals writers;
    std::uint64_t window_waits = 0;
    Duration window_waited{};  ///< time in which writers waited for a free slot
  };

  explicit ClientState(const Clock& clock) : metadata(clock) {}

  Registration registration;
  Counts counts;
  BenefactorList benefactors STDCHK_GUARDED_BY(engine_lock);
  MetadataCache metadata STDCHK_GUARDED_BY(engine_lock);
  Buffers buffers;
};

}  // namespace stdchk::client
