#include "benefactor/drain/file_drainer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "benefactor/drain/drain_attributes.h"
#include "benefactor/drain/drain_paths.h"
#include "benefactor/drain/piece_check.h"
#include "benefactor/drain/striping.h"
#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/base/whole_io.h"
#include "core/chunk/naming.h"

namespace stdchk::benefactor {
namespace {

using namespace std::chrono_literals;
constexpr auto kTurnMax = 1s;

/// False with errno; EIO when the file is shorter.
bool read_all(int fd, MutableByteSpan bytes, std::uint64_t offset) {
  const ssize_t got = read_at(fd, offset, bytes);
  if (got >= 0 && got < std::ssize(bytes)) errno = EIO;
  return got == std::ssize(bytes);
}

tl::unexpected<Problem> invalid(std::string what) {
  return problem(Code::kInvalidArgument, "benefactor.drain", EINVAL, std::move(what));
}

}  // namespace

/// The state of one write_pieces call.
struct FileDrainer::Writing {
  const msg::DrainPieces& request;
  Time deadline;
  Place place;
  Descriptor file;
  Descriptor base;
  std::vector<std::byte> buffer;                   ///< of the largest extent
  std::vector<std::optional<std::uint32_t>> crcs;  ///< CRCs of written bytes, for each piece
  msg::DrainPieces::Reply reply;
};

FileDrainer::FileDrainer(ByteSpan arena, std::string directory, std::uint64_t rate,
                         const Clock& clock, Stop& stop)
    : arena_(arena), directory_(std::move(directory)), limiter_(rate), clock_(clock), stop_(stop) {}

Outcome<void> FileDrainer::give_up_check(Time deadline) const {
  if (stop_.requested()) {
    return problem(Code::kCancelled, "benefactor.drain", 0, "The benefactor ends.");
  }
  if (clock_.now() >= deadline) {
    return problem(Code::kDeadline, "benefactor.drain", 0, "The drain took too long.");
  }
  return {};
}

Outcome<void> FileDrainer::wait_for_rate(std::uint64_t bytes, Time deadline) {
  const Duration wait = limiter_.reserve(bytes, clock_.now());
  if (wait > Duration::zero()) {
    const Duration left = std::max(Duration::zero(), deadline - clock_.now());
    stop_.sleep(std::min(wait, left));
  }
  return give_up_check(deadline);
}

/// Brings a piece's bytes into the buffer, checked; empty when they are corrupt.
Outcome<ByteSpan> FileDrainer::load_piece(Writing& writing, std::uint32_t index) {
  const msg::DrainPiece& piece = writing.request.pieces[index];
  if (piece.extent_offset == msg::kNoExtent) {
    const auto copy = std::span(writing.buffer).first(piece.length);
    if (!writing.base) return invalid("A piece of no extent needs the path of its base.");
    if (!read_all(writing.base.get(), copy, piece.file_offset)) {
      return storage_problem("reading", writing.request.base_path, errno);
    }
    return differs_from_base(piece, copy) ? ByteSpan{} : ByteSpan(copy);
  }
  return load_from_arena(arena_, writing.request, index, writing.buffer);
}

Outcome<void> FileDrainer::write_piece(Writing& writing, std::uint32_t index) {
  const msg::DrainPiece& piece = writing.request.pieces[index];
  const auto bytes = load_piece(writing, index);
  if (!bytes) return problem(bytes.error());
  if (bytes->empty()) {
    writing.reply.corrupt.push_back(index);
    return {};
  }
  if (auto waited = wait_for_rate(piece.length, writing.deadline); !waited) return waited;
  if (!write_at(writing.file.get(), piece.file_offset, *bytes)) {
    return storage_problem("writing", writing.place.path, errno);
  }
  writing.crcs[index] = crc32c(0, *bytes);
  return {};
}

/// Opens the temporary file, and the base when a piece comes from it.
Outcome<void> FileDrainer::open_files(Writing& writing) {
  auto root = open_root(directory_);
  if (!root) return problem(root.error());
  const auto first = make_temporary_folder(*root);
  if (!first) return problem(first.error());
  // An administrator may have given that folder a layout already.
  if (*first) stripe_by_size(directory_.path() + "/" + msg::kTemporaryFolder);
  auto place = temporary_place(directory_, *root, writing.request.file, writing.request.number);
  if (!place) return problem(place.error());
  writing.place = std::move(*place);
  const DrainFolder& folder = writing.place.folder;
  auto file = folder.create(writing.place.name);
  if (!file && file.error().error.os_errno == EEXIST) {
    // The temporary file exists: another benefactor made it, or this one for earlier pieces.
    file = folder.open(writing.place.name, Access::kReadWrite,
                       {{}, {}, maker_owners(directory_, *root), true});
    if (!file && file.error().error.os_errno != ENOENT) return storage_problem(file.error());
  }
  if (!file) return storage_problem("making", writing.place.path, file.error().error.os_errno);
  writing.file = std::move(file->file);
  return open_base(writing, *root);
}

/// Opens a version that was drained before.
Outcome<void> FileDrainer::open_base(Writing& writing, const DrainFolder& root) {
  const std::string& path = writing.request.base_path;
  if (path.empty()) return {};
  if (auto place = find_place(root, path, Missing::kFails); !place) return problem(place.error());
  auto base = directory_.open_drained(root, path, writing.request.base_uid);
  if (!base && base.error().error.os_errno == ENOENT)
    return storage_problem("opening", path, ENOENT);
  if (!base) return storage_problem(base.error());
  writing.base = std::move(base->file);
  return {};
}

/// A WriteTurn is the time in which one request's bytes go to the storage: meanwhile another one's
/// are read back. Without turns, all workers write at the same time, then all read. After kTurnMax
/// a worker proceeds without its turn, because storage may hang.
class FileDrainer::WriteTurn {
 public:
  explicit WriteTurn(FileDrainer& owner) : owner_(owner) {
    MutexLock lock(owner_.turn_mutex_);
    mine_ = owner_.turn_over_.wait_for(
        lock, kTurnMax, [&]() STDCHK_REQUIRES(owner_.turn_mutex_) { return !owner_.turn_taken_; });
    if (mine_) owner_.turn_taken_ = true;
  }
  ~WriteTurn() {
    if (!mine_) return;
    {
      const MutexLock lock(owner_.turn_mutex_);
      owner_.turn_taken_ = false;
    }
    owner_.turn_over_.notify_one();
  }
  WriteTurn(const WriteTurn&) = delete;
  WriteTurn& operator=(const WriteTurn&) = delete;

