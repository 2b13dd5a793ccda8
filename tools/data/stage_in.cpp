#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/units.h"
#include "core/base/zero_bytes.h"
#include "core/objects/object_place.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/share_out.h"
#include "tools/base/show.h"
#include "tools/data/check_report.h"
#include "tools/data/commands.h"
#include "tools/data/drained_sets.h"
#include "tools/data/restart.h"
#include "tools/data/staged_folders.h"
#include "tools/drained/drained_source.h"
#include "tools/drained/manifest.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Longer pieces are copied in blocks.
constexpr std::size_t kBlockBytes = 16 * limits::kMiB;
/// Shorter runs of zeros are written: each hole costs a slice of the file's map.
constexpr std::size_t kHoleBytes = 64 * 1024;

enum class LoadingKind : std::uint8_t { kFile, kLink, kFolder };

/// A file, symbolic link or folder on its way from a DrainedSource into the pool.
struct Loading {
  ManifestFile said;  ///< of a link or folder: only its paths
  LoadingKind kind = LoadingKind::kFile;
  std::string relative;  ///< path below both folders
  FileId folder;
  std::string drained;  ///< where the pool drains it, below its drain directory; empty: nowhere
  std::string fault;    ///< empty: loaded
  std::string reason;   ///< of a failed read
  std::uint64_t checked_bytes = 0;
  std::uint64_t present_bytes = 0;  ///< which the pool had already
  /// Commits the file again even if the pool has it: earlier timesteps were written before.
  bool commits_again = false;
  bool is_new = false;  ///< a new version was committed

  std::string name() const { return fs::path(relative).filename().string(); }
};

/// A PoolCopy is a file of the pool that has the size and time of the drained file. It is probably its
/// content, for instance because an earlier stage-in loaded it.
class PoolCopy {
 public:
  /// Returns nothing if the pool lacks that file.
  static std::optional<PoolCopy> find(client::Filesystem& filesystem, const Loading& loading,
                                      const struct stat& drained) {
    const auto there = filesystem.lookup_fresh(loading.folder, loading.name());
    if (!there || there->type != FileType::kRegular || there->mtime_ns != to_ns(drained.st_mtim) ||
        there->size_bytes != loading.said.size_bytes) {
      return std::nullopt;
    }
    PoolCopy out;
    auto map = filesystem.map(there->id);
    if (!map || map->first.version != there->version) return std::nullopt;
    out.map_ = std::move(map->second);
    // A plain reader would see the bytes that the load writes.
    auto file = filesystem.open_version(there->id, there->version);
    if (!file) return std::nullopt;
    out.file_ = std::move(*file);
    return out;
  }

  /// Returns the bytes of the range if the pool's memory has them all; otherwise none.
  std::vector<std::byte> read(std::uint64_t offset, std::uint64_t length) const {
    auto slice = std::ranges::partition_point(
        map_.slices, [&](const Slice& one) { return one.file_offset + one.length <= offset; });
    for (; slice != map_.slices.end() && slice->file_offset < offset + length; ++slice) {
      if (map_.chunks.at(slice->chunk).copies.empty()) return {};
    }
    std::vector<std::byte> bytes(length);
    const auto got = file_->read(offset, bytes);
    if (!got || *got != length) bytes.clear();
    return bytes;
  }

 private:
  ChunkMap map_;
  std::unique_ptr<client::File> file_;
};

/// A Copying is the way of one file into the pool.
struct Copying {
  const DrainedSource::Traits& traits;
  const SourceFile& source;
  Loading& loading;
  Namer& namer;
  std::optional<PoolCopy> present;
  /// Blocks of zeros become holes. Nothing was written in their place before.
  bool leaves_holes = false;
};

/// Writes the bytes. Leaves blocks of zeros out if they may be holes.
Status write_data(const Copying& of, client::File& file, std::uint64_t at, ByteSpan bytes) {
  if (!of.leaves_holes) return file.write(at, bytes);
  std::size_t data = 0;  // begin of the unwritten bytes
  std::size_t next = 0;
  const auto flush = [&]() -> Status {
    return data == next ? Status() : file.write(at + data, bytes.subspan(data, next - data));
  };
  while (next < bytes.size()) {
    const std::size_t length = std::min(kHoleBytes, bytes.size() - next);
    if (!is_zero(bytes.subspan(next, length))) {
      next += length;
      continue;
    }
    if (auto written = flush(); !written) return written;
    data = next += length;
  }
  return flush();
}

