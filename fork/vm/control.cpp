#include "fork/vm/control.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace stdchk::fork::vm {
namespace {

constexpr std::size_t kQuestionBytesMax = 4096;

}  // namespace

Control::~Control() {
  for (const auto& [fd, asker] : askers_) watches_.remove(fd);
  if (listener_) watches_.remove(listener_.get());
}

Outcome<void> Control::listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return problem(fmt::format("The path {} is too long", path));
  std::memcpy(address.sun_path, path.data(), path.size());
  listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener_.get(), 16) != 0) {
    return problem(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  watches_.add(listener_.get(), [this] { accept(); });
  return {};
}

void Control::accept() {
  Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  const int fd = socket.get();
  askers_[fd].socket = std::move(socket);
  watches_.add(fd, [this, fd] { on_question(fd); });
}

void Control::on_question(int fd) {
  Asker& asker = askers_.at(fd);
  char bytes[4096];
  const ssize_t n = ::recv(fd, bytes, sizeof(bytes), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) asker.heard.append(bytes, static_cast<std::size_t>(n));
  const auto end = asker.heard.find('\n');
  if (n > 0 && end == std::string::npos && asker.heard.size() < kQuestionBytesMax) return;
  if (end != std::string::npos) {
    const std::string text = answer(asker.heard.substr(0, end)) + "\n";
    (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }
  watches_.remove(fd);
  askers_.erase(fd);
}

std::string Control::answer(const std::string& line) {
  const auto question = nlohmann::json::parse(line, nullptr, false);
  const auto error = [](const std::string& text) { return nlohmann::json{{"error", text}}.dump(); };
  if (!question.is_object()) return error("The question is no JSON.");
  const auto text = [&](const char* key) {
    return question.contains(key) && question[key].is_string() ? question[key].get<std::string>()
                                                               : std::string();
  };
  const std::string what = text("do"), name = text("name");
  if (what == "list") return nlohmann::json{{"machines", family_.list()}}.dump();
  if (what == "save") {
    ForkFigures figures;
    if (auto saved = family_.save(name, text("folder"), figures); !saved)
      return error(saved.error().text);
    return nlohmann::json{{"paused_s", figures.paused_s},
                          {"descriptor_bytes", figures.descriptor_bytes}}
        .dump();
  }
  if (what == "kill") {
    if (auto killed = family_.kill(name); !killed) return error(killed.error().text);
    return nlohmann::json::object().dump();
  }
  if (what == "fork" && question.contains("count") && question["count"].is_number_unsigned()) {
    ForkFigures figures;
    const auto count = question["count"].get<std::uint64_t>();
    if (count > std::numeric_limits<std::uint32_t>::max()) return error("Too many clones.");
    auto names = family_.fork(name, static_cast<std::uint32_t>(count), figures);
    if (!names) return error(names.error().text);
    return nlohmann::json{{"clones", *names},
                          {"start_s", figures.start_s},
                          {"paused_s", figures.paused_s},
                          {"loaded_s", figures.loaded_s},
                          {"descriptor_bytes", figures.descriptor_bytes}}
        .dump();
  }
  return error("The question is unknown.");
}

}  // namespace stdchk::fork::vm
