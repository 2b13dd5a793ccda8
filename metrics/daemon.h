#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "core/options.h"
#include "core/reactor.h"
#include "metrics/endpoint.h"
#include "metrics/exposition.h"

/// What the main functions of daemons share: the flags, and how figures get to the endpoint.
namespace stdchk::metrics {

/// So long a scrape waits for the daemon's own thread.
inline constexpr Duration kAnswerTimeMax = std::chrono::seconds(2);

struct Flags {
  std::string listen;  ///< empty: no endpoint
  std::string file;    ///< gets its address; empty: no file
};

/// --metrics and --metrics-file.
void describe(Options& options, Flags& flags);

/// Begins what a daemon shows: which program it is, and what the system says of the process.
Exposition begin(const std::string& program);

/// Figures that live on a reactor's thread: `collect` is called there, and adds them to what
/// begin() has. The rest is done on the endpoint's thread.
/// Errors: kDeadline after kAnswerTimeMax.
Endpoint::Page page_of(const std::string& program, Reactor& reactor,
                       std::function<void(Exposition&)> collect);

/// Starts the endpoint that the flags ask for, says where it is in the log, and writes that to the
/// file. Null: they ask for none. An error is a sentence.
tl::expected<std::unique_ptr<Endpoint>, std::string> serve(const Flags& flags, Endpoint::Page page);

}  // namespace stdchk::metrics
