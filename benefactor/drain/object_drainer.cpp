#include "benefactor/drain/object_drainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "benefactor/drain/drain_paths.h"
#include "benefactor/drain/object_mirror.h"
#include "benefactor/drain/piece_check.h"
#include "benefactor/drain/staged_pieces.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/naming.h"
#include "core/objects/credentials.h"
#include "core/objects/in_parallel.h"
#include "core/objects/object_place.h"
#include "core/objects/s3_store.h"

namespace stdchk::benefactor {
namespace {

tl::unexpected<Problem> invalid(std::string what) {
  return problem(Code::kInvalidArgument, "benefactor.objects", EINVAL, std::move(what));
}

/// Errors of the store become kDrainFailed, so that the manager tries again later.
tl::unexpected<Problem> store_problem(const Problem& of) {
  const Code code = of.error.code;
  const bool keeps = code == Code::kDeadline || code == Code::kCancelled ||
                     code == Code::kInvalidArgument || code == Code::kDrainFailed;
  if (keeps) return problem(of);
  const int number = of.error.os_errno == 0 ? EIO : of.error.os_errno;
  return problem(Code::kDrainFailed, "benefactor.objects", number, of.text + ".");
}

}  // namespace

ObjectDrainer::ObjectDrainer(ByteSpan arena, Open open, Config config, const Clock& clock,
                             Stop& stop)
    : arena_(arena),
      open_(std::move(open)),
      config_(std::move(config)),
      limiter_(config_.rate),
      clock_(clock),
      stop_(stop) {}

Outcome<ObjectStore*> ObjectDrainer::store() {
  const MutexLock lock(mutex_);
  if (store_ == nullptr) {
    auto opened = open_();
    if (!opened) return store_problem(opened.error());
    store_ = std::move(*opened);
  }
  return store_.get();
}

std::string ObjectDrainer::key_of(const std::string& path) const {
  return config_.prefix.empty() ? path : config_.prefix + "/" + path;
}

std::string ObjectDrainer::staging_of(FileId file, std::uint64_t number) const {
  return key_of(fmt::format("{}/{}/", msg::kTemporaryFolder, msg::temporary_name(file, number)));
}

ObjectAssembly::Means ObjectDrainer::means(ObjectStore& store) {
  return {store, clock_, limiter_, stop_, config_.threads};
}

Outcome<void> ObjectDrainer::give_up_check(Time deadline) const {
  if (stop_.requested()) {
    return problem(Code::kCancelled, "benefactor.objects", 0, "The benefactor ends.");
  }
  if (clock_.now() >= deadline) {
    return problem(Code::kDeadline, "benefactor.objects", 0, "The drain took too long.");
  }
  return {};
}

/// Brings a piece's bytes into the buffer, checked. Returns none when they are corrupt.
Outcome<ByteSpan> ObjectDrainer::load_piece(ObjectStore& store, const msg::DrainPieces& request,
                                            std::uint32_t index, MutableByteSpan buffer,
                                            Time deadline) {
  const msg::DrainPiece& piece = request.pieces[index];
  if (piece.extent_offset != msg::kNoExtent) return load_from_arena(arena_, request, index, buffer);
  if (auto parts = split_path(request.base_path); !parts) return problem(parts.error());
  const auto bytes = buffer.first(piece.length);
  const auto got = store.get(key_of(request.base_path), {piece.file_offset, bytes}, deadline);
  if (!got) return store_problem(got.error());
  return differs_from_base(piece, bytes) ? ByteSpan{} : ByteSpan(bytes);
}

/// Puts the pieces into one staged object.
Outcome<void> ObjectDrainer::stage(ObjectStore& store, const msg::DrainPieces& request,
                                   msg::DrainPieces::Reply& reply, Time deadline) {
  std::vector<std::byte> buffer(buffer_bytes(request));
  std::vector<std::byte> bytes;
  std::vector<StagedPiece> pieces;
  for (std::uint32_t i = 0; i < request.pieces.size(); ++i) {
    if (auto going = give_up_check(deadline); !going) return going;
    const auto piece = load_piece(store, request, i, buffer, deadline);
    if (!piece) return problem(piece.error());
    if (piece->empty()) {
      reply.corrupt.push_back(i);
      continue;
    }
    add_staged(pieces, request.pieces[i].file_offset, *piece);
    bytes.insert(bytes.end(), piece->begin(), piece->end());
  }
  const Duration wait = limiter_.reserve(bytes.size(), clock_.now());
  if (wait > Duration::zero()) stop_.sleep(std::min(wait, deadline - clock_.now()));
  if (auto going = give_up_check(deadline); !going) return going;
  const std::vector<std::byte> list = staged_list(pieces);
  bytes.insert(bytes.end(), list.begin(), list.end());
  const std::string key = staging_of(request.file, request.number) + staged_name(request);
  const auto put = store.put(key, bytes, {}, {}, deadline);
  if (!put) return store_problem(put.error());
  return {};
}

Outcome<msg::DrainPieces::Reply> ObjectDrainer::write_pieces(const msg::DrainPieces& request,
                                                             Time deadline) {
  if (!is_in_limits(request)) return invalid("A drain request is out of its limits.");
  const auto opened = store();
  if (!opened) return problem(opened.error());
  msg::DrainPieces::Reply reply;
  if (request.number != 0) {
    if (auto staged = stage(**opened, request, reply, deadline); !staged) {
      return problem(staged.error());
    }
    return reply;
  }
  std::vector<std::byte> buffer(buffer_bytes(request));
  for (std::uint32_t i = 0; i < request.pieces.size(); ++i) {
    if (auto going = give_up_check(deadline); !going) return problem(going.error());
    if (request.pieces[i].extent_offset != msg::kNoExtent) {
      return invalid("A comparison reads no extents.");
    }
    const auto piece = load_piece(**opened, request, i, buffer, deadline);
    if (!piece) return problem(piece.error());
    if (piece->empty()) reply.corrupt.push_back(i);
  }
  return reply;
}

/// Returns the assembly of an earlier finish() for the same goal.
std::unique_ptr<ObjectAssembly> ObjectDrainer::take_assembly(const ObjectAssembly::Goal& goal) {
  const MutexLock lock(mutex_);
  const auto kept = assemblies_.find(goal.staging);
  if (kept == assemblies_.end()) return std::make_unique<ObjectAssembly>(goal);
  auto assembly = std::move(kept->second);
  assemblies_.erase(kept);
  return goal.is_same(assembly->goal()) ? std::move(assembly)
                                        : std::make_unique<ObjectAssembly>(goal);
}

void ObjectDrainer::keep_assembly(std::unique_ptr<ObjectAssembly> assembly) {
  const MutexLock lock(mutex_);
  if (assemblies_.size() >= kAssembliesMax) assemblies_.erase(assemblies_.begin());
  const std::string staging = assembly->goal().staging;
  assemblies_[staging] = std::move(assembly);
}

std::string ObjectDrainer::finished_attempt(const std::string& staging) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(finished_, staging, &Finished::first);
  return found == finished_.end() ? std::string() : found->second;
}

