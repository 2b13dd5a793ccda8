#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "client/net/shared.h"
#include "client/read/drained_storage.h"
#include "client/read/packed_map.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A DrainedFile is an open file of the drain directory. It stays the same file whatever happens to
/// its name. It is the right file if the manager, asked after the open, still names the same place.
struct DrainedFile {
  DrainedFile(std::unique_ptr<const DrainedBytes> content, std::string opened_path,
              DrainState opened_state)
      : bytes(std::move(content)), path(std::move(opened_path)), state(opened_state) {}

  const std::unique_ptr<const DrainedBytes> bytes;
  const std::string path;
  const DrainState state;  ///< drain state of the version when the file was opened
  bool right = false;
};

/// A DrainedChunk is a chunk without copies in the pool: only the drained file has it. It is read
/// in parts, because a cache has no room for whole long chunks of many readers. Its checksum covers
/// the whole chunk. The first reader therefore reads all of it once, and computes a checksum for
/// each part.
///
/// Threads: any.
struct DrainedChunk {
  DrainedChunk(std::uint64_t file_offset, std::uint32_t chunk_length, std::uint32_t chunk_crc)
      : offset(file_offset), length(chunk_length), crc(chunk_crc) {}
  const std::uint64_t offset;
  const std::uint32_t length;
  const std::uint32_t crc;
  Mutex mutex;  ///< held while the chunk is read through
  std::vector<std::uint32_t> part_crcs STDCHK_GUARDED_BY(mutex);  ///< set once
};

/// A VersionMap is the chunk map of one version of a file. It is fetched page by page, and pins the
/// version: the chunks stay as long as this object lives.
///
/// Threads: any, with the engine's lock held. Letting go of the last pointer needs no lock.
struct VersionMap {
  FileId file;
  Version version = 0;     ///< 0 until the first page is there
  bool resolved = false;   ///< the first page has come
  bool complete = false;   ///< all pages have come
  bool in_flight = false;  ///< a page is on its way
  std::optional<Error> error;
  std::uint64_t pinned_in = 0;  ///< the MapStore's life in which the manager pinned it; 0: no pin
  Attributes attributes;
  std::string drained_path;
  std::shared_ptr<DrainedFile> drained;
  /// Keyed by their offset in the file.
  std::map<std::uint64_t, std::shared_ptr<DrainedChunk>> in_parts;
  PackedMap map;
  Time silent_until{};        ///< no reads of the drained file before this time: it does not answer
  std::uint32_t reloads = 0;  ///< fetches of the map in a row that did not help a reader

  /// True when the map has all slices that begin before `end`.
  bool reaches(std::uint64_t end) const {
    return complete || (map.slice_count() > 0 && map.end() >= end);
  }
};
using VersionMapPtr = std::shared_ptr<VersionMap>;

/// A MapStore fetches chunk maps and counts their pins.
///
/// Threads: any, with the engine's lock held.
class MapStore {
 public:
  using Callback = std::function<void(rpc::Answer)>;
  using Call = std::function<void(msg::Request, Callback, Callback)>;
  /// `call` sends a request to the manager. Its callbacks run on the reactor's thread without the
  /// lock; the second one is `late` of ManagerClient::call. `collect_soon` has collect() called; it
  /// is called on any thread, with or without the lock.
  MapStore(Shared& shared, std::function<ClientId()> client, Call call,
           std::function<void()> collect_soon);

  /// Returns a map of the file's newest version, or of `version`, and asks for its first page.
  VersionMapPtr open(FileId file, Version version = 0) STDCHK_REQUIRES(engine_lock);
  /// Requests the next page, unless a page is on its way.
  void load_next(const VersionMapPtr& map) STDCHK_REQUIRES(engine_lock);
  /// Fetches the map of the same version again, because extents have moved or a drained file was
  /// opened. Readers wait for the new map.
  void reload(const VersionMapPtr& map) STDCHK_REQUIRES(engine_lock);
  /// Tells the manager that this copy did not match its checksum.
  void report_wrong(const VersionMap& map, const Extent& copy) STDCHK_REQUIRES(engine_lock);
  /// True when several hosts read the file, as the manager has said.
  bool is_shared(FileId file) const STDCHK_REQUIRES(engine_lock) {
    return shared_files_.contains(file);
  }
  /// Notes whether several hosts read the file. Ignores files without a map here.
  void set_shared(FileId file, bool is_shared) STDCHK_REQUIRES(engine_lock);
  /// Gives back the pins of maps without a holder.
  void collect() STDCHK_REQUIRES(engine_lock);
  /// Forgets all pins, because the manager has forgotten them.
  void forget_pins() STDCHK_REQUIRES(engine_lock);

 private:
  using Key = std::pair<FileId, Version>;
  /// Pins of maps that are gone. They have a separate lock, because a map may be destroyed on any
  /// thread, with or without the engine's lock.
  struct Released {
    struct Pin {
      Key key;
      std::uint64_t life = 0;
    };
    Mutex mutex;
    std::vector<Pin> pins STDCHK_GUARDED_BY(mutex);
    std::function<void()> collect_soon;
  };
  void on_page(const VersionMapPtr& map, std::uint64_t first,
               const std::shared_ptr<DrainedFile>& drained, rpc::Answer answer)
      STDCHK_REQUIRES(engine_lock);
  void on_late_page(FileId file, const rpc::Answer& answer) STDCHK_EXCLUDES(engine_lock);
  void unpin_unused(FileId file) STDCHK_REQUIRES(engine_lock);

  Shared& shared_;
  std::function<ClientId()> client_;
  Call call_;
  std::shared_ptr<Released> released_ = std::make_shared<Released>();
  /// The number of maps that hold the version.
  std::map<Key, std::uint32_t> pins_ STDCHK_GUARDED_BY(engine_lock);
  /// Pages on their way; they delay unpins.
  std::map<FileId, std::uint32_t> loading_ STDCHK_GUARDED_BY(engine_lock);
  std::set<FileId> shared_files_ STDCHK_GUARDED_BY(engine_lock);  ///< of files with pins
  /// Grows with each manager that has forgotten the pins.
  std::uint64_t life_ STDCHK_GUARDED_BY(engine_lock) = 1;
};

}  // namespace stdchk::client
