#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/party.h"
#include "tests/conformance/remote.h"

namespace stdchk::conformance {

/// The measurements of one subject, for the table.
struct Measured {
  std::string delivered_at_completion = "-";
  std::string needs_target_progress = "-";
  std::string fence = "-";
  std::string who_copies = "-";
};

/// A Scene holds the two parties of one run of one case, and the case's findings.
class Scene {
 public:
  Scene(const Subject& of, bool in_processes, Measured& into)
      : subject(of), process(in_processes), measured(into) {}

  /// Starts both parties, connects local to remote and gets the key of its memory.
  bool set_up();
  /// Makes one more link to the remote party.
  Contact* connect();
  /// Waits until `of` has accepted more than `heard_before` links, then fetches its key and waits
  /// until the key works. Only the suite needs this: others learn a key from a message that follows
  /// the grant.
  bool get_access(Remote& of, std::int64_t heard_before, Contact& over);
  bool expect(bool condition, const char* text, const char* file, int line);
  void skip(std::string reason) { skipped = std::move(reason); }
  const transport::Capabilities& capabilities() const { return local->capabilities(); }
  /// A transfer that lives as long as the scene: a case may end while it is in flight.
  Transfer& transfer();
  /// Ends the links and checks what must hold after every case.
  void wind_up();
  /// Retries while the queue is full. False: another error, or no room within 10 s.
  bool start_write(Contact& contact, std::span<const transport::LocalPiece> pieces,
                   std::uint64_t offset, Transfer& transfer);
  bool start_read(Contact& contact, std::span<const transport::LocalPiece> pieces,
                  std::uint64_t offset, Transfer& transfer);
  bool send(Contact& contact, ByteSpan message);

  const Subject& subject;
  const bool process;
  Measured& measured;
  std::deque<Transfer> transfers;
  std::unique_ptr<Remote> remote;
  std::unique_ptr<Party> local;  ///< destroyed before the remote party
  Contact* contact = nullptr;
  std::string address;
  std::vector<std::string> failures;
  std::string skipped;
};

/// A Case is a rule that every transport keeps.
struct Case {
  const char* name;
  void (*run)(Scene& scene);
};

const std::vector<Case>& link_cases();
const std::vector<Case>& transfer_cases();
const std::vector<Case>& failure_cases();
const std::vector<Case>& claim_cases();
const std::vector<Case>& stranger_cases();

}  // namespace stdchk::conformance

/// Ends the case when `condition` is false.
#define EXPECT(scene, condition) \
  if (!(scene).expect(static_cast<bool>(condition), #condition, __FILE__, __LINE__)) return
