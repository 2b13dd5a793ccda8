#include <algorithm>
#include <map>

#include "core/base/units.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/hosts.h"
#include "tools/base/show.h"
#include "tools/cast/cast_sender.h"
#include "tools/data/restart.h"
#include "tools/pool/batch_job.h"
#include "tools/pool/job_commands.h"

namespace stdchk::tools {
namespace {

/// The nodes and their ranks.
struct Places {
  BatchJob nodes;  ///< each node once
  std::vector<std::vector<std::uint32_t>> ranks_on;
  std::uint32_t ranks = 0;
};

/// Reduces the job to these nodes; false when it lacks one.
bool keep_only_nodes(BatchJob& job, const std::vector<std::string>& names) {
  std::vector<std::string> places;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(job.nodes, name);
    if (found == job.nodes.end()) return false;
    const auto at = static_cast<std::size_t>(found - job.nodes.begin());
    if (!job.places.empty()) places.push_back(job.places[at]);
  }
  job.nodes = names;
  job.places = std::move(places);
  return true;
}

/// Uses the launcher of the pool's job if all hosts are its nodes and the user asks for no other
/// way.
BatchJob reach(const std::vector<std::string>& names, const RestartOptions& options,
               const PoolRecord& pool) {
  if (options.remote_shell.empty() && !pool.job_id.empty()) {
    auto job = current_job(pool.remote_shell);
    if (job && job->id == pool.job_id && keep_only_nodes(*job, names)) return std::move(*job);
  }
  BatchJob plain;
  plain.system = BatchJob::System::kNone;
  plain.nodes = names;
  plain.remote_shell =
      options.remote_shell.empty() ? pool.remote_shell : split_words(options.remote_shell);
  return plain;
}

Outcome<Places> find_places(const RestartOptions& options, const PoolRecord& pool) {
  Places places;
  if (options.job) {
    auto job = current_job(options.remote_shell.empty() ? pool.remote_shell
                                                        : split_words(options.remote_shell));
    if (!job) return problem(job.error());
    places.nodes = std::move(*job);
    for (std::size_t i = 0; i < places.nodes.nodes.size(); ++i) {
      places.ranks_on.push_back({places.ranks++});
    }
    return places;
  }
  const auto hosts = read_rank_hosts(options.hosts);
  if (!hosts) return problem(hosts.error());
  std::vector<std::string> names;
  std::map<std::string, std::size_t> known;
  for (const std::string& host : *hosts) {
    const auto [at, added] = known.emplace(host, names.size());
    if (added) {
      names.push_back(host);
      places.ranks_on.emplace_back();
    }
    places.ranks_on[at->second].push_back(places.ranks++);
  }
  places.nodes = reach(names, options, pool);
  return places;
}

/// The command line for one node.
std::vector<std::string> words_for(const Places& places, std::size_t node, const std::string& set,
                                   const std::string& cast, const RestartOptions& options) {
  std::string ranks;
  for (const std::uint32_t rank : places.ranks_on[node]) {
    if (!ranks.empty()) ranks += ',';
    ranks += std::to_string(rank);
  }
  std::vector<std::string> words = {
      "restart", "--load", ranks, "--ranks", std::to_string(places.ranks), "--set", set};
  if (!options.to.empty()) words.insert(words.end(), {"--to", absolute_path(options.to)});
  if (options.all_images) words.emplace_back("--all-images");
  if (!cast.empty()) words.insert(words.end(), {"--cast", cast});
  words.push_back(absolute_path(options.path));
  return words;
}

/// Prints one line for each failed node, without the prefix of the node's own message.
void complain_about(const BatchJob& nodes, const std::vector<NodeEnd>& ends) {
  std::size_t good = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    good += ends[i].good ? 1 : 0;
    if (ends[i].failure.empty()) continue;
    std::string why = ends[i].failure;
    if (why.starts_with("stdchk: ")) why.erase(0, 8);
    while (why.ends_with('\n')) why.pop_back();
    (void)complain(nodes.nodes[i] + ": " + why);
  }
  (void)complain(fmt::format("no rank goes on: {} of {} nodes have loaded their images{}", good,
                             ends.size(), asked_to_end() ? " before a signal came" : ""));
}

