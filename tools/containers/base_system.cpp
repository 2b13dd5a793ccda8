#include "tools/containers/base_system.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/json_fields.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Outcome<BaseSystem> read_bundle(const fs::path& bundle, const std::string& text) {
  BaseSystem base;
  const auto read = read_json([&] {
    const Json config = Json::parse(text);
    base.root = (bundle / config.at("root").at("path").get<std::string>()).lexically_normal();
    if (const auto process = config.find("process"); process != config.end()) {
      base.environment = process->value("env", std::vector<std::string>());
    }
    return true;
  });
  if (!read) {
    return problem("--root {}: config.json does not describe an OCI bundle: {}", bundle.string(),
                   read.error().text);
  }
  return base;
}

}  // namespace

Outcome<BaseSystem> read_base_system(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).lexically_normal();
  BaseSystem base{folder, {}};
  std::ifstream config(folder / "config.json");
  if (config) {
    const std::string text{std::istreambuf_iterator<char>(config), {}};
    if (text.find("ociVersion") != std::string::npos) {
      auto bundle = read_bundle(folder, text);
      if (!bundle) return bundle;
      base = std::move(*bundle);
    }
  }
  if (base.root.size() > 1 && base.root.back() == '/') base.root.pop_back();
  if (!fs::is_directory(base.root, error)) {
    return problem("--root {}: {} is no folder with a file system", path, base.root);
  }
  return base;
}

}  // namespace stdchk::tools
