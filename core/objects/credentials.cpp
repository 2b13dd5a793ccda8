#include "core/objects/credentials.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "core/base/descriptor.h"
#include "core/base/log.h"
#include "core/objects/instance_credentials.h"

namespace stdchk {
namespace {

constexpr std::size_t kFileBytesMax = 256 * 1024;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string home_folder() {
  if (std::string home = environment("HOME"); !home.empty()) return home;
  std::array<char, 4096> room{};
  struct passwd entry {};
  struct passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, room.data(), room.size(), &found) != 0 ||
      found == nullptr) {
    return {};
  }
  return found->pw_dir;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// Returns false with errno when the file cannot be read.
bool read_text(const std::string& path, std::string& out) {
  // Waits for no FIFO's other end.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode) || static_cast<std::size_t>(status.st_size) > kFileBytesMax) {
    errno = EINVAL;
    return false;
  }
  if ((status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log::warning("other users can read the credentials in {}; type chmod 600 {}", path, path);
  }
  out.resize(static_cast<std::size_t>(status.st_size));
  const ssize_t got = ::pread(file.get(), out.data(), out.size(), 0);
  if (got < 0) return false;
  out.resize(static_cast<std::size_t>(got));
  return true;
}

/// Reads the section of a file of INI form, as the AWS tools write it.
void read_section(const std::string& text, std::string_view wanted, Credentials& to) {
  std::istringstream lines(text);
  std::string line;
  bool inside = false;
  while (std::getline(lines, line)) {
    const std::string_view content = trimmed(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    if (content.front() == '[' && content.back() == ']') {
      inside = trimmed(content.substr(1, content.size() - 2)) == wanted;
      continue;
    }
    const std::size_t equals = content.find('=');
    if (!inside || equals == std::string_view::npos) continue;
    const std::string_view name = trimmed(content.substr(0, equals));
    const std::string value(trimmed(content.substr(equals + 1)));
    if (name == "aws_access_key_id") to.key_id = value;
    if (name == "aws_secret_access_key") to.secret = value;
    if (name == "aws_session_token") to.session_token = value;
  }
  OPENSSL_cleanse(line.data(), line.size());
}

/// A line break would add a header to each request.
bool is_plain(const std::string& text) {
  return text.find_first_of("\r\n") == std::string::npos && text.find('\0') == std::string::npos;
}

bool is_whole(const Credentials& credentials) {
  return !credentials.key_id.empty() && !credentials.secret.empty();
}

/// Reads the credentials' file, and adds to `searched` what was read.
Credentials read_file(const std::string& profile, std::string& searched) {
  Credentials found;
  std::string path = environment("AWS_SHARED_CREDENTIALS_FILE");
  if (path.empty()) path = home_folder() + "/.aws/credentials";
  std::string text;
  searched += fmt::format(", and the section [{}] of {}", profile, path);
  if (!read_text(path, text)) {
    searched += fmt::format(" ({})", std::strerror(errno));
    return found;
  }
  read_section(text, profile, found);
  OPENSSL_cleanse(text.data(), text.size());
  found.source = fmt::format("[{}] of {}", profile, path);
  return found;
}

}  // namespace

Credentials::~Credentials() {
  OPENSSL_cleanse(secret.data(), secret.size());
  OPENSSL_cleanse(session_token.data(), session_token.size());
}

Outcome<Credentials> find_credentials() {
  Credentials found;
  found.key_id = environment("AWS_ACCESS_KEY_ID");
  found.secret = environment("AWS_SECRET_ACCESS_KEY");
  found.session_token = environment("AWS_SESSION_TOKEN");
  found.source = "the environment";
  std::string searched = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
  // A user who has set a half, or names a profile, means no other credentials.
  bool may_ask_host = found.key_id.empty() && found.secret.empty();
  if (!is_whole(found)) {
    std::string profile = environment("AWS_PROFILE");
    may_ask_host = may_ask_host && profile.empty();
    if (profile.empty()) profile = "default";
    found = read_file(profile, searched);
    may_ask_host = may_ask_host && found.key_id.empty() && found.secret.empty();
  }
  if (!is_whole(found) && may_ask_host) {
    auto asked = ask_host_for_credentials();
    if (!asked) searched += fmt::format(", and the services of this host ({})", asked.error().text);
    if (asked) found = *asked;
  }
  if (!is_whole(found)) {
    return problem(Code::kConfig, "objects.credentials", EACCES,
                   fmt::format("There are no credentials for the object store. Searched: {}. Set "
                               "these in the environment of all members of the pool",
                               searched));
  }
  if (!is_plain(found.key_id) || !is_plain(found.secret) || !is_plain(found.session_token)) {
    return problem(Code::kConfig, "objects.credentials", EINVAL,
                   fmt::format("The credentials in {} contain a line break", found.source));
  }
  return found;
}

void keep_secrets_out_of_core_files() { ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

}  // namespace stdchk
