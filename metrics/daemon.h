#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/problem.h"
#include "core/runtime/options.h"
#include "core/runtime/reactor.h"
#include "metrics/endpoint.h"
#include "metrics/exposition.h"

/// Shared by the main functions of daemons: the flags, and the way of figures to the endpoint.
namespace stdchk::metrics {

/// The longest time that a scrape waits for the daemon's own thread.
inline constexpr Duration kAnswerTimeMax = std::chrono::seconds(2);

struct Flags {
  std::string listen;  ///< address and port; empty: no endpoint
  std::string file;    ///< file that gets the endpoint's address; empty: none
};

/// Describes the options --metrics and --metrics-file.
void describe(Options& options, Flags& flags);

/// Begins a daemon's page with the program's name and version and the figures of its process.
Exposition begin(const std::string& program);

/// Makes a page from figures that live on a reactor's thread. `collect` is called on that thread
/// and adds them to what begin() has. The endpoint's thread does the rest.
///
/// Errors: kDeadline after kAnswerTimeMax.
Endpoint::Page page_of(const std::string& program, Reactor& reactor,
                       std::function<void(Exposition&)> collect);

/// Starts the endpoint that the flags ask for. Logs its address, and writes it to the file. Returns
/// nullptr when the flags ask for none. An error is a sentence.
Outcome<std::unique_ptr<Endpoint>> serve(const Flags& flags, Endpoint::Page page);

}  // namespace stdchk::metrics
