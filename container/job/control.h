#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "container/program/program.h"
#include "core/base/descriptor.h"
#include "core/runtime/reactor.h"

namespace stdchk::container {

/// A Control is the Unix socket by which commands of the same user reach a job's coordinator. Each
/// connection carries one request, a line, and one answer, a line.
///
/// Owns: the socket. Threads: the reactor's.
/// Limits: requests of at most 4 KiB; 64 connections wait for an answer.
class Control final : public EventSource {
 public:
  using Answer = std::function<void(const std::string& line)>;
  /// Called with a request and the function that answers it, now or later.
  using Handler = std::function<void(const std::string& request, Answer answer)>;

  static Outcome<std::unique_ptr<Control>> listen(const std::string& path, Handler handler);
  ~Control() override;

  bool poll() override;
  int fd() const override { return epoll_.get(); }
  bool may_sleep() override { return true; }

 private:
  struct Visitor {
    std::uint64_t number;
    Descriptor socket;
    std::string request;
    bool asked = false;
  };
  Control(std::string path, Descriptor socket, Descriptor epoll, Handler handler);
  void accept();
  void read(std::uint64_t number);
  void answer(std::uint64_t number, const std::string& line);

  const std::string path_;
  Descriptor socket_, epoll_;
  const Handler handler_;
  std::list<Visitor> visitors_;
  std::uint64_t made_ = 0;
};

/// Asks the coordinator at `path` and returns its answer.
Outcome<std::string> ask_control(const std::string& path, const std::string& request,
                                 Duration deadline);

}  // namespace stdchk::container
