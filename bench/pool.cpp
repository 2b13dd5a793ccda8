#include "bench/pool.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/measuring.h"
#include "transport/secure/key_file.h"

namespace stdchk::bench {

Pool read_pool(const std::string& state) {
  std::ifstream in(state + "/pool.json");
  const auto record = nlohmann::json::parse(in, nullptr, false);
  if (!record.is_object()) give_up("no pool is up with its state in " + state);
  Pool pool;
  pool.manager = record.at("manager_address");
  auto keyring =
      transport::secure::read_keyring(record.at("secret_file"), transport::secure::Role::kClient);
  if (!keyring) give_up(keyring.error().text);
  pool.keyring = std::move(*keyring);
  for (const auto& member : record.at("members")) {
    if (member.at("role") == "benefactor") pool.benefactors.push_back(member.at("pid"));
  }
  return pool;
}

}  // namespace stdchk::bench