/// Reads bytes of the drained file, and keeps the reason of a failure.
Result<std::vector<std::byte>> read_drained(const Copying& of, std::uint64_t at,
                                            std::size_t length) {
  auto bytes = of.source.read(at, length);
  if (bytes) return std::move(*bytes);
  of.loading.reason = bytes.error().text;
  const bool is_other = bytes.error().error.os_errno == ESTALE;
  return fail(is_other ? Code::kStale : Code::kSystem, "stage_in.read");
}

/// Reads bytes that have a checksum: those of the pool, or else those of the drained file.
Result<std::vector<std::byte>> read_listed(const Copying& of, std::uint64_t at, std::size_t length,
                                           std::uint64_t& present) {
  if (of.present) {
    auto bytes = of.present->read(at, length);
    if (!bytes.empty()) {
      present += length;
      return bytes;
    }
  }
  auto bytes = read_drained(of, at, length);
  if (bytes && bytes->empty()) return fail(Code::kSystem, "stage_in.read");
  return bytes;
}

/// Copies the bytes without a checksum between two pieces. Leaves holes out.
Status copy_unchecked(const Copying& of, client::File& file, std::uint64_t from, std::uint64_t to) {
  while (const auto data = of.source.next_data(from, to)) {
    const std::size_t length =
        std::min<std::uint64_t>(of.traits.read_bytes, data->end - data->begin);
    const auto bytes = read_drained(of, data->begin, length);
    if (!bytes) return fail(bytes.error());
    if (bytes->empty()) return fail(Code::kSystem, "stage_in.read");
    if (auto written = write_data(of, file, data->begin, *bytes); !written) return written;
    from = data->begin + bytes->size();
  }
  return {};
}

/// Copies a piece in blocks: long pieces are longer than memory. Returns false when its bytes do not
/// have the checksum; they are in the uncommitted file then.
Result<bool> copy_blocks(Copying& of, client::File& file, const ManifestPiece& piece,
                         std::uint64_t& present) {
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < piece.length;) {
    const std::size_t length = std::min<std::uint64_t>(kBlockBytes, piece.length - done);
    const auto bytes = read_listed(of, piece.offset + done, length, present);
    if (!bytes) return fail(bytes.error());
    crc = crc32c(crc, *bytes);
    if (auto written = write_data(of, file, piece.offset + done, *bytes); !written) {
      return fail(written.error());
    }
    done += bytes->size();
  }
  // Another read must also replace wrong bytes by zeros.
  if (crc != piece.crc) of.leaves_holes = false;
  return crc == piece.crc;
}

/// Returns false when the bytes do not have the checksum.
Result<bool> copy_piece(Copying& of, client::File& file, const ManifestPiece& piece,
                        std::uint64_t& present) {
  if (piece.length > kBlockBytes && piece.name.empty()) {
    return copy_blocks(of, file, piece, present);
  }
  const auto bytes = read_listed(of, piece.offset, piece.length, present);
  if (!bytes) return fail(bytes.error());
  if (!matches_manifest(piece, *bytes, of.namer)) return false;
  if (auto written = write_data(of, file, piece.offset, *bytes); !written) {
    return fail(written.error());
  }
  return true;
}

Status copy_checked(Copying& of, client::File& file) {
  const ManifestFile& said = of.loading.said;
  std::uint64_t at = 0;
  for (const ManifestPiece& piece : said.pieces) {
    if (auto copied = copy_unchecked(of, file, at, piece.offset); !copied) return copied;
    for (int reads = 0;;) {
      std::uint64_t present = 0;
      const auto is_right = copy_piece(of, file, piece, present);
      if (!is_right) return fail(is_right.error());
      if (*is_right) {
        of.loading.present_bytes += present;
        break;
      }
      // The pool has another content. This is no fault of the drained file.
      if (present == 0 && ++reads >= of.traits.reads_max) {
        return fail(Code::kCorrupt, "stage_in.verify");
      }
      of.present.reset();
    }
    at = std::max(at, piece.offset + piece.length);
    of.loading.checked_bytes += piece.length;
  }
  if (auto copied = copy_unchecked(of, file, at, said.size_bytes); !copied) return copied;
  // The file may end with a hole.
  return file.truncate(said.size_bytes);
}