void ObjectDrainer::note_finished(const std::string& staging, const std::string& attempt) {
  const MutexLock lock(mutex_);
  if (finished_.size() == kFinishedMax) finished_.pop_front();
  finished_.emplace_back(staging, attempt);
}

/// Returns true when the object of the goal is there, from this attempt.
Outcome<bool> ObjectDrainer::is_made(ObjectStore& store, const ObjectAssembly::Goal& goal,
                                     const std::string& attempt, Time deadline) {
  const auto there = store.find(goal.key, deadline);
  if (!there && is_absent(there.error())) return false;
  if (!there) return problem(there.error());
  const auto said = ObjectAttributes::parse(there->metadata);
  return said && said->attempt == attempt && there->size_bytes == goal.size_bytes &&
         said->mtime_ns == goal.attributes.mtime_ns;
}

/// Makes the object of the goal, and removes the staged objects.
Outcome<void> ObjectDrainer::assemble(ObjectStore& store, ObjectAssembly::Goal goal,
                                      Time deadline) {
  const auto note = read_note(store, goal.staging, deadline);
  if (!note) return store_problem(note.error());
  // Without a note, an earlier finish of this process, whose answer was lost, may have removed it.
  const std::string attempt = *note ? attempt_name(goal.attributes.attempt, (*note)->nonce)
                                    : finished_attempt(goal.staging);
  const auto done =
      attempt.empty() ? Outcome<bool>(false) : is_made(store, goal, attempt, deadline);
  if (!done) return store_problem(done.error());
  if (!*done) {
    auto assembly = take_assembly(goal);
    const auto made = assembly->run(means(store), deadline);
    if (!made) {
      if (made.error().error.code == Code::kDeadline) keep_assembly(std::move(assembly));
      return store_problem(made.error());
    }
    note_finished(goal.staging, assembly->attempt());
  }
  // The file has its name. Staged objects that stay are removed when the next manager starts.
  const auto dropped = drop_staged(store, goal.staging, config_.threads, deadline);
  if (!dropped) log::warning("staged objects of {} stay: {}", goal.key, dropped.error().text);
  return {};
}

Outcome<msg::DrainFinish::Reply> ObjectDrainer::finish(const msg::DrainFinish& request,
                                                       Time deadline) {
  if (!request.file || request.size_bytes > limits::kFileBytesMax) {
    return invalid("A drain request is out of its limits.");
  }
  if (auto parts = split_path(request.path); !parts) return problem(parts.error());
  if (auto going = give_up_check(deadline); !going) return problem(going.error());
  const auto opened = store();
  if (!opened) return problem(opened.error());
  ObjectAssembly::Goal goal;
  goal.key = key_of(request.path);
  goal.size_bytes = request.size_bytes;
  goal.staging = staging_of(request.file, request.number);
  goal.attributes.mode = request.mode & 07777;
  goal.attributes.uid = request.uid;
  goal.attributes.gid = request.gid;
  goal.attributes.mtime_ns = request.mtime_ns;
  goal.attributes.attempt = msg::temporary_name(request.file, request.number);
  if (auto made = assemble(**opened, std::move(goal), deadline); !made) {
    const bool is_kept = made.error().error.os_errno == ENOENT && is_of_name_change(request.number);
    return is_kept ? name_kept(**opened, request, deadline) : problem(made.error());
  }
  return msg::DrainFinish::Reply{};
}

