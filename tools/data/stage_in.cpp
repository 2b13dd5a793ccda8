#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/base/file_time.h"
#include "core/base/units.h"
#include "core/files/data_ranges.h"
#include "core/files/drain_directory.h"
#include "core/objects/object_place.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/share_out.h"
#include "tools/base/show.h"
#include "tools/data/check_report.h"
#include "tools/data/commands.h"
#include "tools/data/drained_sets.h"
#include "tools/data/staged_folders.h"
#include "tools/drained/manifest.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Bytes of one copy step, for parts of a file that have no checksum.
constexpr std::size_t kCopyBytes = limits::kMiB;
/// Some file systems store times in steps of this size.
constexpr std::int64_t kTimeStepNs = 2'000'000'000;

enum class LoadingKind : std::uint8_t { kFile, kLink, kFolder };

/// A file, symbolic link or folder on its way from the drain directory into the pool.
struct Loading {
  ManifestFile said;  ///< of a link or folder: only its paths
  LoadingKind kind = LoadingKind::kFile;
  std::string relative;  ///< path below both folders
  FileId folder;
  std::string drained;  ///< where the pool drains it, below its drain directory; empty: nowhere
  std::string fault;    ///< empty: loaded
  std::uint64_t checked_bytes = 0;

  std::string name() const { return fs::path(relative).filename().string(); }
};

/// Copies the bytes between two pieces, for which the manifest has no checksum. Leaves holes out.
Status copy_unchecked(int fd, client::File& file, std::uint64_t from, std::uint64_t to) {
  while (const auto data = next_data(fd, from, to)) {
    const std::size_t length = std::min<std::uint64_t>(kCopyBytes, data->end - data->begin);
    const auto bytes = read_range(fd, data->begin, length);
    if (bytes.empty()) return fail(Code::kSystem, "stage_in.read");
    if (auto written = file.write(data->begin, bytes); !written) return written;
    from = data->begin + bytes.size();
  }
  return {};
}

Status copy_checked(int fd, client::File& file, Loading& loading, Namer& namer) {
  std::uint64_t at = 0;
  for (const ManifestPiece& piece : loading.said.pieces) {
    if (auto copied = copy_unchecked(fd, file, at, piece.offset); !copied) return copied;
    const auto bytes = read_range(fd, piece.offset, piece.length);
    if (!matches_manifest(piece, bytes, namer)) return fail(Code::kCorrupt, "stage_in.verify");
    if (auto written = file.write(piece.offset, bytes); !written) return written;
    at = std::max(at, piece.offset + piece.length);
    loading.checked_bytes += piece.length;
  }
  if (auto copied = copy_unchecked(fd, file, at, loading.said.size_bytes); !copied) return copied;
  // The file may end with a hole.
  return file.truncate(loading.said.size_bytes);
}

/// Returns the pool's file whose drained copy this file is; a benefactor has just confirmed it.
/// Returns nothing when no file of the pool matches.
std::optional<Attributes> drained_as(client::Filesystem& filesystem, const Loading& loading,
                                     const struct stat& status) {
  if (loading.drained.empty()) return std::nullopt;
  const auto drain = DrainDirectory(filesystem.config().drain_directory).open();
  const auto same = drain ? drain->status(loading.drained) : Outcome<struct stat>();
  if (!drain || !same || same->st_dev != status.st_dev || same->st_ino != status.st_ino) {
    return std::nullopt;
  }
  const auto there = filesystem.lookup_fresh(loading.folder, loading.name());
  if (!there || there->type != FileType::kRegular || there->drain != DrainState::kDrained ||
      there->size_bytes != loading.said.size_bytes ||
      std::abs(there->mtime_ns - to_ns(status.st_mtim)) >= kTimeStepNs) {
    return std::nullopt;
  }
  const auto answer = filesystem.ask(msg::ConfirmDrained{{there->id}});
  const auto* const reply = answer ? std::get_if<msg::ConfirmDrained::Reply>(&*answer) : nullptr;
  if (reply == nullptr || !reply->undrained.empty() || !reply->missing.empty()) {
    return std::nullopt;
  }
  return *there;
}

/// Returns true when `path` still names the same, unchanged file. A writer can restore st_mtim, but
/// not st_ctim.
bool is_unchanged(const DrainFolder& from, const std::string& path, const struct stat& before) {
  const auto now = from.status(path);
  return now && now->st_dev == before.st_dev && now->st_ino == before.st_ino &&
         now->st_size == before.st_size && to_ns(now->st_mtim) == to_ns(before.st_mtim) &&
         to_ns(now->st_ctim) == to_ns(before.st_ctim);
}

/// Gives a file or link that was just made the time of its drained copy. Programs take the newest
/// file for the last checkpoint.
Status set_time(client::Filesystem& filesystem, FileId file, const struct stat& drained) {
  msg::SetAttributes change;
  change.file = file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMtime);
  change.mtime_ns = to_ns(drained.st_mtim);
  const auto done = filesystem.set_attributes(change);
  return done ? Status() : fail(done.error());
}