 private:
  FileDrainer& owner_;
  bool mine_ = false;
};

Outcome<void> FileDrainer::write_and_sync(Writing& writing) {
  const WriteTurn turn(*this);
  for (std::uint32_t i = 0; i < writing.request.pieces.size(); ++i) {
    if (auto going = give_up_check(writing.deadline); !going) return going;
    if (auto written = write_piece(writing, i); !written) return written;
  }
  if (::fdatasync(writing.file.get()) == 0) return {};
  return storage_problem("syncing", writing.place.path, errno);
}

/// Reads the written bytes back from the storage, and compares them with their checksums.
Outcome<void> FileDrainer::verify(Writing& writing) {
  const int fd = writing.file.get();
  // The cache would answer instead of the storage. Advice only: some file systems ignore it.
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  for (std::uint32_t i = 0; i < writing.crcs.size(); ++i) {
    const msg::DrainPiece& piece = writing.request.pieces[i];
    if (!writing.crcs[i]) continue;
    if (auto going = give_up_check(writing.deadline); !going) return going;
    const auto back = std::span(writing.buffer).first(piece.length);
    if (!read_all(fd, back, piece.file_offset)) {
      return storage_problem("reading back", writing.place.path, errno);
    }
    if (crc32c(0, back) != *writing.crcs[i]) {
      return problem(Code::kDrainFailed, "benefactor.drain_verify", EIO,
                     fmt::format("{} holds other bytes at {} than were written; the storage below "
                                 "it is not sound.",
                                 writing.place.path, piece.file_offset));
    }
  }
  return {};
}

/// Compares chunks of a drained file with their checksums, as the storage returns them.
Outcome<msg::DrainPieces::Reply> FileDrainer::compare(Writing& writing) {
  const auto root = open_root(directory_);
  if (!root) return problem(root.error());
  if (auto opened = open_base(writing, *root); !opened) return problem(opened.error());
  if (!writing.base) return invalid("A comparison needs the path of a drained file.");
  ::posix_fadvise(writing.base.get(), 0, 0, POSIX_FADV_DONTNEED);
  writing.buffer.resize(buffer_bytes(writing.request));
  for (std::uint32_t i = 0; i < writing.request.pieces.size(); ++i) {
    if (auto going = give_up_check(writing.deadline); !going) return problem(going.error());
    if (writing.request.pieces[i].extent_offset != msg::kNoExtent) {
      return invalid("A comparison reads no extents.");
    }
    const auto bytes = load_piece(writing, i);
    if (!bytes) return problem(bytes.error());
    if (bytes->empty()) writing.reply.corrupt.push_back(i);
  }
  return std::move(writing.reply);
}

Outcome<msg::DrainPieces::Reply> FileDrainer::write_pieces(const msg::DrainPieces& request,
                                                           Time deadline) {
  if (!is_in_limits(request)) return invalid("A drain request is out of its limits.");
  Writing writing{request, deadline, {}, {}, {}, {}, {}, {}};
  if (request.number == 0) return compare(writing);
  if (auto opened = open_files(writing); !opened) return problem(opened.error());
  writing.buffer.resize(buffer_bytes(request));
  writing.crcs.resize(request.pieces.size());
  if (auto written = write_and_sync(writing); !written) return problem(written.error());
  if (auto verified = verify(writing); !verified) return problem(verified.error());
  return std::move(writing.reply);
}

Outcome<msg::DrainFinish::Reply> FileDrainer::finish(const msg::DrainFinish& request,
                                                     Time deadline) {
  if (!request.file || request.size_bytes > limits::kFileBytesMax) {
    return invalid("A drain request is out of its limits.");
  }
  auto root = open_root(directory_);
  if (!root) return problem(root.error());
  auto to = find_place(*root, request.path, Missing::kIsMade);
  if (!to) return problem(to.error());
  auto from = temporary_place(directory_, *root, request.file, request.number);
  if (!from) return problem(from.error());

  std::vector<std::uint32_t> owners = maker_owners(directory_, *root);
  owners.push_back(request.uid);  // an earlier finish, whose answer was lost, may have set it
  const auto opened = from->folder.open(from->name, Access::kReadWrite, {{}, {}, owners, true});
  if (!opened && opened.error().error.os_errno == ENOENT) {
    // Finished before, and this is the same request again? Anything else must be drained anew.
    const auto there = to->folder.status(to->name);
    if (there && S_ISREG(there->st_mode) &&
        static_cast<std::uint64_t>(there->st_size) == request.size_bytes &&
        equals_stored_time(request.mtime_ns, there->st_mtim) &&
        directory_.may_belong(*root, *there, request.uid)) {
      if (auto synced = sync_folder(to->folder, to->path); !synced) return problem(synced.error());
      return msg::DrainFinish::Reply{};
    }
    return storage_problem("finding the pieces of", to->path, ENOENT);
  }
  if (!opened) return storage_problem(opened.error());
  const Descriptor& file = opened->file;

  const Wanted wanted{request.mode, request.uid, request.gid, request.mtime_ns};
  if (::ftruncate(file.get(), static_cast<off_t>(request.size_bytes)) != 0) {
    return storage_problem("sizing", from->path, errno);
  }
  if (auto set = set_attributes(file.get(), wanted, from->path, Acl::kNone); !set) {
    return problem(set.error());
  }
  if (::fsync(file.get()) != 0) return storage_problem("syncing", from->path, errno);
  if (auto going = give_up_check(deadline); !going) return problem(going.error());
  const WritableFolder writable(to->folder);
  if (::renameat(from->folder.get(), from->name.c_str(), to->folder.get(), to->name.c_str()) != 0) {
    return storage_problem("naming", to->path, errno);
  }
  if (auto synced = sync_folder(to->folder, to->path); !synced) return problem(synced.error());
  return msg::DrainFinish::Reply{};
}

}  // namespace stdchk::benefactor
