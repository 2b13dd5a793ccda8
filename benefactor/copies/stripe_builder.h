#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "benefactor/copies/job_counts.h"
#include "benefactor/copies/source.h"
#include "core/base/executor.h"
#include "core/base/lifetime.h"
#include "core/chunk/erasure.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// A StripeBuilder computes blocks of stripes in its own arena from blocks of other benefactors. It
/// reads these part by part, one-sided, into its own memory, checks them, and computes.
///
/// | state of a request | leaves when                                                            |
/// |--------------------|------------------------------------------------------------------------|
/// | waiting            | the previous request is answered -> linking                            |
/// | linking            | all sources are attached -> reading; one fails -> answered, failed     |
/// | reading            | a part of every input was read -> computing; a read failed -> answered |
/// | computing          | a worker has computed the part -> reading the next part, or answered   |
///
/// Owns: the links to sources, memory for a part of each input, its worker.
/// Threads: the reactor's; computing on a worker.
/// Errors: the answer lists inputs that could not be read or did not match;
/// then no output is valid.
/// Limits: kWaitingMax requests; kPartBytes of each input at once.
class StripeBuilder final : public SourceReader {
 public:
  static constexpr std::size_t kWaitingMax = 256;
  static constexpr std::size_t kPartBytes = 512 * 1024;

  struct Config {
    SourceAccess access;  ///< without regions: the builder reads into its own memory
    MutableByteSpan arena;
    Executor* executor = nullptr;  ///< null: a thread of its own
    std::shared_ptr<JobCounts> counts = std::make_shared<JobCounts>();
  };
  StripeBuilder(Reactor& reactor, Config config);
  ~StripeBuilder();
  StripeBuilder(const StripeBuilder&) = delete;
  StripeBuilder& operator=(const StripeBuilder&) = delete;

  void build(msg::BuildStripe request, Time deadline, rpc::Responder respond);
  /// Ends all work: when it returns, nothing changes the arena any more. Requests
  /// under way get no answer.
  void cancel();

 private:
  struct Request;

  Status prepare(Request& request);
  Status make_memory();
  void start_next();
  void link();
  void linked(const Source& source, bool attached);
  void start_reading();
  void begin_part();
  void read_more();
  void read_done(std::uint32_t index, const Status& status) override;
  void compute();
  void computed(std::uint64_t number);
  void count(const Request& request, const rpc::Answer& answer) const;
  void answer(rpc::Answer answer);
  void end_overdue();

  Reactor& reactor_;
  Config config_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  std::vector<std::unique_ptr<transport::MemoryRegion>> regions_;
  Sources sources_;
  std::deque<std::shared_ptr<Request>> waiting_;
  std::shared_ptr<Request> current_;  ///< shared with the worker
  std::uint64_t numbers_made_ = 0;
  TimerId retry_;
  Lifetime lifetime_;
  LazyExecutor executor_;  ///< last: destroyed before the members that its work uses
};

}  // namespace stdchk::benefactor
