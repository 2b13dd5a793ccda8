#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "client/blocking/blocking_questions.h"
#include "client/names/leased_calls.h"

namespace stdchk::client {

/// A LeasedNames makes the calls of LeasedCalls, and waits for their ends: a lease may be on its way.
///
/// Threads: any. Functions without an attribute take the engine's lock.
/// Errors: those of LeasedCalls, and kDeadline after an operation's deadline.
class LeasedNames {
 public:
  class Turn : public LeasedCalls::Turn {
   public:
    explicit Turn(LeasedNames* names)
        : LeasedCalls::Turn(names == nullptr ? nullptr : &names->calls_) {}
  };
  using Found = LeasedCalls::Found;
  using Created = LeasedCalls::Created;

  explicit LeasedNames(BlockingQuestions& questions);

  /// The calls without a wait, for callers with the lock.
  LeasedCalls& calls() { return calls_; }
  /// Returns the file's attributes, if they are known here, without a wait.
  std::optional<Attributes> known(FileId file) STDCHK_REQUIRES(engine_lock) {
    return calls_.attributes(file).value_or(std::nullopt);
  }

  Result<std::optional<Found>> lookup(Turn& turn, FileId parent, std::string_view name);
  Result<std::optional<Attributes>> attributes(FileId file);
  Result<std::optional<std::vector<msg::DirectoryEntry>>> read_directory(Turn& turn,
                                                                         FileId directory);
  Result<std::optional<Attributes>> set_attributes(const msg::SetAttributes& change);
  Result<std::optional<Attributes>> make(Turn& turn, const msg::NameChange& change);
  Result<std::optional<std::uint32_t>> remove(Turn& turn, FileId parent, std::string_view name,
                                              bool directory);
  Result<std::optional<std::uint32_t>> rename(Turn& turn, const msg::Rename& change);
  Result<std::optional<Created>> create(Turn& turn, FileId parent, std::string_view name,
                                        bool exclusive, Owner owner);
  Status leave(Turn& turn, FileId directory, FileId file = {});
  Status leave_all();
  /// Waits until the manager knows the file, which may be open and empty.
  Status settle(FileId file);
  /// Waits until all changes are durable that were answered.
  Status sync();
  Status store(EmptyOpen& open);

 private:
  template <class T, class... Parameters, class... Arguments>
  Result<T> call(Result<T> (LeasedCalls::*step)(Parameters...), Arguments&&... arguments);
  Status wait(Lock& lock, const std::function<Status()>& step) STDCHK_REQUIRES(engine_lock);
  Status settle_name(FileId parent, std::string_view name);
  Status wait_for_answer(Lock& lock, const std::shared_ptr<Engine::Opening>& opening)
      STDCHK_REQUIRES(engine_lock);

  BlockingQuestions& questions_;
  Engine& engine_;
  LeasedCalls calls_;
};

}  // namespace stdchk::client
