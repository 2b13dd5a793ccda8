#include "tests/sim/pool_questions.h"

#include <fmt/core.h>

#include "manager/service/metrics.h"

namespace stdchk::sim {

namespace {

std::string problem_of(const msg::StatPool::Reply& reply) {
  if (reply.free_bytes > reply.total_bytes) return "more is free than there is";
  if (reply.drain_failed_files > reply.drain_pending_files) return "more fails than is pending";
  return {};
}

std::string problem_of(const msg::CheckMetadata::Reply& reply) {
  return reply.broken_count == 0 ? std::string() : reply.broken.front();
}

std::string problem_of(const msg::CollectGarbage::Reply& reply) {
  return reply.leaked_bytes == 0 ? std::string() : "space is leaked";
}

template <class Reply>
std::string problem_of(const Reply&) {
  return {};
}

/// A random file that has a version.
const manager::File* some_file(const manager::State& state, Prng& prng) {
  const auto& children = state.file(kRootFile)->as_directory.children;
  if (children.empty()) return nullptr;
  const auto child =
      std::next(children.begin(), static_cast<std::ptrdiff_t>(prng.below(children.size())));
  const manager::File* const file = state.file(child->second);
  return file->newest.version > 0 ? file : nullptr;
}

}  // namespace

void ask_about_pool(Cluster& cluster, PlainClient& client, Prng& prng,
                    const std::function<void(const std::string&)>& complain) {
  const auto ask = [&](const msg::Request& request) {
    client.ask(request, [complain](const rpc::Answer& answer) {
      if (!answer.has_value()) return;
      const std::string problem =
          std::visit([](const auto& reply) { return problem_of(reply); }, *answer);
      if (!problem.empty()) complain("pool: " + problem);
    });
  };
  switch (prng.below(9)) {
    case 0:
      return ask(msg::StatPool{});
    case 1:
      return ask(msg::CheckMetadata{});
    case 2:
      return ask(msg::CollectGarbage{prng.chance(1, 2), 0});
    case 3:
      return ask(msg::CollectGarbage{false, 1 + prng.below(5)});
    case 4:
      return ask(msg::Scrub{prng.chance(1, 3)});
    case 5:
      return ask(msg::ListAborted{});
    case 6:
      return ask(msg::DrainNow{kRootFile});
    case 7: {
      const manager::File* const file = some_file(cluster.manager()->state(), prng);
      if (file != nullptr) ask(msg::GetDebt{file->id, file->newest.version});
      return;
    }
    default:
      return ask(msg::ListBenefactors{});
  }
}

void check_metrics(Cluster& cluster, const std::function<void(const std::string&)>& complain) {
  metrics::Exposition told;
  manager::ServiceMetrics(*cluster.manager(), cluster.journal()).collect(told);
  const std::string text = told.text();
  for (const char* name : {"stdchk_at_risk ", "stdchk_granted_bytes ",
                           "stdchk_journal_records_total ", "stdchk_quarantined_bytes "}) {
    if (text.find(fmt::format("\n{}", name)) == text.npos) {
      complain(fmt::format("metrics: {} is missing", name));
    }
  }
  if (text.find(" nan\n") != text.npos) complain("metrics: a figure is not a number");
}

}  // namespace stdchk::sim
