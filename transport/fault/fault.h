#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "transport/transport.h"

/// Injects faults in front of any transport.
namespace stdchk::transport::fault {

/// A Plan sets the chances of faults, in parts per million (ppm), drawn for each operation,
/// message, or both. With all zero there are no faults.
struct Plan {
  /// An operation or message waits up to `delay_max`. Messages of one link keep their order, but
  /// overtake operations and messages of other links.
  std::uint32_t delay_ppm = 0;
  Duration delay_max{};
  std::uint32_t fail_ppm = 0;  ///< an operation fails, and no byte is moved
  std::uint32_t tear_ppm = 0;  ///< a write fails after a part of its bytes was written
  std::uint32_t late_ppm = 0;  ///< a write fails, but its bytes land up to `late_max` later
  Duration late_max{};
  std::uint32_t flip_ppm = 0;  ///< a write succeeds with one bit changed
  /// The link is lost at the start of an operation or when a message is sent. The message and all
  /// waiting messages are lost too.
  std::uint32_t drop_ppm = 0;
  /// The link is lost after a message was received and handled. The answers to it are lost too.
  std::uint32_t drop_after_ppm = 0;
  // Rule 4 of transport/README.md forbids the next two faults.
  std::uint32_t lose_ppm = 0;    ///< a request or an answer is lost, and the link lives
  std::uint32_t repeat_ppm = 0;  ///< a message arrives twice
  bool no_memory = false;        ///< registering memory fails
};

/// A MessageKind is the role of a message for its sender.
enum class MessageKind : std::uint8_t { kRequest, kAnswer, kOther };

/// Numbers of injected faults.
struct Counts {
  std::uint64_t delayed = 0;
  std::uint64_t failed = 0;
  std::uint64_t torn = 0;
  std::uint64_t late = 0;
  std::uint64_t flipped = 0;
  std::uint64_t dropped = 0;        ///< links that were lost
  std::uint64_t requests_lost = 0;  ///< lost with their link, before they were received
  std::uint64_t answers_lost = 0;   ///< lost with their link, to requests that were received
  std::uint64_t others_lost = 0;    ///< lost with their link
  std::uint64_t messages_lost = 0;  ///< lost while their link lived
  std::uint64_t repeated = 0;       ///< messages that were sent twice
  std::uint64_t overtaken = 0;      ///< messages that a later message on another link overtook
  Counts& operator+=(const Counts& other);
};

class FaultCore;

/// A FaultEndpoint does what its inner endpoint does, but adds the faults of its Plan. It states
/// the same capabilities and addresses, so wrapping one side of a link suffices.
///
/// Owns: the inner endpoint.
/// Threads: its reactor's.
/// Limits: by `clock`, an operation still ends within limits::kRmaDeadline, and connecting within
///   its deadline. A stalled operation ends with kDeadline and takes its link with it.
/// Not: corruption of bytes, unless flip_ppm asks for it.
class FaultEndpoint final : public Endpoint, private AcceptHandler {
 public:
  FaultEndpoint(std::unique_ptr<Endpoint> inner, Clock& clock, std::uint64_t seed);
  ~FaultEndpoint() override;
  FaultEndpoint(const FaultEndpoint&) = delete;
  FaultEndpoint& operator=(const FaultEndpoint&) = delete;

  /// May be changed at any time. Applies to operations and messages that start afterwards.
  Plan& plan() { return plan_; }
  const Counts& counts() const { return counts_; }
  /// Sets the function that tells the kind of a message. Without one, all messages are kOther.
  void set_kind_of(MessageKind (*ask)(ByteSpan)) { kind_of_ = ask; }
  /// Loses all links; both sides are told.
  void drop_links();
  /// Stalls all links: nothing moves until it is switched off, and neither side is told.
  void stall(bool on);
  /// Stalls only the links that this endpoint opens to `address`.
  void stall_to(const std::string& address, bool on);
  std::size_t link_count() const;

  // Endpoint
  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  std::string address() const override { return inner_->address(); }
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;
  void withhold_access() override { inner_->withhold_access(); }
  bool poll() override;
  int fd() const override { return inner_->fd(); }
  bool may_sleep() override;
  Duration sleep_max() const override;

  // For the endpoint's links:
  Clock& clock() { return clock_; }
  bool stalled() const { return stalled_; }
  bool stalled_to(const std::string& address) const { return stalled_to_.contains(address); }
  bool draw(std::uint32_t ppm, std::uint64_t& count);
  Duration draw_delay();
  std::uint64_t draw_below(std::uint64_t bound) { return prng_.below(bound); }
  /// Numbers messages in the order in which they are sent.
  std::uint64_t next_message() { return ++messages_; }
  MessageKind kind_of(ByteSpan message) const;
  void count_lost(MessageKind kind);
  bool draw_loss(ByteSpan message);
  /// Counts the messages that `number` overtakes, now that it goes out on `link`.
  void count_overtaken(const FaultCore& link, std::uint64_t number);

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  friend class FaultCore;
  void on_accept(std::unique_ptr<Link> link) override;
  bool hand_over();

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
  std::deque<std::unique_ptr<Link>> waiting_;  ///< accepted links that wait for the end of a stall
};

}  // namespace stdchk::transport::fault