/// Fails if the drained file was replaced since the load opened it.
Status check_unchanged(const Copying& of) {
  const auto is_unchanged = of.source.is_unchanged();
  if (is_unchanged && *is_unchanged) return {};
  if (is_unchanged) return fail(Code::kStale, "stage_in.read");
  of.loading.reason = is_unchanged.error().text;
  return fail(Code::kSystem, "stage_in.read");
}

/// Returns true when the pool's memory has all bytes of the file, with its checksums.
bool is_present(const Copying& of) {
  const ManifestFile& said = of.loading.said;
  std::uint64_t at = 0;
  for (const ManifestPiece& piece : said.pieces) {
    if (piece.offset != at) return false;
    std::uint32_t crc = 0;
    for (; at < piece.offset + piece.length;) {
      const std::uint64_t length =
          std::min<std::uint64_t>(kBlockBytes, piece.offset + piece.length - at);
      const auto bytes = of.present->read(at, length);
      if (bytes.empty()) return false;
      crc = crc32c(crc, bytes);
      at += length;
    }
    if (crc != piece.crc) return false;
  }
  return at == said.size_bytes && !said.unlisted;
}

/// Returns the pool's file whose drained copy this file is; a benefactor has just confirmed it.
/// Returns nothing when no file of the pool matches.
std::optional<Attributes> drained_as(client::Filesystem& filesystem, const DrainedSource& from,
                                     const Loading& loading, const struct stat& status) {
  if (loading.drained.empty()) return std::nullopt;
  const std::string drain = filesystem.config().drain_directory;
  if (!from.is_drained_as(loading.said.below, drain, loading.drained)) return std::nullopt;
  const auto there = filesystem.lookup_fresh(loading.folder, loading.name());
  if (!there || there->type != FileType::kRegular || there->drain != DrainState::kDrained ||
      there->size_bytes != loading.said.size_bytes ||
      !equals_stored_time(there->mtime_ns, status.st_mtim)) {
    return std::nullopt;
  }
  const auto answer = filesystem.ask(msg::ConfirmDrained{{there->id}});
  const auto* const reply = answer ? std::get_if<msg::ConfirmDrained::Reply>(&*answer) : nullptr;
  if (reply == nullptr || !reply->undrained.empty() || !reply->missing.empty()) {
    return std::nullopt;
  }
  return *there;
}

/// Gives what was just made the time of its drained copy: programs take the newest file for the last
/// checkpoint.
Status set_time(client::Filesystem& filesystem, FileId file, const struct stat& drained) {
  msg::SetAttributes change;
  change.file = file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMtime);
  change.mtime_ns = to_ns(drained.st_mtim);
  const auto done = filesystem.set_attributes(change);
  return done ? Status() : fail(done.error());
}

/// Copies the file and commits it, either as the content of the pool's file `own` or as a new file.
/// The new content becomes visible only when it is whole and matches its checksums. Returns kStale
/// when the drained file or the pool's file was changed meanwhile.
Status copy(client::Filesystem& filesystem, Copying& of, const std::optional<Attributes>& own) {
  Loading& loading = of.loading;
  const struct stat& status = of.source.status();
  client::OpenFlags flags;
  flags.write = true;
  flags.create = flags.truncate = !own;
  const client::Owner owner{status.st_mode & 07777U, status.st_uid, status.st_gid};
  auto file = own ? filesystem.open(own->id, flags)
                  : filesystem.create(loading.folder, loading.name(), flags, owner);
  if (!file) return fail(file.error());
  loading.checked_bytes = loading.present_bytes = 0;
  loading.reason.clear();
  of.leaves_holes = of.traits.zeros_are_holes && !own;
  Status done = copy_checked(of, **file);
  const bool is_checked = loading.checked_bytes >= loading.said.size_bytes;
  // Some bytes have no checksum, or the file ends too early.
  const bool is_short = !done && done.error().code == Code::kSystem && loading.reason.empty();
  if (is_short || (done && (own || !is_checked))) {
    if (auto same = check_unchanged(of); !same) done = same;
  }
  if (done && own) done = (*file)->commit_as(own->version);
  if (!done) (*file)->abort();
  const FileId id = (*file)->id();
  const Status closed = (*file)->close();
  if (done) done = closed;
  return done && !own ? set_time(filesystem, id, status) : done;
}

