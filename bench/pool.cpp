#include "bench/pool.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/measuring.h"
#include "core/pool_files.h"

namespace stdchk::bench {

Pool read_pool(const std::string& state) {
  std::ifstream in(state + "/pool.json");
  const auto record = nlohmann::json::parse(in, nullptr, false);
  if (!record.is_object()) give_up("no pool is up with its state in " + state);
  Pool pool;
  pool.manager = record.at("manager_address");
  const auto secret = read_secret_file(record.at("secret_file"));
  if (!secret) give_up(secret.error());
  pool.secret = *secret;
  for (const auto& member : record.at("members")) {
    if (member.at("role") == "benefactor") pool.benefactors.push_back(member.at("pid"));
  }
  return pool;
}

}  // namespace stdchk::bench
