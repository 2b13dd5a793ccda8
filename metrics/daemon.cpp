#include "metrics/daemon.h"

#include <fmt/core.h>

#include <utility>

#include "core/base/log.h"
#include "core/files/pool_files.h"
#include "core/runtime/ask_reactor.h"
#include "metrics/process.h"

namespace stdchk::metrics {

void describe(Options& options, Flags& flags) {
  options.text("--metrics", flags.listen, "[ADDRESS:]PORT",
               "serve metrics to Prometheus here; without an address for this host only; port 0: a "
               "free port");
  options.text("--metrics-file", flags.file, "FILE",
               "write the address of the metrics into this file when they are served");
}

Exposition begin(const std::string& program) {
  Exposition out;
  out.gauge("stdchk_build_info", "1; the labels say which program this is.", std::uint64_t{1},
            {{"version", std::string(version())}, {"program", program}});
  add_process(out);
  return out;
}

Endpoint::Page page_of(const std::string& program, Reactor& reactor,
                       std::function<void(Exposition&)> collect) {
  return [program, &reactor, collect = std::move(collect)]() -> Result<std::string> {
    const std::function<Exposition()> question = [collect, begun = begin(program)] {
      Exposition out = begun;
      collect(out);
      return out;
    };
    STDCHK_ASSIGN(const Exposition all, ask_reactor(reactor, kAnswerTimeMax, question));
    return all.text();
  };
}

Outcome<std::unique_ptr<Endpoint>> serve(const Flags& flags, Endpoint::Page page) {
  if (flags.listen.empty()) return nullptr;
  auto endpoint = Endpoint::start(flags.listen, std::move(page));
  if (!endpoint) return problem(endpoint.error());
  log::info("metrics are at http://{}/metrics", (*endpoint)->address());
  if (flags.file.empty()) return endpoint;
  const Status written = write_file_at_once(flags.file, (*endpoint)->address() + "\n");
  if (!written) {
    return problem(fmt::format("--metrics-file {} cannot be written: {}", flags.file,
                               describe(written.error())));
  }
  return endpoint;
}

}  // namespace stdchk::metrics
