#include "tools/base/running.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tools/base/process.h"

namespace stdchk::tools {
namespace {

constexpr uid_t kOtherUser = 65534;

/// A process whose standard input is `input`.
class Child {
 public:
  explicit Child(int input) {
    const auto started = start_detached("/bin/sleep", {"60"}, "/dev/null", input);
    REQUIRE(started);
    id_ = *started;
  }
  ~Child() {
    ::kill(id_.pid, SIGKILL);
    ::waitpid(id_.pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  const ProcessId& id() const { return id_; }

 private:
  ProcessId id_;
};

TEST_CASE("a standard input that another user made is no copy of a record") {
  const auto own = SpareRecord::make();
  REQUIRE(own);
  (*own)->write({"{}", "secret", ""});
  const Child honest((*own)->fd());
  CHECK(SpareRecord::of(honest.id()) != nullptr);
  const int wrong_name = ::memfd_create("record", MFD_CLOEXEC);
  const Child other_name(wrong_name);
  CHECK(SpareRecord::of(other_name.id()) == nullptr);
  ::close(wrong_name);
  if (::geteuid() != 0) {
    WARN("only root can make files of another user");
    return;
  }
  REQUIRE(::seteuid(kOtherUser) == 0);
  const int planted = ::memfd_create("stdchk-record", MFD_CLOEXEC);
  REQUIRE(::seteuid(0) == 0);
  REQUIRE(planted >= 0);
  const Child deceived(planted);
  CHECK(SpareRecord::of(deceived.id()) == nullptr);
  ::close(planted);
}

}  // namespace
}  // namespace stdchk::tools
