#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tests/conformance/suite.h"

/// conformance [SUBJECT [PART-OF-A-CASE'S-NAME]]: runs every case on every subject, or on one.
namespace stdchk::conformance {

namespace {

constexpr unsigned kCaseSecondsMax = 60;
constexpr int kNotRun = 77;  ///< exit status when the only subject lacks its device

std::vector<Case> cases_for(const Subject& subject) {
  std::vector<Case> cases;
  if (!subject.must_fail.empty()) return claim_cases();
  for (const auto* list :
       {&claim_cases(), &link_cases(), &transfer_cases(), &failure_cases(), &stranger_cases()}) {
    cases.insert(cases.end(), list->begin(), list->end());
  }
  return cases;
}

/// Runs a case. True: the case ended as it must for this subject.
bool run_case(const Subject& subject, bool process, const Case& each, Measured& measured) {
  const char* const variant = process ? "processes" : "threads";
  fmt::print("[{} {}] {} ... ", subject.name, variant, each.name);
  std::fflush(stdout);
  // The alarm ends a run whose case hangs; the last line printed names that case.
  ::alarm(patience() * kCaseSecondsMax);
  Scene scene(subject, process, measured);
  if (scene.set_up()) each.run(scene);
  scene.wind_up();
  scene.local.reset();
  scene.remote.reset();
  ::alarm(0);
  const bool must_fail = std::find(subject.must_fail.begin(), subject.must_fail.end(), each.name) !=
                         subject.must_fail.end();
  const bool failed = !scene.failures.empty();
  if (!scene.skipped.empty()) {
    fmt::print("does not apply: {}\n", scene.skipped);
  } else if (must_fail) {
    fmt::print("{}\n", failed ? "caught" : "FAILED: this subject cheats and was not caught");
  } else {
    fmt::print("{}\n", failed ? "FAILED" : "ok");
  }
  if (failed && !must_fail) {
    for (const auto& failure : scene.failures) fmt::print("    {}\n", failure);
  }
  return failed == must_fail;
}

void print_table(const Subject& subject, const Measured& measured) {
  SystemClock clock;
  auto endpoint = subject.open(clock);
  if (!endpoint.has_value()) return;
  const transport::Capabilities& says = (*endpoint)->capabilities();
  fmt::print("\n{:<26} {:<26} {}\n", subject.name, "says", "measured");
  const auto row = [](const char* what, const char* said, const std::string& seen) {
    fmt::print("  {:<24} {:<26} {}\n", what, said, seen);
  };
  row("delivered at completion",
      says.write_proof == transport::WriteProof::kDelivered ? "yes" : "no",
      measured.delivered_at_completion);
  row("needs target progress", says.target_must_progress ? "yes" : "no",
      measured.needs_target_progress);
  row("fence",
      says.fence == transport::FenceKind::kImmediate ? "immediate" : "when the peer has ended",
      measured.fence);
  row("one-sided", says.one_sided ? "yes" : "no", "copied by " + measured.who_copies);
  fmt::print("\n");
}

/// Says why the subject cannot run on this host; empty: it can.
std::string absence(const Subject& subject) {
  if (!subject.needs_device) return {};
  SystemClock clock;
  const auto endpoint = subject.open(clock);
  if (endpoint.has_value() || endpoint.error().code != Code::kUnsupported) return {};
  return describe(endpoint.error());
}

bool run_subject(const Subject& subject, std::string_view only) {
  Measured measured;
  bool right = true;
  for (const bool process : {false, true}) {
    if (process ? !subject.processes : !subject.threads) continue;
    for (const Case& each : cases_for(subject)) {
      if (std::string_view(each.name).find(only) == std::string_view::npos) continue;
      right &= run_case(subject, process, each, measured);
    }
  }
  print_table(subject, measured);
  return right;
}

int run(int count, char** arguments) {
  // Ignores SIGPIPE as the daemons and the client library's threads do. The soft-iWARP kernel
  // module sends from the posting thread, and signals it when the peer has gone.
  ::signal(SIGPIPE, SIG_IGN);
  const std::string_view name = count > 1 ? arguments[1] : "";
  if (name == "--party" && count == 4) {
    for (const Subject& subject : subjects()) {
      if (subject.name == arguments[2]) run_party(subject, std::atoi(arguments[3]));
    }
    return 0;
  }
  bool right = true;
  bool any = false;
  for (const Subject& subject : subjects()) {
    if (!name.empty() && subject.name != name) continue;
    any = true;
    if (const std::string why = absence(subject); !why.empty()) {
      fmt::print("{}: NOT RUN, there is no device for it here ({}). scripts/rdma-vm has one.\n",
                 subject.name, why);
      if (!name.empty()) return kNotRun;
      continue;
    }
    right &= run_subject(subject, count > 2 ? arguments[2] : "");
  }
  if (!any) fmt::print("there is no transport \"{}\" in this build\n", name);
  return right && any ? 0 : 1;
}

}  // namespace

}  // namespace stdchk::conformance

int main(int count, char** arguments) { return stdchk::conformance::run(count, arguments); }
