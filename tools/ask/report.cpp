#include <nlohmann/json.hpp>

#include "tools/ask/commands.h"
#include "tools/ask/report_card.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"
#include "tools/drained/undrained.h"

namespace stdchk::tools {

int run_report(const ReportOptions& options) {
  auto pool = find_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  if (!options.undrained.empty() || !options.safe_file.empty()) {
    return keep_files(*pool, {options.undrained, options.safe_file, !options.unconfined});
  }
  if (options.lost) {
    fmt::print("{}", shown_message(take_losses(pool->undrained, pool->drain)));
    return kExitGood;
  }
  auto filesystem = connect(*pool);
  if (!filesystem) return complain(filesystem.error().text);
  auto figures = (*filesystem)->stat_pool();
  if (!figures) return complain("the manager: " + describe(figures.error()));
  ReportFigures card{pool->mount, pool->created, (*filesystem)->config(),
                     *figures,    options.ends,  {}};
  if (options.ends) {
    auto lost = find_undrained(**filesystem);
    if (!lost) return complain("the manager: " + lost.error().text);
    card.lost = undrained_lines(*lost);
    if (!pool->undrained.empty()) {
      if (auto saved = save_undrained(*lost, pool->undrained); !saved) {
        return complain(saved.error().text);
      }
    }
  }
  // An unused pool has nothing to report at its end.
  if (options.ends && figures->totals.written_bytes == 0) return kExitGood;
  if (options.json) {
    print(card_json(card));
  } else {
    fmt::print("{}", card_text(card));
  }
  return kExitGood;
}

}  // namespace stdchk::tools
