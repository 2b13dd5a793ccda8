#include "benefactor/service/job_lines.h"

#include <atomic>
#include <semaphore>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::benefactor {

TEST_CASE("work of one line is done in its order, and holds up no other line") {
  std::vector<int> done;
  std::counting_semaphore<> begun{0}, go_on{0}, ended{0};
  {
    std::unique_ptr<JobLines> lines;
    {
      ThreadExecutor executor("test", 2);
      lines = std::make_unique<JobLines>(executor);
      lines->run({true, 1}, [&] {
        begun.release();
        go_on.acquire();
        done.push_back(1);
      });
      begun.acquire();
      lines->run({true, 1}, [&] { done.push_back(2); });
      lines->run({false, 1}, [&] { ended.release(); });
      ended.acquire();
      CHECK(done.empty());
      CHECK(lines->count() >= 1);
      go_on.release();
      lines->run({true, 1}, [&] {
        done.push_back(3);
        ended.release();
      });
      ended.acquire();
    }
    CHECK(lines->count() == 0);
  }
  CHECK(done == std::vector<int>{1, 2, 3});
}

TEST_CASE("a line that has ended begins anew") {
  InlineExecutor executor;
  JobLines lines(executor);
  int done = 0;
  for (int i = 0; i < 3; ++i) lines.run({true, 1}, [&] { ++done; });
  CHECK(done == 3);
  CHECK(lines.count() == 0);
}

}  // namespace stdchk::benefactor
