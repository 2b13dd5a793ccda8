// The commands scrub, check and gc, which look after a pool.
#include <nlohmann/json.hpp>

#include "core/base/units.h"
#include "tools/ask/check_result.h"
#include "tools/ask/commands.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/process.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kAskAgain = 200ms;

Outcome<std::unique_ptr<client::Filesystem>> open_pool(const std::string& pool,
                                                       const std::string& path) {
  auto found = find_pool(pool, path);
  if (!found) return problem(found.error());
  return connect(*found);
}

template <class M>
Outcome<typename M::Reply> ask(client::Filesystem& filesystem, M request) {
  auto reply = filesystem.ask(std::move(request));
  if (!reply) return failed(M::kName, reply.error());
  auto* wanted = std::get_if<typename M::Reply>(&*reply);
  if (wanted == nullptr) return problem("the manager's answer to {} is of another kind", M::kName);
  return std::move(*wanted);
}

}  // namespace

int run_scrub(const ScrubOptions& options) {
  auto pool = open_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  auto before = ask(**pool, msg::Scrub{false});
  if (!before) return complain(before.error().text);
  auto reply = ask(**pool, msg::Scrub{true});
  // A running pass began before this request, so wait for one pass more.
  const std::uint64_t passes = before->passes + (before->running ? 2 : 1);
  while (reply && options.wait && reply->passes < passes) {
    sleep_for(kAskAgain);
    reply = ask(**pool, msg::Scrub{!reply->running});
  }
  if (!reply) return complain(reply.error().text);
  const std::uint64_t wrong = reply->wrong_chunks - before->wrong_chunks;
  if (options.json) {
    print({{"running", reply->running},
           {"passes", reply->passes},
           {"checked_bytes", reply->checked_bytes},
           {"wrong_chunks", reply->wrong_chunks},
           {"repaired_chunks", reply->repaired_chunks},
           {"found", wrong}});
  } else if (options.wait) {
    fmt::print("{} checked, {} wrong copies found\n", format_bytes(reply->pass_bytes), wrong);
  } else {
    fmt::print("the scrub runs; stdchk status shows how far it is\n");
  }
  return wrong > 0 ? kExitNo : kExitGood;
}

int run_check(const CheckOptions& options) {
  auto pool = open_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  auto reply = ask(**pool, msg::CheckMetadata{});
  if (!reply) return complain(reply.error().text);
  if (options.json) {
    print(check_json(*reply));
  } else {
    fmt::print("{}", check_text(*reply));
  }
  return check_status(*reply);
}

namespace {

Json json_of(const msg::CollectGarbage::Reply& space, const msg::CollectGarbage::Reply& round,
             bool executed) {
  Json leaked = Json::array();
  for (const auto& range : space.leaked) {
    leaked.push_back({{"benefactor", range.benefactor.value},
                      {"offset", range.offset},
                      {"bytes", range.length}});
  }
  Json benefactors = Json::array();
  for (const auto& arena : round.arenas) {
    benefactors.push_back({{"benefactor", arena.benefactor.value},
                           {"whole", arena.whole},
                           {"garbage_extents", arena.garbage_extents},
                           {"garbage_bytes", arena.garbage_bytes},
                           {"forgotten_extents", arena.forgotten_extents},
                           {"used_extents", arena.used_extents},
                           {"granted_extents", arena.granted_extents},
                           {"waiting_extents", arena.waiting_extents},
                           {"copying_extents", arena.copying_extents},
                           {"missing_extents", arena.missing_extents}});
  }
  return {{"executed", executed},
          {"leaked", leaked},
          {"leaked_bytes", space.leaked_bytes},
          {"waiting_bytes", space.waiting_bytes},
          {"granted_bytes", space.granted_bytes},
          {"used_bytes", space.used_bytes},
          {"free_bytes", space.free_bytes},
          {"benefactors", benefactors}};
}

void print_arena(const msg::CollectGarbage::Arena& arena, bool executed) {
  fmt::print("benefactor {}: {} extents ({}) that nothing refers to{}", arena.benefactor.value,
             arena.garbage_extents, format_bytes(arena.garbage_bytes),
             executed ? fmt::format(", {} forgotten", arena.forgotten_extents) : "");
  fmt::print(
      "; extents that stay: {} of chunks, {} of open files, {} that wait for a fence or the "
      "journal, {} that are being copied",
      arena.used_extents, arena.granted_extents, arena.waiting_extents, arena.copying_extents);
  if (arena.missing_extents > 0) {
    fmt::print("; {} extents lack their chunk{}", arena.missing_extents,
               executed ? " and are checked" : "");
  }
  fmt::print("{}\n", arena.whole ? "" : "; the report of the benefactor was incomplete");
}

}  // namespace

int run_garbage(const GarbageOptions& options) {
  auto pool = open_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  const bool executed = !options.dry_run;
  const auto space = ask(**pool, msg::CollectGarbage{executed, 0});
  if (!space) return complain(space.error().text);
  auto round = ask(**pool, msg::CollectGarbage{false, space->round});
  while (round && !round->ended) {
    sleep_for(kAskAgain);
    round = ask(**pool, msg::CollectGarbage{false, space->round});
  }
  if (!round) return complain(round.error().text);
  if (options.json) {
    print(json_of(*space, *round, executed));
    return kExitGood;
  }
  for (const auto& range : space->leaked) {
    fmt::print("benefactor {}: {} at {} {}\n", range.benefactor.value, format_bytes(range.length),
               range.offset, executed ? "is free again" : "is used by nothing");
  }
  for (const auto& arena : round->arenas) print_arena(arena, executed);
  fmt::print("{} {}; {} used, {} of open files, {} that wait for a fence, {} free\n",
             format_bytes(space->leaked_bytes), executed ? "given back" : "to give back",
             format_bytes(space->used_bytes), format_bytes(space->granted_bytes),
             format_bytes(space->waiting_bytes), format_bytes(space->free_bytes));
  return kExitGood;
}

}  // namespace stdchk::tools
