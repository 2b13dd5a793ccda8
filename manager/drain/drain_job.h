#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/drain/drain_queue.h"

namespace stdchk::manager {

/// The steps of a DrainJob; docs/internals/protocol.md has the transitions.
enum class DrainPhase : std::uint8_t {
  kPieces,
  kWaitsForName,
  kSettingAside,
  kStarting,
  kFinishing,
  kLost,  ///< unknown whether the file got its name: asks again
  kRecording,
  kEnding,  ///< has failed or is obsolete; some answers are still to come
};

/// Why a DrainJob has ended without its file.
enum class DrainEnd : std::uint8_t {
  kObsolete,  ///< nobody wants the version any more, or another attempt follows
  kFailed,
  kMoved,  ///< compaction moved chunks while benefactors read them
};

/// A request for pieces of a file to one benefactor.
struct DrainRequest {
  struct Source {
    std::uint32_t slice = 0;  ///< of the version
    std::uint64_t extent_offset = msg::kNoExtent;
  };
  BenefactorId benefactor;
  msg::DrainPieces pieces;
  std::vector<Source> sources;  ///< the source of each piece; stays when the request is sent
  std::uint64_t bytes = 0;
  bool sent = false;
  bool answered = false;
  bool hangs = false;  ///< not counted against its benefactor's limit
  Time sent_at{};
};

/// An attempt to bring one version into the drain directory.
struct DrainJob {
  FileId file;
  Version version = 0;
  std::uint64_t number = 0;  ///< names its temporary file
  DrainPhase phase = DrainPhase::kPieces;
  std::vector<bool> verified;  ///< slices that the temporary file has
  bool starts_over = false;    ///< the temporary file is useless for another attempt
  std::vector<DrainRequest> requests;
  std::size_t done = 0;
  std::size_t unanswered = 0;
  Time late{};          ///< until then a lost benefactor may still execute a request
  Time late_before{};   ///< as `late`, of the earlier attempts that this one continues
  bool hangs = false;   ///< storage hangs, now or in the last attempt: one request at a time
  Time naming_since{};  ///< begin of asked_for_name()
  DrainQueue::Place place{DrainRank::kOther, 0};
  bool staged = false;    ///< the drain directory has the whole file: it only needs its name
  bool recorded = false;  ///< DrainStarted is journalled
  std::string path;       ///< path that the job reads or creates: must not change meanwhile
  BenefactorId finisher;
  DrainEnd end = DrainEnd::kObsolete;
  const char* why = nullptr;

  /// A benefactor was asked to give the file its name, and has not answered.
  bool asked_for_name() const {
    return phase == DrainPhase::kFinishing || phase == DrainPhase::kLost;
  }
};

}  // namespace stdchk::manager
