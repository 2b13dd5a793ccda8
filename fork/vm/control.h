#pragma once

#include <map>
#include <string>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "fork/process/watches.h"
#include "fork/vm/family.h"

namespace stdchk::fork::vm {

/// A Control answers `stdchk vm fork|kill|list` for one family: a line of JSON each way over a Unix
/// socket. Only the user of the family's folder can reach the socket.
///
/// Owns: the socket and its connections. Threads: the reactor's.
class Control {
 public:
  Control(Watches& watches, Family& family) : watches_(watches), family_(family) {}
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  Outcome<void> listen(const std::string& path);

 private:
  void accept();
  void on_question(int fd);
  std::string answer(const std::string& line);

  Watches& watches_;
  Family& family_;
  Descriptor listener_;
  struct Asker {
    Descriptor socket;
    std::string heard;
  };
  std::map<int, Asker> askers_;
};

}  // namespace stdchk::fork::vm
