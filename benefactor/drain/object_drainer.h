#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benefactor/drain/drainer.h"
#include "benefactor/drain/object_assembly.h"
#include "benefactor/memory/stop.h"
#include "core/base/mutex.h"
#include "core/base/rate_limiter.h"
#include "core/objects/object_store.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// An ObjectDrainer copies chunks from the arena to objects. The object PREFIX/PATH has exactly the
/// bytes of the file PATH. Its metadata has the file's attributes and checksums.
///
/// A chunk is shorter than the least part of an upload, and the chunks of a part lie in several
/// benefactors. So each request for pieces becomes one staged object below
/// `PREFIX/.stdchk-drain/FILE.NUMBER/`. finish() assembles the file's object (ObjectAssembly), then removes the staged objects. The object appears whole (rule M6).
///
/// | change of names | becomes                                                                     |
/// |-----------------|-----------------------------------------------------------------------------|
/// | rename          | a copy within the store, then a removal; each object below a folder in turn  |
/// | link            | a copy: the names are no longer one file                                    |
/// | set aside       | a copy to `PREFIX/.stdchk-drain/FILE.NUMBER`                                |
/// | attributes      | a copy of the object onto itself                                            |
/// | folder          | an empty object whose key ends with a slash                                 |
/// | symbolic link   | an object with the target                                                   |
///
/// Owns: assemblies that wait for the repeat of their finish(), at most kAssembliesMax; the names of
/// the last finished attempts; the open store. Threads: any; two calls for one path at once are the caller's mistake.
/// Errors: kDeadline of finish(): the manager repeats the request, and the work goes on.
/// Limits: a piece request has a buffer of its bytes, and one of its largest chunk; a finish see ObjectAssembly.
class ObjectDrainer final : public Drainer {
 public:
  static constexpr std::size_t kAssembliesMax = 8;
  static constexpr std::size_t kFinishedMax = 256;

  using Open = std::function<Outcome<std::unique_ptr<ObjectStore>>()>;
  struct Config {
    std::string prefix;       ///< of all keys, without a slash at its end; empty: none
    std::uint64_t rate = 0;   ///< bytes per second; 0: unlimited
    std::size_t threads = 4;  ///< requests at once of one call; 1: on the caller's thread
    /// Objects up to this size are copied by one request, which must end before its deadline. Copies
    /// of larger objects go on with the next request.
    std::uint64_t copied_at_once = std::uint64_t{256} << 20;
  };
  /// The first request calls `open`. After a failure, the next request calls `open` again. `arena`, `clock` and
  /// `stop` must outlive this.
  ObjectDrainer(ByteSpan arena, Open open, Config config, const Clock& clock, Stop& stop);

  Outcome<msg::DrainPieces::Reply> write_pieces(const msg::DrainPieces& request,
                                                Time deadline) override;
  Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request, Time deadline) override;
  Outcome<msg::MirrorChange::Reply> mirror(const msg::MirrorChange& request,
                                           Time deadline) override;
  Outcome<msg::FindDrained::Reply> find(const msg::FindDrained& request, Time deadline) override;

 private:
  Outcome<ObjectStore*> store();
  std::string key_of(const std::string& path) const;
  /// Begin of the keys of the staged objects of an attempt.
  std::string staging_of(FileId file, std::uint64_t number) const;
  ObjectAssembly::Means means(ObjectStore& store);
  Outcome<void> give_up_check(Time deadline) const;
  Outcome<ByteSpan> load_piece(ObjectStore& store, const msg::DrainPieces& request,
                               std::uint32_t index, MutableByteSpan buffer, Time deadline);
  Outcome<void> stage(ObjectStore& store, const msg::DrainPieces& request,
                      msg::DrainPieces::Reply& reply, Time deadline);
  static Outcome<bool> is_made(ObjectStore& store, const ObjectAssembly::Goal& goal,
                               const std::string& attempt, Time deadline);
  std::string finished_attempt(const std::string& staging);
  void note_finished(const std::string& staging, const std::string& attempt);
  Outcome<msg::DrainFinish::Reply> name_kept(ObjectStore& store, const msg::DrainFinish& request,
                                             Time deadline);
  Outcome<void> assemble(ObjectStore& store, ObjectAssembly::Goal goal, Time deadline);
  std::unique_ptr<ObjectAssembly> take_assembly(const ObjectAssembly::Goal& goal);
  void keep_assembly(std::unique_ptr<ObjectAssembly> assembly);

  const ByteSpan arena_;
  const Open open_;
  const Config config_;
  RateLimiter limiter_;
  const Clock& clock_;
  Stop& stop_;
  Mutex mutex_;
  std::unique_ptr<ObjectStore> store_ STDCHK_GUARDED_BY(mutex_);
  /// The last attempts that this process has finished: begin of the staged keys, and attempt_name().
  using Finished = std::pair<std::string, std::string>;
  std::deque<Finished> finished_ STDCHK_GUARDED_BY(mutex_);
  /// By the begin of the keys of their staged objects.
  std::map<std::string, std::unique_ptr<ObjectAssembly>> assemblies_ STDCHK_GUARDED_BY(mutex_);
};

/// Makes the drainer into the S3 store that `place` names (ObjectPlace). Does not block: a place
/// that is not valid, and absent credentials, are errors of each request.
std::unique_ptr<ObjectDrainer> make_object_drainer(ByteSpan arena, const std::string& place,
                                                   std::uint64_t rate, const Clock& clock,
                                                   Stop& stop);

}  // namespace stdchk::benefactor
