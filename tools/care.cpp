// scrub, check, gc: looking after a pool.
#include <nlohmann/json.hpp>

#include "core/units.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/process.h"
#include "tools/show.h"

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
  if (wanted == nullptr) return problem("the manager's answer to {} is none", M::kName);
  return std::move(*wanted);
}

}  // namespace

int run_scrub(const ScrubOptions& options) {
  auto pool = open_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  auto before = ask(**pool, msg::Scrub{false});
  if (!before) return complain(before.error().text);
  auto reply = ask(**pool, msg::Scrub{true});
  // A pass that was under way has not seen everything from now on.
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
    print({{"good", reply->broken_count == 0},
           {"broken", reply->broken},
           {"broken_count", reply->broken_count},
           {"files", reply->files},
           {"chunks", reply->chunks},
           {"references", reply->references}});
  } else {
    for (const std::string& sentence : reply->broken) fmt::print("{}\n", sentence);
    fmt::print("{} files, {} chunks, {} references: {}\n", reply->files, reply->chunks,
               reply->references,
               reply->broken_count == 0 ? "all rules hold"
                                        : fmt::format("{} broken rules", reply->broken_count));
  }
  return reply->broken_count == 0 ? kExitGood : kExitNo;
}

int run_garbage(const GarbageOptions& options) {
  auto pool = open_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  auto reply = ask(**pool, msg::CollectGarbage{!options.dry_run});
  if (!reply) return complain(reply.error().text);
  Json leaked = Json::array();
  for (const auto& range : reply->leaked) {
    leaked.push_back({{"benefactor", range.benefactor.value},
                      {"offset", range.offset},
                      {"bytes", range.length}});
    if (options.json) continue;
    fmt::print("benefactor {}: {} at {} {}\n", range.benefactor.value, format_bytes(range.length),
               range.offset, options.dry_run ? "is used by nothing" : "is free again");
  }
  if (options.json) {
    print({{"executed", !options.dry_run},
           {"leaked", leaked},
           {"leaked_bytes", reply->leaked_bytes},
           {"waiting_bytes", reply->waiting_bytes},
           {"granted_bytes", reply->granted_bytes},
           {"used_bytes", reply->used_bytes},
           {"free_bytes", reply->free_bytes}});
    return kExitGood;
  }
  fmt::print("{} {}; {} used, {} of open files, {} until a client is fenced, {} free\n",
             format_bytes(reply->leaked_bytes), options.dry_run ? "to give back" : "given back",
             format_bytes(reply->used_bytes), format_bytes(reply->granted_bytes),
             format_bytes(reply->waiting_bytes), format_bytes(reply->free_bytes));
  return kExitGood;
}

}  // namespace stdchk::tools
