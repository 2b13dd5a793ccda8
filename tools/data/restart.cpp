#include "tools/data/restart.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "core/base/exec_words.h"
#include "core/base/units.h"
#include "core/base/zero_bytes.h"
#include "core/policy/reserved_names.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/process.h"
#include "tools/base/share_out.h"
#include "tools/base/show.h"
#include "tools/cast/cast_receiver.h"
#include "tools/cast/local_folder.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* kFailed = "failed";
constexpr const char* kLeft = "left";
constexpr auto kAskAgain = 20ms;
constexpr auto kLeavePatience = 10s;
constexpr std::size_t kReaders = 16;  ///< number of images that a process loads at the same time

std::string environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  }
  return "";
}

/// Finds this process's rank and the number of ranks: as given, otherwise from the launcher.
Outcome<void> find_place(RestartOptions& options) {
  const auto number = [](std::uint32_t& value, std::initializer_list<const char*> names) {
    const std::string text = environment(names);
    std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty();
  };
  if (options.ranks == 0) {
    const bool known =
        number(options.rank, {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) &&
        number(options.ranks, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
    if (!known) {
      return problem(
          "the rank and the number of ranks are unknown; give --rank and --ranks, or use a "
          "launcher");
    }
  }
  if (options.run.empty()) {
    // Ranks that mpirun starts share its namespace, but not always a step number.
    options.run = environment({"PMIX_NAMESPACE"});
    if (options.run.empty()) {
      options.run = environment({"SLURM_JOB_ID", "PBS_JOBID"});
      const std::string step = environment({"SLURM_STEP_ID"});
      if (!step.empty()) options.run += "." + step;
    }
    // A requeued job has its earlier numbers again.
    const std::string again = environment({"SLURM_RESTART_COUNT"});
    if (!options.run.empty() && !again.empty()) options.run += ".again" + again;
  }
  if (options.run.empty())
    return problem("--run is needed: a name that all ranks of this start share");
  std::ranges::replace(options.run, '/', '-');
  if (options.rank >= options.ranks) {
    return problem("rank {} is too large: the ranks are counted from 0, and there are {}",
                   options.rank, options.ranks);
  }
  return {};
}

/// A Barrier lets no rank through before all ranks have arrived. Ranks meet in a folder of the
/// pool, where each has a folder named RANK@STATE. The first rank removes the meeting folder after
/// all have left.
///
/// Errors: a rank that failed, or that reports another set, ends the wait of all.
class Barrier {
 public:
  Barrier(client::Filesystem& filesystem, const RestartOptions& options)
      : filesystem_(filesystem),
        rank_(options.rank),
        ranks_(options.ranks),
        name_(std::string(kRestartPrefix) + options.run),
        until_(Clock::now() + std::chrono::seconds(options.timeout_s)) {}

  Outcome<void> enter() {
    auto made = filesystem_.make_directory(kRootFile, name_, {0700, ::getuid(), ::getgid()});
    if (!made && made.error().code == Code::kExists) {
      made = filesystem_.lookup_fresh(kRootFile, name_);
    }
    if (!made) return failed("the barrier", made.error());
    folder_ = made->id;
    return {};
  }
  Outcome<void> say(const std::string& state) {
    const std::string entry = fmt::format("{}@{}", rank_, state);
    if (said_.empty()) {
      auto made = filesystem_.make_directory(folder_, entry, {0700, ::getuid(), ::getgid()});
      if (!made) return failed("the barrier", made.error());
    } else {
      msg::Rename change;
      change.from_parent = change.to_parent = folder_;
      change.from_name = said_;
      change.to_name = entry;
      if (auto done = filesystem_.rename(change); !done) return failed("the barrier", done.error());
    }
    said_ = entry;
    return {};
  }
  /// Waits until all ranks have reported the same state, or have passed the barrier already.
  Outcome<void> wait(const std::string& state) {
    for (;; sleep_for(kAskAgain)) {
      auto entries = filesystem_.read_directory(folder_);
      if (!entries) return failed("the barrier", entries.error());
      std::size_t here = 0;
      for (const auto& entry : *entries) {
        const std::size_t at = entry.name.find('@');
        const std::string theirs = at == std::string::npos ? "" : entry.name.substr(at + 1);
        if (theirs == kFailed) {
          return problem("rank {} could not load its images", entry.name.substr(0, at));
        }
        if (theirs != state && theirs != kLeft) {
          return problem("rank {} has found the set {}, but this rank {}", entry.name.substr(0, at),
                         theirs, state);
        }
        ++here;
      }
      if (here >= ranks_) return {};
      if (Clock::now() > until_) {
        return problem("{} of {} ranks have loaded their images in time", here, ranks_);
      }
    }
  }
  /// Leaves the barrier. The first rank waits for the others for at most kLeavePatience, and
  /// removes the meeting folder.
  void leave() {
    if (!say(kLeft) || rank_ != 0) return;
    const auto until = Clock::now() + kLeavePatience;
    for (;; sleep_for(kAskAgain)) {
      auto entries = filesystem_.read_directory(folder_);
      if (!entries) return;
      const bool all = std::ranges::all_of(*entries, [](const auto& entry) {
        return entry.name.ends_with(std::string("@") + kLeft);
      });
      if (!all && Clock::now() < until) continue;
      for (const auto& entry : *entries) (void)filesystem_.remove(folder_, entry.name, true);
      (void)filesystem_.remove(kRootFile, name_, true);
      return;
    }
  }

 private:
  client::Filesystem& filesystem_;
  const std::uint32_t rank_;
  const std::uint32_t ranks_;
  const std::string name_;
  const Clock::time_point until_;
  FileId folder_;
  std::string said_;
};

/// Reads the image whole, so that this node has it, or copies it to a folder of this node. Holes,
/// and blocks of zeros, are holes of the copy.
Outcome<void> load_image(client::Filesystem& filesystem, const SetImage& image,
                         const LocalFolder* to) {
  client::OpenFlags flags;
  flags.read = true;
  auto file = filesystem.open(image.attributes.id, flags);
  if (!file) return failed(image.name, file.error());
  std::optional<LocalFile> copy;
  if (to != nullptr) {
    auto made = to->create(image.name);
    if (!made) return problem(made.error());
    copy.emplace(std::move(*made));
  }
  std::vector<std::byte> buffer(limits::kMiB);
  const std::uint64_t size = image.attributes.size_bytes;
  // Behind the end of a shorter file, seek() finds a hole.
  if ((*file)->attributes().size_bytes < size) {
    return problem("{} has become shorter", image.name);
  }
  for (std::uint64_t at = 0; at < size;) {
    const auto data = (*file)->seek(at, client::Seek::kData);
    if (!data) return failed(image.name, data.error());
    at = data->value_or(size);
    if (at >= size) break;  // the rest is a hole
    const auto count = (*file)->read(at, buffer);
    if (!count) return failed(image.name, count.error());
    if (*count == 0) return problem("{} has become shorter", image.name);
    const ByteSpan bytes = ByteSpan(buffer).first(*count);
    if (copy && !is_zero(bytes)) {
      if (auto done = copy->write(at, bytes); !done) return done;
    }
    at += *count;
  }
  if (!copy) return {};
  if (auto done = copy->set_size(size); !done) return done;
  // Only this user needs the copy. A script of a checkpoint stays executable.
  return copy->finish((image.attributes.mode & 0700U) | 0600U);
}

/// Fails if the copy of a directory has names that the set does not have: a program would read a
/// mixture of two checkpoints.
Outcome<void> check_copy(const LocalFolder& to, const ChosenSet& set, const std::string& path) {
  std::set<std::string> names(set.folders.begin(), set.folders.end());
  for (const SetImage& image : set.images) names.insert(image.name);
  for (const auto& [name, target] : set.links) names.insert(name);
  const std::string other =
      to.find_other(set.name, [&](const std::string& name) { return names.contains(name); });
  if (other.empty()) return {};
  return problem("{0}/{1} is no file of the set {2}. Remove {0}/{2}, and start again", path, other,
                 set.name);
}

bool is_for_all(const SetImage& image, const RestartOptions& options) {
  return !options.to.empty() && (options.all_images || !image.rank.has_value());
}

/// Whether a process that loads the ranks `mine` loads the k-th image. With as many images as ranks
/// each rank has its own; otherwise neighbours share images. Images of all ranks are copied by
/// every process, so that each node has them.
bool is_share(const ChosenSet& set, std::size_t k, const std::vector<std::uint32_t>& mine,
              const RestartOptions& options) {
  const auto ranked = static_cast<std::size_t>(std::ranges::count_if(
      set.images, [](const SetImage& image) { return image.rank.has_value(); }));
  const bool has_rank = k < ranked;
  if (is_for_all(set.images[k], options)) return true;
  const std::size_t count = has_rank ? ranked : set.images.size() - ranked;
  const std::size_t at = has_rank ? k : k - ranked;
  const std::size_t owner = options.ranks > count ? at : at * options.ranks / count;
  return std::ranges::find(mine, owner) != mine.end();
}

/// Returns the state that a rank with this set reports. A file name has limits, and a directory may
/// have the name of a state.
std::string state_of(const std::string& set) {
  constexpr std::size_t kBytesMax = 200;
  if (set == kFailed || set == kLeft) return "=" + set;
  if (set.size() <= kBytesMax) return set;
  return fmt::format("{}~{:016x}", set.substr(0, kBytesMax), std::hash<std::string>()(set));
}

/// Loads this rank's share and waits until all ranks have theirs. Returns the set's name.
Outcome<std::string> restart_rank(const RestartOptions& options) {
  const auto began = Clock::now();
  auto located = locate(options.pool, options.path, limits::kWindowBytesDefault);
  if (!located) return problem(located.error());
  client::Filesystem& filesystem = *located->filesystem;
  Barrier barrier(filesystem, options);
  if (auto entered = barrier.enter(); !entered) return problem(entered.error());
  const auto give_up = [&](const Problem& why) {
    (void)barrier.say(kFailed);
    return problem(why);
  };
  const auto set = choose_set(*located, options.set);
  if (!set) return give_up(set.error());
  const std::string name = *set ? (*set)->name : "none";
  std::uint64_t bytes = 0;
  if (*set) {
    auto loaded = load_shares(filesystem, **set, {options.rank}, options);
    if (!loaded) return give_up(loaded.error());
    bytes = *loaded;
  }
  const std::chrono::duration<double> own = Clock::now() - began;
  auto passed = barrier.say(state_of(name));
  if (passed) passed = barrier.wait(state_of(name));
  if (!passed) return give_up(passed.error());
  const std::chrono::duration<double> all = Clock::now() - began;
  if (options.rank == 0) {
    fmt::print(stderr,
               "stdchk: {}: {} {} loaded by {} ranks in {:.3f} s; rank 0 had its {} after "
               "{:.3f} s\n",
               shown(name), *set ? (*set)->images.size() : 0, *set ? (*set)->word() : "images",
               options.ranks, all.count(), format_bytes(bytes), own.count());
  }
  barrier.leave();
  return name;
}

/// Loads one node's images, for the process that loads for all ranks and waits for all nodes.
int run_load(const RestartOptions& options) {
  std::vector<std::uint32_t> mine;
  for (const std::string& word : split(options.load, ',')) {
    const char* const end = word.data() + word.size();
    const auto [stop, code] = std::from_chars(word.data(), end, mine.emplace_back());
    if (code != std::errc{} || stop != end || mine.back() >= options.ranks) {
      return complain(fmt::format("\"{}\" is no rank of {}", word, options.ranks));
    }
  }
  auto located = locate(options.pool, options.path, limits::kWindowBytesDefault);
  if (!located) return complain(located.error().text);
  const auto set = choose_set(*located, options.set);
  if (!set) return complain(set.error().text);
  if (!*set) return complain("no set in that folder is complete");
  const auto loaded = load_shares(*located->filesystem, **set, mine, options);
  return loaded ? kExitGood : complain(loaded.error().text);
}

/// An image on its way to this node.
struct Load {
  const SetImage* image;
  Outcome<void> done;
};

BundleImage to_bundle_image(const SetImage& image) {
  return {image.name, image.attributes.id, image.attributes.size_bytes, image.attributes.mode};
}

/// Loads all images, several at once; each Load has its result. Images for all nodes come from the
/// sender of options.cast.
void load_all(client::Filesystem& filesystem, std::vector<Load>& loads, const LocalFolder* to,
              const RestartOptions& options) {
  std::vector<Load*> own;
  std::vector<std::pair<Load*, std::size_t>> cast;  // with their numbers in the receiver
  std::vector<BundleImage> images;
  for (Load& load : loads) {
    if (options.cast.empty() || !is_for_all(*load.image, options)) {
      own.push_back(&load);
    } else {
      cast.emplace_back(&load, images.size());
      images.push_back(to_bundle_image(*load.image));
    }
  }
  std::optional<CastReceiver> receiver;
  std::thread receiving;
  if (!cast.empty()) {
    // A receiver has all images open at once. Without it this process opens kReaders images.
    if (auto made = CastReceiver::make(filesystem, *to, std::move(images)); made) {
      receiver.emplace(std::move(*made));
      receiving = std::thread([&] { receiver->receive(filesystem, options.cast); });
    } else {
      for (const auto& one : cast) own.push_back(one.first);
      cast.clear();
    }
  }
  share_out(own, kReaders, [&] {
    return [&](Load* load) { load->done = load_image(filesystem, *load->image, to); };
  });
  if (receiving.joinable()) receiving.join();
  share_out(cast, kReaders, [&] {
    return [&](const auto& one) { one.first->done = receiver->complete(one.second); };
  });
}

}  // namespace

std::vector<BundleImage> images_for_all(const ChosenSet& set, const RestartOptions& options) {
  std::vector<BundleImage> images;
  for (const SetImage& image : set.images) {
    if (is_for_all(image, options)) images.push_back(to_bundle_image(image));
  }
  return images;
}

Outcome<std::uint64_t> load_shares(client::Filesystem& filesystem, const ChosenSet& set,
                                   const std::vector<std::uint32_t>& mine,
                                   const RestartOptions& options) {
  std::vector<Load> loads;
  for (std::size_t k = 0; k < set.images.size(); ++k) {
    if (is_share(set, k, mine, options)) loads.push_back({&set.images[k], {}});
  }
  std::optional<LocalFolder> to;
  if (!options.to.empty() && !loads.empty()) {
    auto opened = LocalFolder::open(options.to);
    if (!opened) {
      return problem("{}/{} cannot be made: {}", options.to, loads.front().image->name,
                     opened.error().text);
    }
    to.emplace(std::move(*opened));
    for (const std::string& folder : set.folders) {
      if (auto made = to->make_folder(folder); !made) return problem(made.error());
    }
    for (const auto& [name, target] : set.links) {
      if (auto made = to->make_link(name, target); !made) return problem(made.error());
    }
  }
  load_all(filesystem, loads, to ? &*to : nullptr, options);
  std::uint64_t bytes = 0;
  for (const Load& load : loads) {
    if (!load.done) return problem(load.done.error());
    bytes += load.image->attributes.size_bytes;
  }
  if (to && set.is_directory) {
    if (auto checked = check_copy(*to, set, options.to); !checked) return problem(checked.error());
  }
  return bytes;
}

int start_command_in_place_of_this(const RestartOptions& options, const std::string& set) {
  if (options.command.empty()) return kExitGood;
  ::setenv("STDCHK_RESTART_SET", set.c_str(), 1);
  const std::vector<char*> words = exec_words(options.command);
  (void)std::fflush(nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // the program would inherit the ignored signal
  ::execvp(words[0], words.data());
  return complain(fmt::format("{} cannot be started: {}", words[0], std::strerror(errno)));
}

int run_restart(RestartOptions& options, const std::string& invoked_as) {
  const bool has_nodes = options.job || !options.hosts.empty();
  if (options.all_images && options.to.empty()) return complain("--all-images needs --to");
  if (options.multicast == "always" && (!has_nodes || options.to.empty())) {
    return complain("--multicast always needs --to, and the nodes by --job or --hosts");
  }
  if (!options.load.empty()) return run_load(options);
  if (has_nodes) return restart_on_nodes(options, invoked_as);
  if (auto found = find_place(options); !found) return complain(found.error().text);
  auto set = restart_rank(options);
  if (!set) return complain(fmt::format("rank {}: {}", options.rank, set.error().text));
  return start_command_in_place_of_this(options, *set);
}

}  // namespace stdchk::tools
