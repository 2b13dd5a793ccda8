#include "tools/pool/meeting.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace stdchk::tools {
namespace {

constexpr const char* kManager = "address";
constexpr std::string_view kReady = "ready.";
constexpr std::string_view kFailed = "failed.";

bool is_there(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0;
}

}  // namespace

Outcome<void> Meeting::check() const {
  if (!is_there(folder_)) return {};
  if (const auto folder = OwnFolder::open(folder_, kExchangeRules); !folder) {
    return problem("{}", folder.error().text);
  }
  return {};
}

Outcome<void> Meeting::publish(const std::string& name, const std::string& text) const {
  const auto folder = OwnFolder::open(folder_, kExchangeRules);
  const bool written = folder && folder->write_at_once(name, text + "\n");
  if (written) return {};
  return problem(
      "{}/{} cannot be written; it must be in a folder that all nodes of the job share{}{}",
      folder_, name, folder ? "" : ": ", folder ? "" : folder.error().text);
}

Outcome<void> Meeting::hand_over(const std::string& name, const std::string& text) const {
  const auto folder = OwnFolder::open(folder_, kExchangeRules);
  if (!folder) return problem("{}", folder.error().text);
  if (const Status written = folder->write_new(name, text); !written) {
    return failed(folder_ + "/" + name + " cannot be written", written.error());
  }
  return {};
}

Outcome<std::string> Meeting::take(const std::string& name) const {
  const auto folder = OwnFolder::open(folder_, kExchangeRules);
  if (!folder) return problem("{}", folder.error().text);
  auto text = folder->read(name, kWordBytesMax);
  if (!text) return failed(folder_ + "/" + name + " cannot be read", text.error());
  return std::move(*text);
}

Outcome<void> Meeting::publish_manager(const std::string& address) const {
  return publish(kManager, address);
}

Outcome<void> Meeting::publish_ready(const std::string& node) const {
  return publish(std::string(kReady) + node, node);
}

Outcome<void> Meeting::publish_failure(const std::string& node, const std::string& why) const {
  return publish(std::string(kFailed) + node, why.substr(0, kWordBytesMax - 1));
}

std::string Meeting::first_line(const OwnFolder& folder, const std::string& name) const {
  const auto text = folder.read(name, kWordBytesMax);
  if (!text) return {};
  std::string line = text->substr(0, text->find('\n'));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return line;
}

std::optional<std::string> Meeting::manager() const {
  const auto folder = OwnFolder::open(folder_, kExchangeRules);
  if (!folder) return std::nullopt;
  std::string address = first_line(*folder, kManager);
  if (address.empty()) return std::nullopt;
  return address;
}

bool Meeting::has_failed(const std::string& node) const {
  const auto folder = OwnFolder::open(folder_, kExchangeRules);
  return folder && folder->has(std::string(kFailed) + node);
}

Answers Meeting::answers() const {
  Answers answers;
  const auto folder = OwnFolder::open(folder_, kExchangeRules);
  if (!folder) return answers;
  for (const std::string& name : folder->names()) {
    if (name.starts_with(kReady)) ++answers.ready;
    if (!name.starts_with(kFailed)) continue;
    if (!answers.failures.empty()) answers.failures += "; ";
    answers.failures += name.substr(kFailed.size()) + ": " + first_line(*folder, name);
  }
  return answers;
}

}  // namespace stdchk::tools