/// Starts a sender of the images that all nodes load. Nothing: each node reads them from the pool.
std::unique_ptr<CastSender> start_sender(const Located& located, const ChosenSet& set,
                                         std::size_t nodes, const RestartOptions& options) {
  std::vector<BundleImage> images = images_for_all(set, options);
  if (images.empty() || nodes < 2 || options.multicast == "never") return nullptr;
  std::uint64_t bytes = 0;
  for (const BundleImage& image : images) bytes += image.size_bytes;
  const bool is_forced = options.multicast == "always";
  if (!is_forced && !is_worth_a_cast(*located.filesystem, bytes, nodes)) return nullptr;
  const Duration longest = std::chrono::seconds(options.timeout_s) / 2;
  auto sender = CastSender::start(located.pool, std::move(images), nodes, longest);
  if (sender) return std::move(*sender);
  fmt::print(stderr, "stdchk: each node reads all images from the pool: {}\n", sender.error().text);
  return nullptr;
}

}  // namespace

Outcome<std::optional<Loaded>> load_on_nodes(const RestartOptions& options,
                                             const std::string& invoked_as) {
  if (options.job && !options.hosts.empty()) return problem("--job and --hosts exclude each other");
  notice_end_signals();
  const auto began = std::chrono::steady_clock::now();
  auto located = locate(options.pool, options.path);
  if (!located) return problem(located.error());
  const auto places = find_places(options, located->pool);
  if (!places) return problem(places.error());
  const auto set = choose_set(*located, options.set);
  if (!set) return problem(set.error());
  if (!*set) return std::nullopt;
  Loaded loaded;
  loaded.set = (*set)->name;
  loaded.images = (*set)->images.size();
  loaded.word = (*set)->word();
  for (const SetImage& image : (*set)->images) loaded.bytes += image.attributes.size_bytes;
  const auto sender = start_sender(*located, **set, places->nodes.nodes.size(), options);
  const std::string cast = sender ? sender->name() : "";
  const auto ends = run_on_nodes(
      places->nodes, invoked_as, located->pool,
      [&](std::size_t node) { return words_for(*places, node, loaded.set, cast, options); },
      std::chrono::seconds(options.timeout_s));
  if (sender) {
    loaded.cast_bytes = sender->bytes();
    loaded.cast_nodes = sender->end();
  }
  if (!std::ranges::all_of(ends, &NodeEnd::good)) {
    complain_about(places->nodes, ends);
    return problem("{} was not loaded", loaded.set);
  }
  const auto last = std::ranges::max_element(ends, {}, &NodeEnd::seconds) - ends.begin();
  loaded.ranks = places->ranks;
  loaded.nodes = ends.size();
  loaded.seconds = seconds_since(began);
  loaded.last = places->nodes.nodes[static_cast<std::size_t>(last)];
  return loaded;
}

void print_cast(const Loaded& loaded) {
  if (loaded.cast_bytes == 0) return;
  fmt::print(stderr,
             "stdchk: {} were sent to all nodes at once; {} of {} nodes got all of that so\n",
             format_bytes(loaded.cast_bytes), loaded.cast_nodes, loaded.nodes);
}

int restart_on_nodes(const RestartOptions& options, const std::string& invoked_as) {
  const auto loaded = load_on_nodes(options, invoked_as);
  if (!loaded) return complain(loaded.error().text);
  if (!*loaded) {
    fmt::print(stderr, "stdchk: no set in that folder is complete; nothing is loaded\n");
  } else {
    const Loaded& all = **loaded;
    fmt::print(stderr,
               "stdchk: {}: {} {}, {}, loaded for {} ranks on {} nodes in {:.3f} s; the last "
               "was {}\n",
               shown(all.set), all.images, all.word, format_bytes(all.bytes), all.ranks, all.nodes,
               all.seconds, all.last);
    print_cast(all);
  }
  if (asked_to_end()) return complain("a signal came");
  return start_command_in_place_of_this(options, *loaded ? (*loaded)->set : "none");
}

}  // namespace stdchk::tools
