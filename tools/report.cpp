#include <nlohmann/json.hpp>

#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/report_card.h"
#include "tools/show.h"

namespace stdchk::tools {

int run_report(const ReportOptions& options) {
  auto pool = find_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  auto filesystem = connect(*pool);
  if (!filesystem) return complain(filesystem.error().text);
  auto figures = (*filesystem)->stat_pool();
  if (!figures) return complain("the manager: " + describe(figures.error()));
  const ReportFigures card{pool->mount, pool->created, (*filesystem)->config(), *figures,
                           options.ends};
  // Of a pool that was not used there is nothing to say at its end.
  if (options.ends && figures->totals.written_bytes == 0) return kExitGood;
  if (options.json) {
    print(card_json(card));
  } else {
    fmt::print("{}", card_text(card));
  }
  return kExitGood;
}

}  // namespace stdchk::tools