/// Copies the file and commits it, either as the content of the pool's file `own` or as a new file.
/// The new content becomes visible only when it is whole and matches the manifest. Returns kStale
/// when the drained file or the pool's file was changed meanwhile.
Status copy(client::Filesystem& filesystem, const DrainFolder& from, const OpenedFile& source,
            const std::optional<Attributes>& own, Loading& loading, Namer& namer) {
  const struct stat& status = source.status;
  client::OpenFlags flags;
  flags.write = true;
  flags.create = flags.truncate = !own;
  const client::Owner owner{status.st_mode & 07777U, status.st_uid, status.st_gid};
  auto file = own ? filesystem.open(own->id, flags)
                  : filesystem.create(loading.folder, loading.name(), flags, owner);
  if (!file) return fail(file.error());
  loading.checked_bytes = 0;
  Status done = copy_checked(source.file.get(), **file, loading, namer);
  const bool is_checked = loading.checked_bytes >= loading.said.size_bytes;
  // Some bytes have no checksum, or the file ends too early.
  const bool is_doubtful = done ? own || !is_checked : done.error().code == Code::kSystem;
  if (is_doubtful && !is_unchanged(from, loading.said.below, status)) {
    done = fail(Code::kStale, "stage_in.read");
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
void load_link(client::Filesystem& filesystem, const DrainFolder& from, Loading& loading) {
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

void load(client::Filesystem& filesystem, const DrainFolder& from, Loading& loading, Namer& namer,
          LoadAs as) {
  const auto source = from.open(loading.said.below, Access::kRead);
  if (loading.said.damaged) {
    loading.fault = "has an entry in the manifest that is damaged";
  } else if (!source) {
    loading.fault = fault_of(source.error());
  } else if (static_cast<std::uint64_t>(source->status.st_size) != loading.said.size_bytes) {
    loading.fault =
        fmt::format("has {} bytes instead of {}", source->status.st_size, loading.said.size_bytes);
  }
  if (!loading.fault.empty()) return;
  std::optional<Attributes> own;
  if (as == LoadAs::kWhatItIs) own = drained_as(filesystem, loading, source->status);
  const Status done = copy(filesystem, from, *source, own, loading, namer);
  if (done) return;
  const Code code = done.error().code;
  if (own && code == Code::kStale) {
    const auto now = filesystem.lookup_fresh(loading.folder, loading.name());
    if (now && now->id == own->id && now->version == own->version) {
      return load(filesystem, from, loading, namer, LoadAs::kNew);
    }
    // The pool's file is newer than the drained copy, which must not replace it.
    loading.fault = "was written or removed in the pool while it was read";
  } else if (code == Code::kStale) {
    loading.fault = "was changed while it was read";
  } else if (code == Code::kCorrupt) {
    loading.fault = "is not what the manifest says";
  } else {
    loading.fault = fmt::format("cannot be loaded: {}", describe(done.error()));
  }
}

/// Returns the path in the pool of a folder of its drain directory. The path is empty for another
/// folder, and for the drain directory itself.
fs::path place_of(const std::string& folder, const std::string& drain) {
  std::error_code code;
  const fs::path below = drain.empty() ? fs::path() : fs::relative(folder, drain, code);
  const bool is_below = !code && !below.empty() && below != "." && *below.begin() != "..";
  return is_below ? below : fs::path();
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
                                                  const DrainFolder& from) {
  auto tree = read_tree(options.path);
  if (!tree) return problem(tree.error());
  DrainedSets sets(options.path, from);
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
    said.path = (fs::path(options.path) / below).string();
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
int report(const std::vector<Loading>& all, std::size_t folders, double seconds, bool json) {
  Faults bad(json);
  std::size_t unlisted = 0;
  std::size_t links = 0;
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checked = 0;
  for (const Loading& one : all) {
    if (one.said.unlisted) ++unlisted;
    links += one.kind == LoadingKind::kLink ? 1 : 0;
    files += one.kind == LoadingKind::kFile ? 1 : 0;
    bytes += one.said.size_bytes;
    checked += one.checked_bytes;
    if (!one.fault.empty()) bad.add(one.said.path, one.fault);
  }
  if (json) {
    print({{"files", files},
           {"links", links},
           {"folders", folders},
           {"bytes", bytes},
           {"checked_bytes", checked},
           {"unlisted", unlisted},
           {"bad", bad.list()},
           {"seconds", seconds}});
  } else {
    fmt::print("{} files, {} in {:.3f} s ({:.0f} MB/s); {} compared with checksums; {} bad\n",
               files, format_bytes(bytes), seconds, static_cast<double>(bytes) / 1e6 / seconds,
               format_bytes(checked), bad.count());
    if (links > 0) fmt::print("{} symbolic links\n", links);
    if (folders > 0) fmt::print("{} folders made\n", folders);
    if (unlisted > 0) {
      fmt::print("{} of the files are in no manifest, and were loaded without a check\n", unlisted);
    }
  }
  return bad.exit_status();
}

}  // namespace

int run_stage_in(const StageInOptions& options) {
  if (is_object_store(options.path)) {
    return complain(
        "stage-in does not load from an object store yet. Start a pool with --drain on that store: "
        "it shows all its files, and reads them from there");
  }
  const auto began = Clock::now();
  const auto from = DrainDirectory(options.path).open();
  if (!from) return complain(from.error().text);
  auto turns = choose(options, *from);
  if (!turns) return complain(turns.error().text);
  auto located = locate(options.pool, options.to, limits::kWindowBytesDefault);
  if (!located) return complain(located.error().text);
  if (located->attributes.type != FileType::kDirectory) {
    return complain(fmt::format("--to {} is no folder", options.to));
  }
  std::vector<Loading> all;
  const std::string drain = located->filesystem->config().drain_directory;
  const fs::path place = options.to.empty() ? place_of(options.path, drain) : fs::path();
  StagedFolders folders(*located->filesystem, *from, located->attributes.id, place.string());
  for (std::vector<Loading>& turn : *turns) {
    for (Loading& one : turn) {
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
        if (one.kind == LoadingKind::kLink) load_link(*located->filesystem, *from, one);
        if (one.kind != LoadingKind::kFile) return;
        load(*located->filesystem, *from, one, namer, LoadAs::kWhatItIs);
      };
    });
    std::ranges::move(turn, std::back_inserter(all));
  }
  if (auto set = folders.set_times(); !set) return complain(set.error().text);
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return report(all, folders.made(), seconds, options.json);
}

}  // namespace stdchk::tools