/// Gives its name to a whole object that an earlier change of names has moved to the number. Such an
/// attempt has no staged objects.
Outcome<msg::DrainFinish::Reply> ObjectDrainer::name_kept(ObjectStore& store,
                                                          const msg::DrainFinish& request,
                                                          Time deadline) {
  const std::string kept = key_of(fmt::format("{}/{}", msg::kTemporaryFolder,
                                              msg::temporary_name(request.file, request.number)));
  if (const auto from = store.find(kept, deadline); !from) {
    if (!is_absent(from.error())) return store_problem(from.error());
    // Finished before, and this is the same request again?
    const auto there = store.find(key_of(request.path), deadline);
    const auto said = there ? ObjectAttributes::parse(there->metadata) : std::nullopt;
    const bool is_same =
        said && there->size_bytes == request.size_bytes && said->mtime_ns == request.mtime_ns;
    if (is_same) return msg::DrainFinish::Reply{};
    return problem(Code::kDrainFailed, "benefactor.name_kept", ENOENT,
                   fmt::format("{} has no object that was kept for it.", request.path));
  }
  msg::MirrorChange change;
  change.kind = msg::MirrorKind::kRename;
  change.other_path = request.path;
  change.file = request.file;
  change.number = request.number;
  change.mode = request.mode;
  change.uid = request.uid;
  change.gid = request.gid;
  change.mtime_ns = request.mtime_ns;
  if (auto named = mirror(change, deadline); !named) return problem(named.error());
  change.kind = msg::MirrorKind::kAttributes;
  change.path = request.path;
  if (auto set = mirror(change, deadline); !set) return problem(set.error());
  return msg::DrainFinish::Reply{};
}

Outcome<msg::MirrorChange::Reply> ObjectDrainer::mirror(const msg::MirrorChange& request,
                                                        Time deadline) {
  const auto opened = store();
  if (!opened) return problem(opened.error());
  if (auto going = give_up_check(deadline); !going) return problem(going.error());
  const ObjectMirror mirror(
      {means(**opened), config_.prefix, config_.copied_at_once,
       [this, &opened, deadline](const ObjectAssembly::Goal& goal) -> Outcome<void> {
         auto assembly = take_assembly(goal);
         auto made = assembly->run(means(**opened), deadline);
         if (!made && made.error().error.code == Code::kDeadline) {
           keep_assembly(std::move(assembly));
         }
         return made;
       }});
  if (auto done = mirror.carry_out(request, deadline); !done) return store_problem(done.error());
  return msg::MirrorChange::Reply{};
}

Outcome<msg::FindDrained::Reply> ObjectDrainer::find(const msg::FindDrained& request,
                                                     Time deadline) {
  const auto opened = store();
  if (!opened) return problem(opened.error());
  ObjectStore& store = **opened;
  std::vector<char> missing(request.files.size());
  const auto looked =
      in_parallel(request.files.size(), config_.threads, [&](std::size_t i) -> Outcome<void> {
        if (auto going = give_up_check(deadline); !going) return going;
        const msg::FindDrained::Wanted& wanted = request.files[i];
        const auto there = store.find(key_of(wanted.path), deadline);
        if (!there && !is_absent(there.error())) return store_problem(there.error());
        const auto said = there ? ObjectAttributes::parse(there->metadata) : std::nullopt;
        missing[i] = !said || said->kind != ObjectKind::kFile ||
                     there->size_bytes != wanted.size_bytes || said->mtime_ns != wanted.mtime_ns;
        return {};
      });
  if (!looked) return problem(looked.error());
  msg::FindDrained::Reply reply;
  for (std::uint32_t i = 0; i < missing.size(); ++i) {
    if (missing[i] != 0) reply.missing.push_back(i);
  }
  // The store says "absent" of each object of an absent bucket. A listing names the bucket.
  if (!reply.missing.empty()) {
    if (auto page = store.list(key_of(msg::kTemporaryFolder), "", deadline); !page) {
      return store_problem(page.error());
    }
  }
  return reply;
}

std::unique_ptr<ObjectDrainer> make_object_drainer(ByteSpan arena, const std::string& place,
                                                   std::uint64_t rate, const Clock& clock,
                                                   Stop& stop) {
  const auto parsed = ObjectPlace::parse(place);
  const std::string prefix = parsed ? parsed->prefix : std::string();
  const auto open = [parsed, &clock, &stop]() -> Outcome<std::unique_ptr<ObjectStore>> {
    if (!parsed) return problem(parsed.error());
    keep_secrets_out_of_core_files();
    return open_object_store(*parsed, clock, [&stop] { return stop.requested(); });
  };
  return std::make_unique<ObjectDrainer>(arena, open, ObjectDrainer::Config{prefix, rate}, clock,
                                         stop);
}

}  // namespace stdchk::benefactor
