#include "tools/ask/check_result.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tools/base/exit_status.h"

namespace stdchk::tools {

std::string check_text(const msg::CheckMetadata::Reply& reply) {
  std::string out;
  for (const std::string& sentence : reply.broken) out += sentence + "\n";
  const std::string sum = reply.broken_count == 0
                              ? "all rules hold"
                              : fmt::format("{} broken rules", reply.broken_count);
  return out + fmt::format("{} files, {} chunks, {} references: {}\n", reply.files, reply.chunks,
                           reply.references, sum);
}

nlohmann::json check_json(const msg::CheckMetadata::Reply& reply) {
  return {{"good", reply.broken_count == 0},
          {"broken", reply.broken},
          {"broken_count", reply.broken_count},
          {"files", reply.files},
          {"chunks", reply.chunks},
          {"references", reply.references}};
}

int check_status(const msg::CheckMetadata::Reply& reply) {
  return reply.broken_count == 0 ? kExitGood : kExitNo;
}

}  // namespace stdchk::tools
