// Connections of the C interface.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "client/api/filesystem.h"
#include "client/library/errors.h"
#include "client/library/objects.h"
#include "core/files/pool_files.h"
#include "transport/secure/key_file.h"

using namespace stdchk::client::library;
using stdchk::Code;

namespace {

/// Returns the first line of a file, without white space at its end.
std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
    line.pop_back();
  return line;
}

std::string text_or_environment(const char* text, const char* variable) {
  if (text != nullptr) return text;
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : std::string(value);
}

/// Reads the key, if there is a path. Returns false after it has recorded an error.
bool read_key(const std::string& path, std::optional<stdchk::Secret>& key) {
  if (path.empty()) return true;
  const auto secret = stdchk::read_secret_file(path);
  if (!secret) {
    failed(Code::kPermission, "stdchk_connect: " + secret.error().text + ".");
    return false;
  }
  key = *secret;
  return true;
}

}  // namespace

extern "C" {

void stdchk_options_init(struct stdchk_options* options) {
  std::memset(options, 0, sizeof(*options));
  options->size = sizeof(*options);
  options->naming = -1;
  options->content_cuts = -1;
}

stdchk_pool* stdchk_connect(const struct stdchk_options* given) {
  struct stdchk_options options;
  stdchk_options_init(&options);
  if (given != nullptr) std::memcpy(&options, given, std::min(given->size, sizeof(options)));
  stdchk::client::Options to;
  to.manager_address = text_or_environment(options.manager, "STDCHK_MANAGER");
  if (!to.manager_address.empty() && to.manager_address.find(':') == std::string::npos) {
    to.manager_address = first_line(to.manager_address);
  }
  if (to.manager_address.empty()) {
    failed(Code::kInvalidArgument,
           "stdchk_connect: no manager is named; give its address or set STDCHK_MANAGER.");
    return nullptr;
  }
  const std::string secret_file = text_or_environment(options.secret_file, "STDCHK_SECRET_FILE");
  auto keyring = stdchk::transport::secure::read_keyring(secret_file,
                                                         stdchk::transport::secure::Role::kClient);
  if (!keyring) {
    failed(Code::kPermission, "stdchk_connect: " + keyring.error().text + ".");
    return nullptr;
  }
  to.keyring = std::move(*keyring);
  if (!read_key(text_or_environment(options.key_file, "STDCHK_KEY_FILE"), to.key)) return nullptr;
  to.encrypts = options.encrypt != 0;
  if (to.encrypts && !to.key.has_value()) {
    failed(
        Code::kInvalidArgument,
        "stdchk_connect: encrypting needs the pool's key; give key_file or set STDCHK_KEY_FILE.");
    return nullptr;
  }
  if (options.transport != nullptr) to.transport = options.transport;
  to.window_bytes = options.window_bytes;
  to.cache_bytes = options.cache_bytes;
  if (options.naming >= 0) {
    to.naming = options.naming == 0   ? stdchk::Naming::kOff
                : options.naming == 1 ? stdchk::Naming::kOn
                                      : stdchk::Naming::kAuto;
  }
  if (options.content_cuts >= 0) to.content_cuts = options.content_cuts != 0;
  if (options.close_early != 0) to.close_mode = stdchk::client::CloseMode::kEarly;
  auto filesystem = stdchk::client::Filesystem::connect(to);
  if (!filesystem.has_value()) {
    failed(filesystem.error());
    return nullptr;
  }
  return new stdchk_pool{std::move(*filesystem)};
}

void stdchk_disconnect(stdchk_pool* pool) { delete pool; }

}  // extern "C"
