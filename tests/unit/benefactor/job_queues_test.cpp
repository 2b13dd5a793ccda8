#include "benefactor/service/job_queues.h"

#include <atomic>
#include <semaphore>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::benefactor {

TEST_CASE("work of one queue is done in its order, and holds up no other queue") {
  std::vector<int> done;
  std::counting_semaphore<> begun{0}, go_on{0}, ended{0};
  {
    std::unique_ptr<JobQueues> queues;
    {
      ThreadExecutor executor("test", 2);
      queues = std::make_unique<JobQueues>(executor);
      queues->run({true, 1}, [&] {
        begun.release();
        go_on.acquire();
        done.push_back(1);
      });
      begun.acquire();
      queues->run({true, 1}, [&] { done.push_back(2); });
      queues->run({false, 1}, [&] { ended.release(); });
      ended.acquire();
      CHECK(done.empty());
      CHECK(queues->count() >= 1);
      go_on.release();
      queues->run({true, 1}, [&] {
        done.push_back(3);
        ended.release();
      });
      ended.acquire();
    }
    CHECK(queues->count() == 0);
  }
  CHECK(done == std::vector<int>{1, 2, 3});
}

TEST_CASE("a queue that has ended begins anew") {
  InlineExecutor executor;
  JobQueues queues(executor);
  int done = 0;
  for (int i = 0; i < 3; ++i) queues.run({true, 1}, [&] { ++done; });
  CHECK(done == 3);
  CHECK(queues.count() == 0);
}

}  // namespace stdchk::benefactor
