#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "transport/transport.h"

/// Faults on purpose, in front of any transport.
namespace stdchk::transport::fault {

/// A Plan says what goes wrong by chance. Chances are in a million, drawn for each operation,
/// message or both. All zero: nothing does.
struct Plan {
  /// An operation or message waits up to `delay_max`. Messages of one link keep their order; they
  /// overtake those of other links, and operations.
  std::uint32_t delay_ppm = 0;
  Duration delay_max{};
  std::uint32_t fail_ppm = 0;  ///< an operation fails, and nothing was moved
  std::uint32_t tear_ppm = 0;  ///< a write fails after a part of its bytes was written
  std::uint32_t late_ppm = 0;  ///< a write fails, and its bytes land up to `late_max` afterwards
  Duration late_max{};
  std::uint32_t flip_ppm = 0;  ///< a write succeeds, with one bit changed on its way
  /// The link is lost, at an operation or when a message has been sent: with that message, and with
  /// all that wait.
  std::uint32_t drop_ppm = 0;
  /// The link is lost when a message has been received and handled: with what was answered to it.
  std::uint32_t drop_after_ppm = 0;
  // Rule 4 of transport/README.md forbids the next two.
  std::uint32_t lose_ppm = 0;    ///< a request or an answer is lost, and the link lives
  std::uint32_t repeat_ppm = 0;  ///< a message comes twice
  bool no_memory = false;        ///< none can be registered any more
};

/// What a message is to those who sent it.
enum class MessageKind : std::uint8_t { kRequest, kAnswer, kOther };

/// What was injected so far.
struct Counts {
  std::uint64_t delayed = 0;
  std::uint64_t failed = 0;
  std::uint64_t torn = 0;
  std::uint64_t late = 0;
  std::uint64_t flipped = 0;
  std::uint64_t dropped = 0;        ///< links
  std::uint64_t requests_lost = 0;  ///< with their link, before they were received
  std::uint64_t answers_lost = 0;   ///< with their link, to requests that were received
  std::uint64_t others_lost = 0;    ///< with their link
  std::uint64_t messages_lost = 0;  ///< while their link lived
  std::uint64_t repeated = 0;       ///< messages
  std::uint64_t overtaken = 0;      ///< messages, each by one that was sent later on another link
  Counts& operator+=(const Counts& other);
};

class FaultCore;

/// A FaultEndpoint does what the endpoint within it does, but for the faults it was told to make.
/// It says the same capabilities and addresses, so that only one party may need to be wrapped.
///
/// Owns: the inner endpoint. Threads: its reactor's.
/// Limits: operations still end within limits::kRmaDeadline, and connecting within its deadline, by
///   `clock`: a stalled operation ends with kDeadline and takes its link with it.
/// Not: corrupting anything unless flip_ppm says so.
class FaultEndpoint final : public Endpoint, private AcceptHandler {
 public:
  FaultEndpoint(std::unique_ptr<Endpoint> inner, Clock& clock, std::uint64_t seed);
  ~FaultEndpoint() override;
  FaultEndpoint(const FaultEndpoint&) = delete;
  FaultEndpoint& operator=(const FaultEndpoint&) = delete;

  /// May be changed at any time; holds for what is started from then on.
  Plan& plan() { return plan_; }
  const Counts& counts() const { return counts_; }
  /// Who tells apart messages; without one, all are kOther.
  void set_kind_of(MessageKind (*ask)(ByteSpan)) { kind_of_ = ask; }
  /// Loses all links; both sides hear of it.
  void drop_links();
  /// While on, nothing comes or goes on any link, and nobody hears of it.
  void stall(bool on);
  /// The same of the links that are opened from here to that address.
  void stall_to(const std::string& address, bool on);
  std::size_t link_count() const;

  // Endpoint
  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  std::string address() const override { return inner_->address(); }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<Link>> connect(std::string_view address, LinkHandler& handler,
                                        Duration deadline) override;
  Result<std::unique_ptr<Link>> connect_to(const secure::Ticket& peer, std::string_view address,
                                           LinkHandler& handler, Duration deadline) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;
  void withhold_access() override { inner_->withhold_access(); }
  bool poll() override;
  int fd() const override { return inner_->fd(); }
  bool may_sleep() override;
  Duration sleep_max() const override;

  // For its links.
  Clock& clock() { return clock_; }
  bool stalled() const { return stalled_; }
  bool stalled_to(const std::string& address) const { return stalled_to_.contains(address); }
  bool draw(std::uint32_t ppm, std::uint64_t& count);
  Duration draw_delay();
  std::uint64_t draw_below(std::uint64_t bound) { return prng_.below(bound); }
  /// Of messages, in the order in which they were sent.
  std::uint64_t next_message() { return ++messages_; }
  MessageKind kind_of(ByteSpan message) const;
  void count_lost(MessageKind kind);
  bool draw_loss(ByteSpan message);
  /// The message with this number goes out on `link` now.
  void count_overtaken(const FaultCore& link, std::uint64_t number);

 private:
  friend class FaultCore;
  void on_accept(std::unique_ptr<Link> link) override;
  bool hand_over();

  Result<std::unique_ptr<Link>> open(const secure::Ticket* peer, std::string_view address,
                                     LinkHandler& handler, Duration deadline);

  std::unique_ptr<Endpoint> inner_;
  Clock& clock_;
  Prng prng_;
  Plan plan_;
  Counts counts_;
  MessageKind (*kind_of_)(ByteSpan) = nullptr;
  std::uint64_t messages_ = 0;
  bool stalled_ = false;
  std::set<std::string> stalled_to_;
  AcceptHandler* accept_handler_ = nullptr;
  std::vector<std::shared_ptr<FaultCore>> links_;
  std::deque<std::unique_ptr<Link>> waiting_;  ///< accepted, not handed over while stalled
};

}  // namespace stdchk::transport::fault