/// Makes the link, of the same owner. Its target is only a text here: nothing is read or written
/// through it, wherever it leads. Another link of that name is replaced.
void load_link(client::Filesystem& filesystem, const DrainedSource& from, Loading& loading) {
  const auto link = from.link(loading.said.below);
  if (!link) {
    loading.fault = fault_of(link.error());
    return;
  }
  const auto there = filesystem.lookup_fresh(loading.folder, loading.name());
  if (there && there->type == FileType::kSymlink) {
    const auto target = filesystem.read_symlink(there->id);
    if (target && *target == link->target) return;
    static_cast<void>(filesystem.remove(loading.folder, loading.name(), false));
  } else if (there) {
    loading.fault = "is a symbolic link, and the pool has another kind of file with that name";
    return;
  }
  const client::Owner owner{0777, link->status.st_uid, link->status.st_gid};
  const auto made = filesystem.make_symlink(loading.folder, loading.name(), link->target, owner);
  const Status done =
      made ? set_time(filesystem, made->id, link->status) : Status(fail(made.error()));
  if (!done) loading.fault = fmt::format("cannot be made: {}", describe(done.error()));
}

enum class LoadAs : std::uint8_t {
  kWhatItIs,  ///< a file that this pool has drained keeps its identity
  kNew,
};

/// Says why the file was not loaded; the text follows the path.
std::string fault_of_copy(const Error& error, const Copying& of) {
  if (error.code == Code::kStale) return "was changed while it was read";
  if (error.code == Code::kCorrupt) return fmt::format("is not what {} says", of.traits.checksums);
  if (!of.loading.reason.empty()) return "cannot be read: " + of.loading.reason;
  return fmt::format("cannot be loaded: {}", describe(error));
}

void load(client::Filesystem& filesystem, const DrainedSource& from, Loading& loading, Namer& namer,
          LoadAs as) {
  const auto opened = from.open(loading.said.below);
  if (loading.said.damaged) {
    loading.fault = fmt::format("has an entry in {} that is damaged", from.traits().checksums);
  } else if (!opened) {
    loading.fault = fault_of(opened.error());
  } else if (const auto& status = (*opened)->status();
             static_cast<std::uint64_t>(status.st_size) != loading.said.size_bytes) {
    loading.fault =
        fmt::format("has {} bytes instead of {}", status.st_size, loading.said.size_bytes);
  }
  if (!loading.fault.empty()) return;
  const SourceFile& source = **opened;
  Copying of{from.traits(), source, loading, namer, {}, false};
  if (of.traits.is_slow) of.present = PoolCopy::find(filesystem, loading, source.status());
  if (of.present && !loading.commits_again && is_present(of)) {
    loading.checked_bytes = loading.present_bytes = loading.said.size_bytes;
    return;
  }
  std::optional<Attributes> own;
  if (as == LoadAs::kWhatItIs) own = drained_as(filesystem, from, loading, source.status());
  const Status done = copy(filesystem, of, own);
  loading.is_new = done && !own;
  if (done) return;
  if (own && done.error().code == Code::kStale) {
    const auto now = filesystem.lookup_fresh(loading.folder, loading.name());
    if (now && now->id == own->id && now->version == own->version) {
      return load(filesystem, from, loading, namer, LoadAs::kNew);
    }
    // The pool's file is newer than the drained copy, which must not replace it.
    loading.fault = "was written or removed in the pool while it was read";
    return;
  }
  loading.fault = fault_of_copy(done.error(), of);
}

/// The Turns order files: each turn is loaded whole before the next begins. A rank that writes an
/// earlier timestep after a later one begins a new run for the manager
/// (manager/state/set_generations.h). So each set of a series is loaded whole before its next set.
/// The newest complete set of a folder comes last, so that it is the newest again. Pointers come
/// after the sets that they name.
class Turns {
 public:
  void add(Loading loading, const DrainedPlace& place, bool is_newest) {
    const auto phase = static_cast<std::size_t>(place.phase);
    if (place.phase == LoadPhase::kPointer || is_newest) {
      last_.at(phase).push_back(std::move(loading));
    } else {
      series_[place.series][{place.order, phase}].push_back(std::move(loading));
    }
  }

