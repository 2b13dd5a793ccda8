#include "tools/base/connection.h"

#include <unistd.h>

#include "core/files/pool_files.h"
#include "transport/secure/key_file.h"

namespace stdchk::tools {

using transport::secure::read_keyring;

Outcome<std::unique_ptr<client::Filesystem>> connect(const PoolRecord& pool,
                                                     std::uint64_t window_bytes) {
  if (pool.manager_address.empty()) {
    return problem("the pool at {} never became usable; clean up with: stdchk down {}", pool.mount,
                   pool.mount);
  }
  auto keyring = read_keyring(pool.secret_file(), transport::secure::Role::kClient);
  if (!keyring) return problem(keyring.error());
  client::Options options;
  options.manager_address = pool.manager_address;
  options.keyring = std::move(*keyring);
  if (::access(pool.key_file().c_str(), F_OK) == 0) {
    const auto key = read_secret_file(pool.key_file());
    if (!key) return problem(key.error());
    options.key = *key;
  }
  options.role = "tool";
  // The tool only asks the manager, which needs no device.
  options.transport = pool.transport == "auto" ? "tcp" : pool.transport;
  options.window_bytes = window_bytes;
  auto filesystem = client::Filesystem::connect(options);
  if (!filesystem) {
    return failed(fmt::format("the manager of the pool at {}", pool.mount), filesystem.error());
  }
  return std::move(*filesystem);
}

Outcome<Located> locate(const std::string& pool_directory, const std::string& path,
                        std::uint64_t window_bytes) {
  auto pool = find_pool(pool_directory, path);
  if (!pool) return problem(pool.error());
  auto inside = path.empty() ? std::string() : path_in_pool(*pool, path);
  if (!inside) return problem(inside.error());
  auto filesystem = connect(*pool, window_bytes);
  if (!filesystem) return problem(filesystem.error());
  auto attributes = (*filesystem)->resolve(*inside);
  if (!attributes) return failed(path.empty() ? pool->mount : path, attributes.error());
  return Located{std::move(*pool), *inside, std::move(*filesystem), *attributes};
}

}  // namespace stdchk::tools
