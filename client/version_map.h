#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "client/packed_map.h"
#include "client/shared.h"
#include "core/clock.h"
#include "core/descriptor.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A DrainedFile is a file of the drain directory, open. It stays the same file whatever becomes of
/// its name; that it is the right one is known when the manager, asked after it was opened, still
/// says the same place.
struct DrainedFile {
  DrainedFile(Descriptor descriptor, std::string opened_path, DrainState opened_state)
      : file(std::move(descriptor)), path(std::move(opened_path)), state(opened_state) {}

  const Descriptor file;
  const std::string path;
  const DrainState state;  ///< of the version, when its file was looked for
  bool right = false;
};

/// A DrainedChunk is a chunk that is nowhere but in the drained file, and is read from there in
/// parts: a cache has no room for whole long chunks of many readers. Its checksum is of all of it,
/// so it is read through once, by the first who wants a part; that gives one of each part.
///
/// Threads: any.
struct DrainedChunk {
  DrainedChunk(std::uint64_t file_offset, std::uint32_t chunk_length, std::uint32_t chunk_crc)
      : offset(file_offset), length(chunk_length), crc(chunk_crc) {}
  const std::uint64_t offset;
  const std::uint32_t length;
  const std::uint32_t crc;
  std::mutex mutex;                      ///< held while it is read through
  std::vector<std::uint32_t> part_crcs;  ///< guarded by it until it is set, which is once
};

/// A VersionMap is the chunk map of one version of a file, fetched page by page, and pinned: its
/// chunks stay while this object lives.
///
/// Threads: any, with the engine's lock held; the last owner may let go of it without.
struct VersionMap {
  FileId file;
  Version version = 0;     ///< 0 until the first page is there
  bool resolved = false;   ///< the first page is there
  bool complete = false;   ///< all pages are there
  bool in_flight = false;  ///< a page was asked for
  std::optional<Error> error;
  std::uint64_t pinned_in = 0;  ///< by the manager of which life of the pins; 0: none
  Attributes attributes;
  std::string drained_path;
  std::shared_ptr<DrainedFile> drained;
  std::map<std::uint64_t, std::shared_ptr<DrainedChunk>> in_parts;  ///< by their place in the file
  PackedMap map;
  Time silent_until{};        ///< its drained file does not answer, and is not asked before that
  std::uint32_t reloads = 0;  ///< how often in a row the map was fetched anew and that did not help

  /// True when all slices that begin before `end` are there.
  bool reaches(std::uint64_t end) const {
    return complete || (map.slice_count() > 0 && map.end() >= end);
  }
};
using VersionMapPtr = std::shared_ptr<VersionMap>;

/// A MapStore fetches chunk maps and keeps count of the pins.
///
/// Threads: any, with the engine's lock held.
class MapStore {
 public:
  using Callback = std::function<void(rpc::Answer)>;
  using Call = std::function<void(msg::Request, Callback, Callback)>;
  /// `call` sends a request to the manager; its callbacks run on the reactor's thread, without the
  /// lock, the second one as ManagerClient::call has it. `collect_soon` has collect() called; it
  /// comes on any thread, with or without the lock.
  MapStore(Shared& shared, std::function<ClientId()> client, Call call,
           std::function<void()> collect_soon);

  /// A map of the file's newest version (or of `version`); its first page is asked for at once.
  VersionMapPtr open(FileId file, Version version = 0);
  /// Asks for the next page, unless it is on its way.
  void load_next(const VersionMapPtr& map);
  /// Fetches the same version's map again from the start: extents have moved, or a drained file was
  /// opened. Who reads waits until it is there.
  void reload(const VersionMapPtr& map);
  /// The manager is told that this copy did not match.
  void report_wrong(const VersionMap& map, const Extent& copy);
  /// Gives back the pins of maps that nobody holds any more.
  void collect();
  /// The manager has forgotten all pins.
  void forget_pins();

 private:
  using Key = std::pair<FileId, Version>;
  /// The pins of maps that are gone. Apart, with a lock of its own, because sessions and callbacks
  /// end wherever their last owner is.
  struct Released {
    struct Pin {
      Key key;
      std::uint64_t life = 0;
    };
    std::mutex mutex;
    std::vector<Pin> pins;
    std::function<void()> collect_soon;
  };
  void on_page(const VersionMapPtr& map, std::uint64_t first,
               const std::shared_ptr<DrainedFile>& drained, rpc::Answer answer);
  void on_late_page(FileId file, const rpc::Answer& answer);
  void unpin_unused(FileId file);

  Shared& shared_;
  std::function<ClientId()> client_;
  Call call_;
  std::shared_ptr<Released> released_ = std::make_shared<Released>();
  std::map<Key, std::uint32_t> pins_;        ///< maps that hold the version
  std::map<FileId, std::uint32_t> loading_;  ///< pages on their way: an unpin has to wait for them
  std::uint64_t life_ = 1;                   ///< of the pins
};

}  // namespace stdchk::client