  std::vector<std::vector<Loading>> take() {
    std::vector<std::vector<Loading>> turns;
    for (auto& [series, sets] : series_) {
      std::size_t turn = 0;
      for (auto& [order, files] : sets) {
        if (turn == turns.size()) turns.emplace_back();
        std::ranges::move(files, std::back_inserter(turns[turn++]));
      }
    }
    for (std::vector<Loading>& files : last_) {
      if (!files.empty()) turns.push_back(std::move(files));
    }
    return turns;
  }

 private:
  /// By the set's place in its series, and LoadPhase.
  using Sets = std::map<std::pair<std::uint64_t, std::size_t>, std::vector<Loading>>;
  std::map<std::string, Sets> series_;
  std::array<std::vector<Loading>, 3> last_;  ///< by LoadPhase
};

/// Returns true for a file to load: of one set, of the sets that are loaded by default, or any.
bool is_chosen(const StageInOptions& options, DrainedSets& sets, const std::string& file,
               const DrainedPlace& place) {
  if (options.all) return true;
  if (!options.set.empty()) return sets.is_of(file, options.set);
  const std::set<std::string>& chosen = sets.chosen(place.folder);
  return chosen.empty() || place.phase == LoadPhase::kPointer || chosen.contains(place.set);
}

/// Returns the drained files, links and folders to load: one set, or all. By default: the newest complete set of each
/// folder and the sets that pointers name.
Outcome<std::vector<std::vector<Loading>>> choose(const StageInOptions& options,
                                                  const DrainedSource& from) {
  auto tree = from.tree();
  if (!tree) return problem(tree.error());
  DrainedSets sets(from);
  for (const ManifestFile& file : tree->files) sets.add(file.below);
  for (const std::string& link : tree->links) sets.add_link(link);
  Turns turns;
  // A folder belongs to the set to which a file in it would belong.
  const auto choose_one = [&](ManifestFile&& file, LoadingKind kind) {
    const std::string& at = file.below;
    const std::string named = kind == LoadingKind::kFolder ? at + "/" : at;
    const DrainedPlace place = sets.place_of(named);
    if (!is_chosen(options, sets, named, place)) return;
    const bool is_newest = !place.set.empty() && place.set == sets.newest(place.folder);
    Loading loading;
    loading.relative = at;
    loading.said = std::move(file);
    loading.kind = kind;
    turns.add(std::move(loading), place, is_newest);
  };
  const auto choose_named = [&](const std::string& below, LoadingKind kind) {
    ManifestFile said;
    said.path = (fs::path(drain_name(options.path)) / below).string();
    said.below = below;
    choose_one(std::move(said), kind);
  };
  for (const std::string& folder : tree->folders) choose_named(folder, LoadingKind::kFolder);
  for (ManifestFile& file : tree->files) choose_one(std::move(file), LoadingKind::kFile);
  for (const std::string& link : tree->links) {
    if (!sets.is_of_pool(link)) choose_named(link, LoadingKind::kLink);
  }
  auto all = turns.take();
  if (!all.empty()) return all;
  if (options.set.empty())
    return problem("no file in {} or below is of the chosen set", options.path);
  return problem(
      "no file in {} or below is of the set {}. A set has a name such as app.*.T7, or that of a "
      "directory by the rule set=directory (stdchk set list)",
      options.path, options.set);
}

/// Prints what was loaded, and the number of folders that were made. Returns the exit status.
int report(const std::vector<Loading>& all, const DrainedSource::Traits& traits,
           std::size_t folders, double seconds, bool json) {
  Faults bad(json);
  std::size_t unlisted = 0;
  std::size_t links = 0;
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checked = 0;
  std::uint64_t present = 0;
  for (const Loading& one : all) {
    if (one.said.unlisted) ++unlisted;
    links += one.kind == LoadingKind::kLink ? 1 : 0;
    files += one.kind == LoadingKind::kFile ? 1 : 0;
    bytes += one.said.size_bytes;
    checked += one.checked_bytes;
    present += one.present_bytes;
    if (!one.fault.empty()) bad.add(one.said.path, one.fault);
  }
  if (json) {
    print({{"files", files},
           {"links", links},
           {"folders", folders},
           {"bytes", bytes},
           {"checked_bytes", checked},
           {"present_bytes", present},
           {"unlisted", unlisted},
           {"bad", bad.list()},
           {"seconds", seconds}});
  } else {
    fmt::print("{} files, {} in {:.3f} s ({:.0f} MB/s); {} compared with checksums; {} bad\n",
               files, format_bytes(bytes), seconds, static_cast<double>(bytes) / 1e6 / seconds,
               format_bytes(checked), bad.count());
    if (present > 0) fmt::print("{} were in the pool already\n", format_bytes(present));
    if (links > 0) fmt::print("{} symbolic links\n", links);
    if (folders > 0) fmt::print("{} folders made\n", folders);
    if (unlisted > 0) {
      fmt::print("{} of the files {}, and were loaded without a check\n", unlisted,
                 traits.unlisted);
    }
  }
  return bad.exit_status();
}

