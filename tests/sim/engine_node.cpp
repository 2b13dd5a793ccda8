#include "tests/sim/engine_node.h"

#include <utility>

#include "core/base/limits.h"

namespace stdchk::sim {

using client::CompletionPtr;
using client::Lock;

EngineNode::EngineNode(Cluster& cluster, const std::string& name, const Limits& of_process,
                       std::uint64_t seed)
    : cluster_(cluster), node_(cluster.add_node(name)), executor_(node_.reactor, seed) {
  client::Engine::Config config;
  config.manager_address = cluster.managers();
  config.host_token = cluster.host_for(name);
  config.host_name = name;
  config.window_bytes = of_process.window_bytes;
  config.sessions.naming_judged_bytes = 512 * limits::kKiB;
  config.cache_bytes = of_process.cache_bytes;
  config.chunk_bytes = of_process.chunk_bytes;
  config.sessions.waits_for_copies = of_process.waits_for_copies;
  engine_ = std::make_unique<client::Engine>(node_.reactor, node_.endpoint,
                                             std::vector<transport::Endpoint*>{&node_.endpoint},
                                             executor_, files_, std::move(config));
  leased_ = std::make_unique<client::LeasedCalls>(*engine_);
  node_.reactor.add(*this);
  engine_->start();
}

EngineNode::~EngineNode() {
  // From now on no message leaves the process.
  node_.endpoint.stall(true);
  node_.reactor.remove(*this);
  executor_.clear();
  waits_.clear();
  engine_.reset();
  leased_.reset();
  cluster_.remove_node(node_);
}

bool EngineNode::ready() {
  const Lock lock(engine_->shared().mutex);
  return engine_->registration().ready->done() && engine_->registration().manager_up &&
         !cluster_.is_behind(engine_->client());
}

void EngineNode::wait(std::string what, Step step, Done done, Moved moved) {
  const Time deadline = node_.clock.now() + limits::kOperationDeadline;
  waits_.push_back({std::move(what), std::move(step), std::move(done), deadline, std::move(moved)});
  // Time must stop at the deadline, and the first step must not wait for another event.
  node_.reactor.schedule_at(deadline, [] {});
  (void)node_.reactor.post([] {});
}

void EngineNode::wait_for(std::string what, std::function<Result<CompletionPtr>(Lock&)> begin,
                          Done done) {
  const auto completion = std::make_shared<CompletionPtr>();
  wait(
      std::move(what),
      [completion, begin = std::move(begin)](Lock& lock) -> Status {
        if (*completion == nullptr) {
          STDCHK_ASSIGN(*completion, begin(lock));
        }
        if (!(*completion)->done()) return fail(Code::kWouldBlock, "sim");
        return *(*completion)->status;
      },
      std::move(done), [completion] { return *completion == nullptr ? 0 : (*completion)->moved; });
}

void EngineNode::ask(std::string what, msg::Request request,
                     std::function<void(rpc::Answer)> done) {
  const auto answer = std::make_shared<std::optional<rpc::Answer>>();
  {
    const Lock lock(engine_->shared().mutex);
    engine_->call(std::move(request), [answer](rpc::Answer got) { *answer = std::move(got); });
  }
  wait(
      std::move(what),
      [answer](Lock&) -> Status {
        if (!answer->has_value()) return fail(Code::kWouldBlock, "sim");
        return {};
      },
      [answer, done = std::move(done)](const Status& status) {
        if (!status.has_value()) return done(tl::unexpected(rpc::Failure{status.error(), {}, {}}));
        done(std::move(**answer));
      });
}

void EngineNode::sleep(Duration time, std::function<void()> done) {
  node_.reactor.schedule_after(time, [alive = lifetime_.watch(), done = std::move(done)] {
    if (!alive.expired()) done();
  });
}

std::string EngineNode::overdue() const {
  for (const Wait& each : waits_) {
    if (node_.clock.now() > each.deadline + std::chrono::milliseconds(1)) return each.what;
  }
  return {};
}

void EngineNode::resumed() {
  (void)node_.reactor.post([] {});
}

bool EngineNode::poll() {
  bool any = false;
  for (auto each = waits_.begin(); each != waits_.end();) {
    Lock lock(engine_->shared().mutex);
    Status status = each->step(lock);
    const bool blocked = !status.has_value() && status.error().code == Code::kWouldBlock;
    const std::uint64_t moved = each->moved ? each->moved() : 0;
    if (blocked && moved != std::exchange(each->moved_last, moved)) {
      each->deadline = node_.clock.now() + limits::kOperationDeadline;
      node_.reactor.schedule_at(each->deadline, [] {});
    }
    if (blocked && node_.clock.now() < each->deadline) {
      ++each;
      continue;
    }
    if (blocked) status = fail(Code::kDeadline, each->what.empty() ? "sim" : "sim.wait");
    const Done done = std::move(each->done);
    each->step = {};  // releases its resources while the lock is held
    lock.unlock();
    each = waits_.erase(each);
    any = true;
    done(status);
  }
  return any;
}

}  // namespace stdchk::sim
