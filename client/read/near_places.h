#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "client/net/shared.h"
#include "client/read/version_map.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A NearPlaces asks the manager for copies of chunks on this host, of versions that several hosts
/// read at once (docs/decisions/0083). The manager answers when such a copy is complete.
///
/// Owns: the requests without an answer. Threads: any, as the attributes say.
/// Errors: a request that fails, or a manager that does not answer, gives no place. The caller then
///   reads the copies of the chunk map.
/// Not: a promise about the bytes. The copy may go at any moment; the caller compares the checksum.
class NearPlaces {
 public:
  /// Called once, with the lock held.
  using Done = std::function<void(std::optional<Extent>)>;
  struct Host {
    Shared& shared;
    MapStore& maps;
    std::function<ClientId()> client;
    /// To be called with the lock held. The callback runs on the reactor's thread without the lock.
    std::function<void(msg::Request, std::function<void(rpc::Answer)>)> call;
  };
  explicit NearPlaces(Host host) : host_(std::move(host)) {}

  /// True when a request for this map makes sense now.
  bool may_ask(const VersionMap& map) const STDCHK_REQUIRES(engine_lock) {
    return manager_answers_ && host_.maps.is_shared(map.file);
  }
  /// Asks for the chunk of the slice at `offset` of the file.
  void find(const VersionMap& map, std::uint64_t offset, Done done) STDCHK_REQUIRES(engine_lock);
  /// Says whether the manager answers. Requests that wait end without a place when it does not.
  void set_manager_answers(bool answers) STDCHK_REQUIRES(engine_lock);

 private:
  void answered(std::uint64_t number, FileId file, const rpc::Answer& answer)
      STDCHK_EXCLUDES(engine_lock);

  Host host_;
  bool manager_answers_ STDCHK_GUARDED_BY(engine_lock) = false;
  std::uint64_t numbers_made_ STDCHK_GUARDED_BY(engine_lock) = 0;
  std::map<std::uint64_t, Done> waiting_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
