#include "tools/meeting.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManager = "address";
constexpr std::string_view kReady = "ready.";
constexpr std::string_view kFailed = "failed.";
constexpr std::string_view kNotWhole = "new.";  ///< in front of a name: what is written still

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

}  // namespace

Outcome<void> Meeting::tell(const std::string& name, const std::string& text) const {
  const std::string path = folder_ + "/" + name;
  const std::string temporary = fmt::format("{}/{}{}", folder_, kNotWhole, name);
  std::ofstream file(temporary);
  file << text << "\n";
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return problem("{} cannot be written; it must be in a folder that all nodes of the job share",
                   path);
  }
  return {};
}

Outcome<void> Meeting::tell_manager(const std::string& address) const {
  return tell(kManager, address);
}

Outcome<void> Meeting::tell_ready(const std::string& node) const {
  return tell(std::string(kReady) + node, node);
}

Outcome<void> Meeting::tell_failure(const std::string& node, const std::string& why) const {
  return tell(std::string(kFailed) + node, why);
}

std::optional<std::string> Meeting::manager() const {
  std::string address = first_line(folder_ + "/" + kManager);
  if (address.empty()) return std::nullopt;
  return address;
}

bool Meeting::has_failed(const std::string& node) const {
  return ::access(fmt::format("{}/{}{}", folder_, kFailed, node).c_str(), F_OK) == 0;
}

Answers Meeting::answers() const {
  Answers answers;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kReady)) ++answers.ready;
    if (!name.starts_with(kFailed)) continue;
    if (!answers.failures.empty()) answers.failures += "; ";
    answers.failures += name.substr(kFailed.size()) + ": " + first_line(entry.path());
  }
  return answers;
}

}  // namespace stdchk::tools