/// Copies the set that was loaded into the folder of the pool to all nodes. Returns the exit status.
int copy_to_all(const StageInOptions& options, const std::string& folder,
                const std::string& invoked_as) {
  RestartOptions restart;
  restart.pool = options.pool;
  restart.path = folder;
  restart.set = options.set;
  restart.to = options.to_all;
  restart.job = options.job;
  restart.hosts = options.hosts;
  restart.remote_shell = options.remote_shell;
  restart.multicast = options.multicast;
  restart.all_images = true;
  const auto loaded = load_on_nodes(restart, invoked_as);
  if (!loaded) return complain(loaded.error().text);
  if (!*loaded) return complain("no set in that folder is complete: nothing was copied to nodes");
  const Loaded& all = **loaded;
  fmt::print(stderr, "stdchk: {}: {} {}, {}, copied to {} nodes in {:.3f} s; the last was {}\n",
             shown(all.set), all.images, all.word, format_bytes(all.bytes), all.nodes, all.seconds,
             all.last);
  print_cast(all);
  return kExitGood;
}

}  // namespace

int run_stage_in(const StageInOptions& options, const std::string& invoked_as) {
  const bool has_nodes = options.job || !options.hosts.empty();
  if (has_nodes == options.to_all.empty()) {
    return complain("--to-all needs the nodes, by --job or --hosts, and these need --to-all");
  }
  if (options.multicast == "always" && !has_nodes) return complain("--multicast needs --to-all");
  const auto began = Clock::now();
  const auto from = open_drained_source(options.path, options.endpoint, options.readers);
  if (!from) return complain(from.error().text);
  auto turns = choose(options, **from);
  if (!turns) return complain(turns.error().text);
  auto located = locate(options.pool, options.to, limits::kWindowBytesDefault);
  if (!located) return complain(located.error().text);
  if (located->attributes.type != FileType::kDirectory) {
    return complain(fmt::format("--to {} is no folder", options.to));
  }
  std::vector<Loading> all;
  const std::string drain = located->filesystem->config().drain_directory;
  const fs::path place = options.to.empty() ? (*from)->place_in(drain) : std::string();
  StagedFolders folders(*located->filesystem, **from, located->attributes.id, place.string());
  bool is_any_new = false;
  for (std::vector<Loading>& turn : *turns) {
    for (Loading& one : turn) {
      one.commits_again = is_any_new;
      const bool is_folder = one.kind == LoadingKind::kFolder;
      const auto folder =
          folders.folder(is_folder ? one.relative : fs::path(one.relative).parent_path().string());
      if (!folder && !is_folder) return complain(folder.error().text);
      if (!folder) one.fault = "cannot be made: " + folder.error().text;
      one.folder = folder.value_or(FileId{});
      one.relative = (place / one.relative).string();
      if (!drain.empty()) one.drained = (fs::path(located->path) / one.relative).string();
    }
    share_out(turn, options.readers, [&] {
      return [&, namer = Namer()](Loading& one) mutable {
        if (one.kind == LoadingKind::kLink) load_link(*located->filesystem, **from, one);
        if (one.kind != LoadingKind::kFile) return;
        load(*located->filesystem, **from, one, namer, LoadAs::kWhatItIs);
      };
    });
    is_any_new = is_any_new || std::ranges::any_of(turn, &Loading::is_new);
    std::ranges::move(turn, std::back_inserter(all));
  }
  if (auto set = folders.set_times(); !set) return complain(set.error().text);
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  const int status = report(all, (*from)->traits(), folders.made(), seconds, options.json);
  if (status != kExitGood || options.to_all.empty()) return status;
  const fs::path folder = fs::path(located->pool.mount) / located->path / place;
  return copy_to_all(options, folder.string(), invoked_as);
}

}  // namespace stdchk::tools
